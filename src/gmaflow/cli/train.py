"""`gmaflow train PRESET`: train a network, or go on training it."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from gmaflow.cli.app import pick
from gmaflow.cli.options import parse
from gmaflow.errors import INTERRUPTED
from gmaflow.training.config import TrainConfig
from gmaflow.training.preparing import RunOptions
from gmaflow.training.presets import PRESETS, preset, summary

ABOUT = """
Train a network with one of the presets, of which every setting can be changed.
"""
EXAMPLES = """
examples:
  gmaflow train scenes-pretrain -o runs/first
  gmaflow train scenes-pretrain -o runs/first --resume
  gmaflow train chairs --show
  gmaflow train things --init runs/chairs/weights.safetensors -o runs/things
  gmaflow train finetune --data folder:my/frames --init gma -o runs/mine
  torchrun --nproc-per-node 4 -m gmaflow train scenes-pretrain -o runs/four"""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """Train a network, or go on training it.

    The defaults below are the preset's. Everything about the run is kept in one folder; Ctrl-C,
    a kill or --stop-after end it, and the same command with --resume takes it up again as if it
    had never stopped.
    """

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("runs")
    """The folder for everything about the run."""
    show: bool = False
    """Print the settings, with what they mean, and do nothing."""
    json: bool = False
    """With --show: print JSON."""
    config: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=TrainConfig)


def main(args: list[str]) -> None:
    """Run the verb."""
    choices = {name: summary(name) for name in PRESETS}
    name, rest = pick(
        args, choices, command="gmaflow train", about=ABOUT, more=EXAMPLES, what="preset"
    )
    if name is None:
        return
    default = TrainOptions(output=Path("runs") / name, config=preset(name))
    options = parse(TrainOptions, rest, verb=f"train {name}", default=default)
    if options.show:
        show(options)
        return

    from gmaflow.training import train
    from gmaflow.training.distributed import is_first_process

    done = train(options.config, options)
    if is_first_process():
        print(done.told())
    if done.stopped == "interrupted":
        sys.exit(INTERRUPTED)


def show(options: TrainOptions) -> None:
    """Print the settings."""
    from gmaflow.training.overrides import describe, to_json

    print(to_json(options.config) if options.json else describe(options.config))
