"""Telling a person how far the work is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

GOES_ON = "the same command goes on where it was"
GOES_ON_IF_ASKED = "the same command with --resume goes on where it was"


@contextmanager
def progress_bar(
    what: str, *, quiet: bool = False, kept: str = ""
) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar on stderr if that is a terminal.

    Gives a function to call with how much is done, and how much there is, or None if nobody knows.
    Where some work is kept when it is interrupted, `kept` tells so.
    """
    with _telling(kept), _make_bar(quiet=quiet) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def step_bar(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar as `progress_bar` does, for work that is kept step by step.

    Gives a function to call after each of `total` steps with what it was.
    """
    with _telling(GOES_ON), _make_bar() as bar:
        task = bar.add_task(what, total=total)
        yield lambda step: bar.update(task, advance=1, description=f"{what}: {step}")


@contextmanager
def _telling(kept: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as err:
        raise KeyboardInterrupt(*filter(None, [kept])) from err


def _make_bar(*, quiet: bool = False) -> "Progress":
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:-1], MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    quiet = quiet or not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=quiet)
