"""Fairness, for any mixture of clients and jobs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.serving.job_queue import FairQueue
from gmaflow.serving.jobs import Footage, Job, JobRequest, Size
from gmaflow.serving.results import ResultFolder


class Nowhere(ResultFolder):
    """A folder that is not there."""

    def __init__(self) -> None:
        self.path = Path("nowhere")
        self.bytes = 0


def job(client: str, pairs: int = 1) -> Job:
    size = Size(64, 48)
    return Job(client, Footage("clip", Nowhere(), pairs + 1, size, size), JobRequest(("gma",), 12))


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_the_announced_order_is_the_actual_order(clients: list[str]) -> None:
    queue = FairQueue()
    for client in clients:
        queue.add(job(client))
    assert len(queue) == len(clients)
    announced = queue.order()
    assert [queue.take() for _ in clients] == announced
    assert queue.take() is None


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_nobody_has_two_turns_while_another_waits(clients: list[str]) -> None:
    queue = FairQueue()
    for client in clients:
        queue.add(job(client))
    waiting = list(clients)
    last = None
    for _ in clients:
        taken = queue.take()
        assert taken is not None
        if last is not None and taken.client == last:
            assert set(waiting) == {last}
        waiting.remove(taken.client)
        last = taken.client


def test_a_long_job_comes_back_behind_the_others() -> None:
    queue = FairQueue()
    clip, single, foreign = job("a", pairs=9), job("a"), job("b")
    for each in (clip, single, foreign):
        queue.add(each)
    assert queue.take() is clip
    queue.add(clip)
    assert [queue.take() for _ in range(3)] == [foreign, single, clip]


def test_a_job_can_be_taken_out() -> None:
    queue = FairQueue()
    one, two = job("a"), job("b")
    queue.add(one)
    queue.add(two)
    assert queue.remove(one)
    assert not queue.remove(one)
    assert queue.order() == [two]


@pytest.mark.parametrize(("pair", "order"), [(0, [0, 1, 2]), (1, [1, 2, 0]), (2, [2, 0, 1])])
def test_seeking_continues_from_there_and_then_returns(pair: int, order: list[int]) -> None:
    clip = job("a", pairs=3)
    clip.seek(pair)
    assert [task.number for task in clip.todo] == order


def test_seeking_does_nothing_twice() -> None:
    clip = job("a", pairs=4)
    clip.done.add(clip.todo.pop(0))
    clip.seek(2)
    assert [task.number for task in clip.todo] == [2, 3, 1]
    assert clip.finished_pairs() == [0]
