"""Reading, computing and writing at the same time, with little waiting in between.

What a thread raises is raised where its work is taken or given, as if it had been done there.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import TypeVar

Item = TypeVar("Item")
Work = Callable[[], None]

DEPTH = 3
"""How many items wait at most: enough to even out, few enough for large frames."""


def read_ahead(items: Iterable[Item], *, depth: int = DEPTH) -> Generator[Item]:
    """Give the same items, the next ones being fetched by a thread meanwhile.

    Args:
        items: anything that takes time to iterate over.
        depth: how many items are fetched before they are wanted.
    """
    source = iter(items)
    ready: SimpleQueue[tuple[bool, Item | None, BaseException | None]] = SimpleQueue()
    free = Semaphore(depth)
    stopped = False

    def fetch() -> None:
        try:
            while True:
                free.acquire()
                if stopped:
                    break
                try:
                    ready.put((True, next(source), None))
                except StopIteration:
                    ready.put((False, None, None))
                    break
        except BaseException as err:  # noqa: BLE001 - it is raised again, on the other side
            ready.put((False, None, err))
        finally:
            # Generators hold files open, and are closed by the thread that runs them.
            if hasattr(source, "close"):
                source.close()

    thread = Thread(target=fetch, name="gmaflow-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            more, item, error = ready.get()
            if error is not None:
                raise error
            if not more:
                return
            free.release()
            yield item  # type: ignore[misc]  # an Item, since there is more
            del item  # not kept alive while the next one is waited for
    finally:
        stopped = True
        free.release()
        thread.join()


@contextmanager
def write_behind(*, depth: int = DEPTH) -> Iterator[Callable[[Work], None]]:
    """Give a function that lets a thread do some work, in order; it waits if too much is undone.

    When the block ends, in whatever way, the work given so far is done first. After an error the
    rest is left undone, and the next call, or the end of the block, raises it.
    """
    todo: SimpleQueue[Work | None] = SimpleQueue()
    free = Semaphore(depth)
    errors: list[BaseException] = []

    def work() -> None:
        while (one := todo.get()) is not None:
            try:
                if not errors:
                    one()
            except BaseException as err:  # noqa: BLE001 - it is raised again, on the other side
                errors.append(err)
            finally:
                del one
                free.release()

    def later(one: Work) -> None:
        free.acquire()
        if errors:
            free.release()
            raise errors[0]
        todo.put(one)

    thread = Thread(target=work, name="gmaflow-write-behind", daemon=True)
    thread.start()
    try:
        yield later
    finally:
        todo.put(None)
        # Whoever presses Ctrl-C twice must not close a file that the thread still writes to.
        while thread.is_alive():
            with suppress(KeyboardInterrupt):
                thread.join()
    if errors:
        raise errors[0]
