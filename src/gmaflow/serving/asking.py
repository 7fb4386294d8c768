"""What routes that start work have in common."""

from collections.abc import Callable

from gmaflow.errors import FlowError
from gmaflow.serving.jobs import Footage, Job, Wish
from gmaflow.serving.refusals import RefusedError
from gmaflow.serving.results import ResultFolder
from gmaflow.serving.services import Services


def pick_models(shared: Services, *names: str | None) -> tuple[str, ...]:
    """Return the models that were asked for; the default where the first was not named.

    Raises:
        RefusedError: One is not there, or one is asked for twice.
    """
    chosen = tuple(name for name in (names[0] or shared.shelf.default, *names[1:]) if name)
    if len(set(chosen)) < len(chosen):
        raise RefusedError(422, f"{chosen[0]} cannot be compared with itself; name another model")
    try:
        return tuple(shared.shelf.check(name) for name in chosen)
    except FlowError as err:
        raise RefusedError(422, str(err)) from err


def check_iters(shared: Services, iters: int) -> None:
    """Refuse numbers of refinements beyond the limits.

    Raises:
        RefusedError: It is too few or too many.
    """
    if not 1 <= iters <= shared.limits.iters:
        raise RefusedError(422, f"iters is {iters}; give 1 to {shared.limits.iters}")


def into_new_folder(shared: Services, take: Callable[[ResultFolder], Footage]) -> Footage:
    """Take footage into a folder of its own, which goes again if that fails."""
    folder = shared.workshop.new_folder()
    try:
        return take(folder)
    except BaseException:
        folder.delete()
        raise


def submit(shared: Services, client: str, footage: Footage, wish: Wish) -> Job:
    """Put a job into the queue; where there is no room, its footage goes again."""
    try:
        return shared.workshop.submit(client, footage, wish)
    except RefusedError:
        footage.folder.delete()
        raise
