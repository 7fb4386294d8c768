"""The progress of a batch job: clips, pairs a second, time left, failures, and each machine."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from gmaflow.errors import counted, print_stderr, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gmaflow.batch import BatchProgress

LINE_EVERY = 10.0
"""Seconds between lines where there is no terminal."""
MOST_NODES = 12
"""Machines that are listed; the rest is one line."""
MOST_CLIPS = 6
"""Clips under way that are listed; the rest is one line."""
CONTINUES = "finished clips are kept; the same command continues"


@contextmanager
def show_batch(*, quiet: bool = False) -> Iterator[Callable[[BatchProgress], None]]:
    """Yield a function that shows progress, live on a terminal or as lines in a log."""
    try:
        if quiet:
            yield lambda progress: None
        elif sys.stderr.isatty():
            yield from _live()
        else:
            yield _lines()
    except KeyboardInterrupt as err:
        raise KeyboardInterrupt(CONTINUES) from err


def _live() -> Iterator[Callable[[BatchProgress], None]]:
    from rich.console import Console
    from rich.live import Live

    latest: deque[BatchProgress] = deque(maxlen=1)

    def render() -> RenderableType:
        return draw(latest[0]) if latest else "looking at the inputs and the destination ..."

    with Live(
        get_renderable=render, console=Console(stderr=True), refresh_per_second=2, transient=True
    ):
        yield latest.append


def _lines() -> Callable[[BatchProgress], None]:
    following = time.monotonic() + LINE_EVERY

    def show(progress: BatchProgress) -> None:
        nonlocal following
        if time.monotonic() >= following:
            following = time.monotonic() + LINE_EVERY
            print_stderr(f"gmaflow: {line_of(progress)}")

    return show


def line_of(progress: BatchProgress) -> str:
    finished = progress.finished_before + progress.done
    parts = [f"{finished:,} of {progress.total:,} clips"]
    if progress.under_way:
        under_way = counted(len(progress.under_way), "clip")
        expected = [clip.expected for clip in tuple(progress.under_way.values())]
        of_all = f" of {sum(filter(None, expected)):,}" if all(expected) else ""
        parts.append(f"{under_way} under way with {progress.pairs_under_way:,}{of_all} pairs done")
    parts += [
        f"{progress.pairs_per_second:,.3g} pairs/s",
        f"{progress.failed + progress.failed_before:,} failed",
    ]
    if progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    return ", ".join(parts)


def draw(progress: BatchProgress) -> RenderableType:
    """Draw the state for a terminal."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    finished = progress.finished_before + progress.done
    bar = Table.grid(padding=(0, 1), expand=False)
    share = finished / max(1, progress.total)
    bar.add_row(
        ProgressBar(total=max(1, progress.total), completed=finished, width=40),
        f"{share:4.0%}",
        Text(f"{finished:,} of {progress.total:,} clips", style="bold"),
    )
    figures = Text("  ").join(
        [
            Text(f"{progress.pairs_per_second:,.3g} pairs/s", style="cyan"),
            Text(f"{progress.pairs + progress.pairs_under_way:,} pairs"),
            Text(f"{duration(progress.seconds)} elapsed"),
            Text(f"{duration(progress.seconds_left)} left", style="green"),
        ]
    )
    failed = progress.failed + progress.failed_before
    if progress.finished_before:
        figures.append(f"  {progress.finished_before:,} already there")
    figures.append(f"  {failed:,} failed", style="red" if failed else "dim")
    lines: list[RenderableType] = [bar, figures]
    if progress.nodes:
        lines.append(draw_nodes(progress))
    if progress.under_way:
        lines.append(draw_under_way(progress))
    if progress.last_failure is not None:
        text = printable(f"{progress.last_failure.clip.identifier}: {progress.last_failure.error}")
        lines.append(Text(f"last failure  {text}", style="red", overflow="ellipsis", no_wrap=True))
    return Group(*lines)


def draw_nodes(progress: BatchProgress) -> RenderableType:
    """Draw a line for each machine."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("machine", no_wrap=True)
    for title in ("workers", "clips", "pairs", "pairs/s"):
        table.add_column(title, justify="right")
    nodes = sorted(progress.nodes.items(), key=lambda item: -item[1].pairs)
    under_way = tuple(progress.under_way.values())
    for name, node in nodes[:MOST_NODES]:
        pairs = node.pairs + sum(clip.pairs for clip in under_way if clip.node == name)
        counts = (f"{count:,}" for count in (len(node.workers), node.clips, pairs))
        table.add_row(printable(name), *counts, f"{pairs / max(progress.seconds, 1e-9):,.3g}")
    if len(nodes) > MOST_NODES:
        table.add_row(f"and {len(nodes) - MOST_NODES} more")
    return table


def draw_under_way(progress: BatchProgress) -> RenderableType:
    """Draw a line for each clip that is being done."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("under way", no_wrap=True, overflow="ellipsis", max_width=40)
    table.add_column()
    table.add_column("pairs", justify="right")
    clips = sorted(progress.under_way.values(), key=lambda clip: -clip.pairs)
    for clip in clips[:MOST_CLIPS]:
        expected = None if clip.expected is None else max(clip.expected, clip.pairs)
        bar = ProgressBar(total=expected, completed=clip.pairs, width=20) if expected else ""
        done = f"{clip.pairs:,} of {expected:,}" if expected else f"{clip.pairs:,}"
        table.add_row(printable(clip.clip.identifier), bar, done)
    if len(clips) > MOST_CLIPS:
        table.add_row(f"and {len(clips) - MOST_CLIPS} more")
    return table


def duration(seconds: float | None) -> str:
    """Return a duration as hours, minutes and seconds."""
    return "?" if seconds is None else str(timedelta(seconds=round(seconds)))
