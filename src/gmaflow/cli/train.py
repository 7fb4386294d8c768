"""`gmaflow train PRESET`: train a network, or resume training."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

with suppress(ModuleNotFoundError):  # without it, options are written as key=value
    import tyro

from gmaflow.cli.app import pick
from gmaflow.cli.settings import describe, read_options
from gmaflow.errors import INTERRUPTED
from gmaflow.training import PRESETS, RunOptions, TrainConfig, preset, train
from gmaflow.training.config import summary, to_json
from gmaflow.training.distributed import is_first_process

ABOUT = """
Train a network with one of the presets. Every setting of a preset can be changed.
"""
EXAMPLES = """
examples:
  gmaflow train scenes-pretrain -o runs/first
  gmaflow train scenes-pretrain -o runs/first --resume
  gmaflow train chairs --show
  gmaflow train things --init runs/chairs/weights.safetensors -o runs/things
  gmaflow train finetune --data folder:my/frames --init gma -o runs/mine
  gmaflow train chairs steps=100 output=runs/short        key=value also works without tyro
  torchrun --nproc-per-node 4 -m gmaflow train scenes-pretrain -o runs/four"""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """Train a network, or resume training.

    The defaults below are those of the preset. All files of the run are written to one folder.
    Ctrl-C, SIGTERM or --stop-after stop the run; the same command with --resume continues it with
    identical results.
    """

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("runs")
    """Folder of the run."""
    show: bool = False
    """Print the settings with their documentation, and exit."""
    json: bool = False
    """With --show: print JSON."""
    config: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=TrainConfig)


def main(args: list[str]) -> None:
    choices = {name: summary(name) for name in PRESETS}
    name, rest = pick(
        args, choices, command="gmaflow train", about=ABOUT, more=EXAMPLES, what="preset"
    )
    if name is None:
        return
    default = TrainOptions(output=Path("runs") / name, config=preset(name))
    options = read_options(default, rest, verb=f"train {name}")
    if options.show:
        print(to_json(options.config) if options.json else describe(options.config))
        return
    done = train(options.config, options)
    if is_first_process():
        print(done.describe())
    if done.stopped == "interrupted":
        sys.exit(INTERRUPTED)
