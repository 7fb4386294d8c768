import time

import pytest
import torch

from gmaflow.bench.timing import (
    FEWEST_ROUNDS,
    MOST_ROUNDS,
    Times,
    median_ratio,
    time_in_turn,
    time_once,
)

CPU = torch.device("cpu")


def test_works_are_called_in_turn_and_warm_up_does_not_count() -> None:
    calls: list[str] = []
    works = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    times = time_in_turn(works, CPU, warm_up=1, rounds=3)
    assert calls == ["a", "b"] * 4
    assert {name: len(found.wall) for name, found in times.items()} == {"a": 3, "b": 3}


def test_slow_works_are_still_measured_a_few_times() -> None:
    times = time_in_turn({"a": lambda: None}, CPU, warm_up=0, seconds=1e-9)
    assert len(times["a"].wall) == FEWEST_ROUNDS


def test_without_end_is_as_often_as_may_be() -> None:
    times = time_in_turn({"a": lambda: None}, CPU, warm_up=0, seconds=float("inf"))
    assert len(times["a"].wall) == MOST_ROUNDS


def test_waiting_takes_wall_time_and_no_cpu_time() -> None:
    wall, cpu = time_once(lambda: time.sleep(0.05), CPU)
    assert wall >= 0.05
    assert cpu < wall / 2


def test_median_and_percentile() -> None:
    times = Times(wall=[float(i) for i in range(1, 102)], cpu=[2.0] * 101)
    assert (times.median, times.p95, times.median_cpu) == (51.0, 96.0, 2.0)


def test_a_ratio_is_taken_round_by_round() -> None:
    """One slow moment of the machine slows both, and changes nothing."""
    assert median_ratio([1.0, 10.0, 1.0], [2.0, 20.0, 2.0]) == pytest.approx(2.0)
