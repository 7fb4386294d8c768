import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from gmaflow.io import read_ahead, write_behind


def fail() -> None:
    raise OSError("full")


def assert_ends(work: Callable[[], None]) -> None:
    """Do some work that would hang if it were wrong."""
    ended = threading.Event()

    def run() -> None:
        work()
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    assert ended.wait(10)


def test_the_same_items_come_in_the_same_order() -> None:
    assert list(read_ahead(range(20), depth=2)) == list(range(20))
    assert list(read_ahead([])) == []
    assert list(read_ahead([None, None])) == [None, None]


def test_items_are_fetched_ahead_but_not_too_far() -> None:
    fetched: list[int] = []
    enough = threading.Event()

    def source() -> Iterator[int]:
        for number in range(100):
            fetched.append(number)
            if number == 3:
                enough.set()
            yield number

    items = read_ahead(source(), depth=3)
    assert next(items) == 0
    assert enough.wait(10)  # without anybody asking
    assert len(fetched) <= 5
    items.close()
    assert len(fetched) <= 6


def test_an_error_of_the_source_comes_in_its_place() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    items = read_ahead(source())
    assert next(items) == 1
    with pytest.raises(ValueError, match="broken"):
        next(items)


def test_what_cannot_be_begun_is_not_waited_for() -> None:
    class Broken:
        def __iter__(self) -> Iterator[int]:
            raise ValueError("broken")

    def begin() -> None:
        with pytest.raises(ValueError, match="broken"):
            next(read_ahead(Broken()))

    assert_ends(begin)


def test_stopping_early_closes_the_source() -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.set()

    before = threading.active_count()
    generator = source()  # held here, or it would be closed for want of use
    items = read_ahead(generator)
    next(items)
    items.close()
    assert closed.is_set()
    assert threading.active_count() == before


def test_work_is_done_in_order_before_the_block_ends() -> None:
    done: list[int] = []
    with write_behind(depth=2) as later:
        for number in range(30):
            later(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == list(range(30))


def test_work_is_done_by_another_thread() -> None:
    names: list[str] = []
    with write_behind() as later:
        later(lambda: names.append(threading.current_thread().name))
    assert names == ["gmaflow-write-behind_0"]


def test_pieces_run_at_the_same_time_and_end_in_order() -> None:
    both = threading.Barrier(2, timeout=20)
    ended: list[int] = []

    def work(number: int) -> Callable[[], None]:
        both.wait()  # for the other piece
        time.sleep(0.02 * (number % 2 == 0))  # the later one of two is done first
        return lambda: ended.append(number)

    with write_behind(threads=2, depth=1) as later:
        for number in range(6):
            later(partial(work, number))
    assert ended == list(range(6))


def test_an_error_drops_what_was_to_end_after_it() -> None:
    ended: list[int] = []

    def give() -> None:
        with write_behind(threads=4) as later:
            later(lambda: lambda: ended.append(0))
            later(lambda: fail)
            for number in range(2, 4):
                later(lambda number=number: lambda: ended.append(number))  # type: ignore[misc]

    with pytest.raises(OSError, match="full"):
        give()
    assert ended == [0]


def test_nothing_begins_after_an_error_while_earlier_pieces_end() -> None:
    tried, ended = threading.Event(), threading.Event()
    begun: list[int] = []

    def slow_end() -> None:
        tried.wait(20)
        time.sleep(0.05)  # time in which the third piece could begin
        ended.set()

    def failing() -> None:
        tried.set()
        fail()

    def give() -> None:
        with write_behind(depth=3) as later:
            later(lambda: slow_end)
            later(failing)
            later(lambda: begun.append(3))

    with pytest.raises(OSError, match="full"):
        give()
    assert ended.is_set()
    assert begun == []


def test_an_error_of_the_work_is_raised_and_stops_it() -> None:
    done: list[int] = []

    def work() -> None:
        with write_behind(depth=1) as later:
            later(fail)
            for number in range(50):
                later(lambda number=number: done.append(number))  # type: ignore[misc]

    with pytest.raises(OSError, match="full"):
        work()
    assert done == []

    def work_once() -> None:
        with write_behind() as later:
            later(fail)

    with pytest.raises(OSError, match="full"):
        work_once()


def test_an_error_is_raised_however_often_work_is_given() -> None:
    def go_on() -> None:
        with write_behind(depth=1) as later:
            later(fail)
            for _ in range(3):
                with pytest.raises(OSError, match="full"):
                    later(fail)

    def fail_at_the_end() -> None:
        with pytest.raises(OSError, match="full"):
            go_on()

    assert_ends(fail_at_the_end)


def test_an_interrupt_lets_given_work_be_finished() -> None:
    done: list[int] = []

    def interrupted() -> None:
        with write_behind(depth=5) as later:
            for number in range(5):
                later(lambda number=number: done.append(number))  # type: ignore[misc]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == list(range(5))
