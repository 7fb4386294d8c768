"""`gmaflow bench`: measures speed and memory."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

with suppress(ModuleNotFoundError):  # without it, options are written as key=value
    import tyro

from gmaflow.bench import BenchConfig
from gmaflow.cli.settings import read_options
from gmaflow.errors import print_stderr


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Measure speed and memory.

    Prints a table, and with -o writes all figures as JSON. Cases are measured in turn, so that
    other load on the machine affects all of them; memory is measured in separate processes. With
    --against published, the algorithm of the published code is measured with the same weights.

    Examples:
      gmaflow bench
      gmaflow bench --sizes 440x1024,1088x1920 --against published -o bench.json
      gmaflow bench --models raft,gma --sizes 436x1024 --overhead
      gmaflow bench --sizes 1088x1920 --max-memory 1.5GB --weights gma --check
      gmaflow bench --sizes 2160x3840 --sweep -o sweep.json
    """

    config: Annotated[BenchConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=BenchConfig)
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """The .json file for the figures; the plot of a sweep is written next to it, as .png."""
    overwrite: Annotated[bool, tyro.conf.arg(aliases=["-f", "-y"])] = False
    """Replace existing files."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print JSON instead of tables."""


def main(args: list[str]) -> None:
    options = read_options(BenchOptions(), args, verb="bench")

    from gmaflow.bench import as_json, as_text, bench, output_files, write_files

    files = output_files(options.config, options.output, overwrite=options.overwrite)
    result = bench(
        options.config,
        progress=lambda text: None if options.quiet else print_stderr(f"gmaflow: {text}"),
    )
    # Print first, so that a full disk loses no figures.
    print(as_json(result) if options.json else as_text(result), flush=True)
    if written := write_files(result, files):
        print_stderr(f"wrote {', '.join(map(str, written))}")
    if result.interrupted:
        raise KeyboardInterrupt("only the sizes above were measured")
