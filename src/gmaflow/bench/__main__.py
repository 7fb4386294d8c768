"""`python -m gmaflow.bench key=value ...`: `gmaflow bench` where tyro is not installed.

Keys are the settings: `sizes=440x1024,1088x1920 models=raft,gma against=published output=a.json`.
"""

from dataclasses import dataclass, fields
from pathlib import Path

from gmaflow.bench import BenchConfig, as_text, bench, output_files, write_files
from gmaflow.errors import run_as_program, say
from gmaflow.training.overrides import describe, override, read_settings


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where the figures go."""

    output: str = ""
    """Where to write the figures, a .json file; by default they are only printed."""
    overwrite: bool = False
    """Replace an output that exists."""


def main(args: list[str]) -> None:
    """Measure as the arguments say.

    Raises:
        FlowError: They say what cannot be.
    """
    if args and args[0] in ("-h", "--help"):
        settings = f"{describe(BenchConfig())}\n{describe(Destination())}"
        print(f"{__doc__}\nsettings:\n{settings}")
        return
    texts = read_settings(args)
    own = {field.name for field in fields(Destination)}
    place = override(Destination(), {key: text for key, text in texts.items() if key in own})
    config = override(BenchConfig(), {key: text for key, text in texts.items() if key not in own})
    output = Path(place.output) if place.output else None
    files = output_files(config, output, overwrite=place.overwrite)
    result = bench(config, tell=say)
    print(as_text(result), flush=True)
    write_files(result, files)
    if result.interrupted:
        raise KeyboardInterrupt("these are the sizes that were measured")


if __name__ == "__main__":
    run_as_program(main)
