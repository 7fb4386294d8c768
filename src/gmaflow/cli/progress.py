"""Telling a person how far the work is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def progress_bar(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr if that is a terminal.

    Gives a function to call with how much is done, and how much there is.
    """
    with _make_bar(quiet=quiet) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def step_bar(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar as `progress_bar` does.

    Gives a function to call after each of `total` steps with what it was.
    """
    with _make_bar() as bar:
        task = bar.add_task(what, total=total)
        yield lambda step: bar.update(task, advance=1, description=f"{what}: {step}")


def _make_bar(*, quiet: bool = False) -> "Progress":
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:-1], MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    quiet = quiet or not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=quiet)
