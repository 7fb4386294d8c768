"""`gmaflow batch INPUTS... -o DEST`: the flow of whole data sets."""

from __future__ import annotations

import json
import sys
import time
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Annotated

with suppress(ModuleNotFoundError):  # without it, options are written as key=value
    import tyro

from gmaflow.batch.config import BatchConfig
from gmaflow.cli.batch_progress import show_batch
from gmaflow.cli.settings import read_options
from gmaflow.errors import NOT_WHOLE, OutputError, counted, print_stderr, printable

if TYPE_CHECKING:
    from gmaflow.batch import BatchProgress


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """Estimate the flow of many clips, on all GPUs of this machine or on a Ray cluster.

    Inputs are videos, folders (every video and every folder of frames in them), patterns, or
    manifests: .csv, .tsv or .jsonl with the columns path, second (for pairs of images) and id, or
    .txt with a path in each line. Inputs and the destination may be remote, such as
    s3://bucket/flow.

    The same command continues what was interrupted, and computes only what is missing. Clips that
    fail are listed in failures.jsonl; the exit code is then 1.

    Examples:
      gmaflow batch videos/ -o flow/
      gmaflow batch 'videos/**/*.mp4' -o flow/ --write flow,statistics --side 256
      gmaflow batch kinetics.csv -o s3://bucket/flow --format tar --engine ray
      gmaflow batch kinetics.csv -o /shared/flow --shard $SLURM_ARRAY_TASK_ID/8
      gmaflow batch videos/ -o flow/ --retry-failed
    """

    inputs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="VIDEO | FOLDER | MANIFEST ...", help_behavior_hint=""),
    ] = ()
    """Videos, folders, patterns, or manifests."""
    output: Annotated[
        str, tyro.conf.arg(aliases=["-o"], metavar="DEST", help_behavior_hint="(required)")
    ] = ""
    """A folder, or an address such as s3://bucket/flow."""
    config: Annotated[BatchConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=BatchConfig)
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print a line of JSON for each clip, and one at the end."""


def main(args: list[str]) -> None:
    options = read_options(BatchOptions(), args, verb="batch")
    if not options.output:
        raise OutputError("there is no destination; give one with -o, such as -o flow")

    from gmaflow.batch import run_batch

    out = sys.stdout

    def watch(progress: BatchProgress) -> None:
        if options.json and progress.last is not None:
            print(json.dumps(clip_event(progress)), flush=True, file=out)
        show(progress)

    # Ray prints pages to stdout when a node is lost; the engine reports it in one line.
    with redirect_stdout(StringIO()), show_batch(quiet=options.quiet) as show:
        progress = run_batch(options.config, list(options.inputs), options.output, watch=watch)
    if options.json:
        print(json.dumps({"event": "end", **progress.report()}), flush=True)
    else:
        print(summary(progress))
    failed = progress.failed + progress.failed_before
    if failed:
        last = progress.last_failure
        if last is not None:
            print_stderr(f"gmaflow: {printable(f'{last.clip.identifier} failed: {last.error}')}")
        again = "" if progress.failed else "; --retry-failed tries again"
        print_stderr(f"gmaflow: {counted(failed, 'clip')} failed; see {progress.failures}{again}")
        sys.exit(NOT_WHOLE)


def clip_event(progress: BatchProgress) -> dict[str, object]:
    """Return the line about the clip that was just tried."""
    result = progress.last
    assert result is not None
    event: dict[str, object] = {"event": "clip", **result.clip.as_row(), "pairs": result.pairs}
    event |= {"seconds": round(result.seconds, 3), "node": result.node, "worker": result.worker}
    if result.error is not None:
        event["error"] = result.error
    event |= {"done": progress.done, "failed": progress.failed, "left": progress.left}
    return event | {"time": round(time.time(), 3)}


def summary(progress: BatchProgress) -> str:
    """Return what was done, in words."""
    parts = [f"{counted(progress.done, 'clip')}, {counted(progress.pairs, 'pair')}"]
    if progress.done:
        parts.append(f"{progress.pairs_per_second:.3g} pairs/s")
    if progress.finished_before:
        parts.append(f"{counted(progress.finished_before, 'clip')} already there")
    return f"{progress.destination}: {', '.join(parts)}"
