"""Reading, computing and writing at the same time, in threads.

Errors in a thread are raised in the caller, as if the work had been done there.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event, Semaphore
from typing import Any, TypeVar

Item = TypeVar("Item")
Work = Callable[[], Callable[[], None] | None]

DEPTH = 3
"""Maximum number of waiting items: enough to smooth out delays, few enough for large frames."""
WRITERS = min(8, os.cpu_count() or 1)
"""Threads that draw and compress files: a PNG takes several times as long as its flow on a GPU."""
_END: Any = object()


def read_ahead(items: Iterable[Item], *, depth: int = DEPTH) -> Generator[Item]:
    """Yield the same items, while a thread fetches up to `depth` of the next ones."""
    source = iter(items)
    pool = ThreadPoolExecutor(1, "gmaflow-read-ahead")
    pending = deque(pool.submit(next, source, _END) for _ in range(depth))
    try:
        while (item := pending.popleft().result()) is not _END:
            pending.append(pool.submit(next, source, _END))
            yield item
            del item  # do not keep it alive while waiting for the next one
    finally:
        for future in pending:
            future.cancel()
        # Generators hold files open, and must be closed by the thread that runs them.
        if hasattr(source, "close"):
            pool.submit(source.close)
        pool.shutdown()


@contextmanager
def write_behind(*, threads: int = 1, depth: int = DEPTH) -> Iterator[Callable[[Work], None]]:
    """Yield a function that queues work for threads; it blocks while the queue is full.

    Each piece of work may return a function, which is called in the order of the pieces: so a video
    can be drawn in several threads, and encoded frame by frame.

    When the block ends, even by an error, the queued work is done first. After an error in the work
    the rest is dropped, and the next call or the end of the block raises the error.
    """
    workers = ThreadPoolExecutor(threads, "gmaflow-write-behind")
    in_order = ThreadPoolExecutor(1, "gmaflow-in-order")
    free = Semaphore(max(threads, depth))
    errors: list[BaseException] = []
    failed = Event()

    def run(work: Work) -> Callable[[], None] | None:
        if failed.is_set():
            return None
        try:
            return work()
        except BaseException:
            failed.set()  # now, not when earlier pieces are finished: the next may begin before
            raise

    def finish(running: Future[Callable[[], None] | None]) -> None:
        try:
            rest = running.result()
            if rest is not None and not errors:
                rest()
        except BaseException as err:  # noqa: BLE001 - it is raised in the caller
            errors.append(err)
            failed.set()
        finally:
            free.release()

    def submit(work: Work) -> None:
        free.acquire()
        if errors:
            free.release()
            raise errors[0]
        in_order.submit(finish, workers.submit(run, work))

    try:
        yield submit
    finally:
        _finish_all(workers)
        _finish_all(in_order)
    if errors:
        raise errors[0]


def _finish_all(pool: ThreadPoolExecutor) -> None:
    """Wait for all work; a second Ctrl-C must not close a file that a thread still writes to."""
    while True:
        with suppress(KeyboardInterrupt):
            pool.shutdown()
            return
