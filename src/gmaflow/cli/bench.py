"""`gmaflow bench`: how fast it is here, and how much memory it takes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

with suppress(ModuleNotFoundError):  # without it, options are written as key=value
    import tyro

from gmaflow.bench.config import BenchConfig
from gmaflow.cli.settings import read_options
from gmaflow.errors import say


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Measure speed and memory.

    Prints a table, and with -o writes every figure as JSON. Cases are measured in turn, so that
    whatever else the machine does slows all of them; memory is measured in a process of its own.
    With --against published (or reference) the same weights, computed as the published code does,
    are measured beside.

    Examples:
      gmaflow bench
      gmaflow bench --sizes 440x1024,1088x1920 --against published -o bench.json
      gmaflow bench --models raft,gma --sizes 436x1024 --overhead
      gmaflow bench --sizes 1088x1920 --max-memory 1.5GB --weights gma --check
      gmaflow bench --sizes 2160x3840 --sweep -o sweep.json
    """

    config: Annotated[BenchConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=BenchConfig)
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """Where to write the figures, a .json file; the plot of a sweep goes beside it."""
    overwrite: bool = False
    """Replace what is there."""
    json: bool = False
    """Print JSON instead of tables."""


def main(args: list[str]) -> None:
    """Run the verb."""
    options = read_options(BenchOptions(), args, verb="bench")

    from gmaflow.bench import as_json, as_text, bench, output_files, write_files

    files = output_files(options.config, options.output, overwrite=options.overwrite)
    result = bench(options.config, tell=lambda text: say(f"gmaflow: {text}"))
    # Before anything is written: a disk that is full by now loses no figures.
    print(as_json(result) if options.json else as_text(result), flush=True)
    if written := write_files(result, files):
        say(f"wrote {', '.join(map(str, written))}")
    if result.interrupted:
        raise KeyboardInterrupt("these are the sizes that were measured")
