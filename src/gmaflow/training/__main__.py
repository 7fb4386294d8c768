"""`python -m gmaflow.training PRESET key=value ...`: `gmaflow train` where tyro is not installed.

Keys are the settings of the run and of its config: `steps=100 batch=2 output=runs/a resume=true`.
"""

import sys
from dataclasses import fields

from gmaflow.errors import INTERRUPTED, TrainingError, run_as_program, suggest
from gmaflow.training import RunOptions, TrainConfig, preset, train
from gmaflow.training.distributed import is_first_process
from gmaflow.training.overrides import describe, override, read_settings
from gmaflow.training.presets import PRESETS, summary


def main(args: list[str]) -> None:
    """Train as the arguments say.

    Raises:
        FlowError: They say what cannot be.
    """
    if not args or args[0] in ("-h", "--help"):
        listed = "\n".join(f"  {name:<16}{summary(name)}" for name in PRESETS)
        print(f"{__doc__}\npresets:\n{listed}\n\nsettings:\n{describe(TrainConfig())}")
        return
    config = preset(args[0])
    texts = read_settings(args[1:])
    run_keys = {field.name for field in fields(RunOptions)}
    unknown = [key for key in texts if key not in run_keys | set(TrainConfig.__annotations__)]
    if unknown:
        known = [*TrainConfig.__annotations__, *run_keys]
        raise TrainingError(f"there is no setting {unknown[0]!r}; {suggest(unknown[0], known)}")
    options = override(RunOptions(), {k: v for k, v in texts.items() if k in run_keys})
    config = override(config, {k: v for k, v in texts.items() if k not in run_keys})
    done = train(config, options)
    if is_first_process():
        print(done.told())
    if done.stopped == "interrupted":
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    run_as_program(main)
