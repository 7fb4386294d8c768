"""Reading, computing and writing at the same time, in threads.

Errors in a thread are raised in the caller, as if the work had been done there.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import TypeVar

Item = TypeVar("Item")
Work = Callable[[], None]

DEPTH = 3
"""How many items wait at most: enough to smooth out delays, few enough for large frames."""


def read_ahead(items: Iterable[Item], *, depth: int = DEPTH) -> Generator[Item]:
    """Yield the same items, while a thread fetches the next ones.

    Args:
        items: Anything that takes time to iterate over.
        depth: How many items are fetched ahead.
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
        except BaseException as err:  # noqa: BLE001 - it is raised in the caller
            ready.put((False, None, err))
        finally:
            # Generators hold files open, and must be closed by the thread that runs them.
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
            del item  # do not keep it alive while waiting for the next one
    finally:
        stopped = True
        free.release()
        thread.join()


@contextmanager
def write_behind(*, depth: int = DEPTH) -> Iterator[Callable[[Work], None]]:
    """Give a function that queues work for a thread, done in order; it blocks if the queue is full.

    When the block ends, even by an error, the queued work is done first. After an error in the work
    the rest is dropped, and the next call or the end of the block raises the error.
    """
    todo: SimpleQueue[Work | None] = SimpleQueue()
    free = Semaphore(depth)
    errors: list[BaseException] = []

    def work() -> None:
        while (one := todo.get()) is not None:
            try:
                if not errors:
                    one()
            except BaseException as err:  # noqa: BLE001 - it is raised in the caller
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
        # A second Ctrl-C must not close a file that the thread still writes to.
        while thread.is_alive():
            with suppress(KeyboardInterrupt):
                thread.join()
    if errors:
        raise errors[0]
