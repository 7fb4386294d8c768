"""Progress bars."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

GOES_ON = "the same command continues"
GOES_ON_IF_ASKED = "the same command with --resume continues"


@contextmanager
def progress_bar(
    what: str, *, quiet: bool = False, kept: str = ""
) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar on stderr if it is a terminal.

    Gives a function to call with the amount done and the total, or None if it is unknown. `kept`
    says what remains of the work after an interrupt.
    """
    with _note_on_interrupt(kept), _make_bar(quiet=quiet) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def step_bar(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar as `progress_bar` does, for work that is saved step by step.

    Gives a function to call after each of `total` steps with its name.
    """
    with _note_on_interrupt(GOES_ON), _make_bar() as bar:
        task = bar.add_task(what, total=total)
        yield lambda step: bar.update(task, advance=1, description=f"{what}: {step}")


@contextmanager
def _note_on_interrupt(kept: str) -> Iterator[None]:
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
