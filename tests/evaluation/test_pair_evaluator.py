import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowError
from gmaflow.evaluation.examples import Example, open_examples
from gmaflow.evaluation.metrics import measure
from gmaflow.evaluation.pair_evaluator import RESULTS, PairEvaluator, PairResult
from gmaflow.inference import Flow, FlowEstimator
from tests.evaluation.conftest import random_estimator, write_sintel


class Counting:
    """Counts what an estimator is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        original = FlowEstimator.__call__

        def call(inner: FlowEstimator, *args: object, **more: object) -> Flow:
            self.calls += 1
            return original(inner, *args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(FlowEstimator, "__call__", call)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


def examples_of(root: Path) -> tuple[Example, ...]:
    return open_examples("sintel", root).examples


def table(results: list[PairResult]) -> np.ndarray:
    return np.stack([one.sums.table for one in results])


def test_a_pair_gets_the_errors_of_its_estimate(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator
) -> None:
    examples = examples_of(sintel)
    judged = list(PairEvaluator(estimator, tmp_path / "out").evaluate(examples))
    sample = examples[1].source.load()
    expected = measure(estimator(sample.image1, sample.image2).array, sample)
    assert [one.example.frame for one in judged] == ["0001", "0002"]
    assert (judged[1].sums.table == expected.table).all()


def test_a_repeated_run_estimates_nothing(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator, counting: Counting
) -> None:
    first = list(PairEvaluator(estimator, tmp_path).evaluate(examples_of(sintel), warm=True))
    # Of three pairs' worth of frames: two cold, and one warm, since the first is both.
    assert counting.calls == 3
    again = list(PairEvaluator(estimator, tmp_path).evaluate(examples_of(sintel), warm=True))
    assert counting.calls == 3
    assert (table(first) == table(again)).all()


def test_other_weights_settings_or_files_are_judged_anew(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator, counting: Counting
) -> None:
    def run(some: FlowEstimator) -> int:
        before = counting.calls
        list(PairEvaluator(some, tmp_path).evaluate(examples_of(sintel)))
        return counting.calls - before

    assert run(estimator) == 2
    assert run(random_estimator(seed=1)) == 2
    assert run(random_estimator(iters=2)) == 2
    assert run(random_estimator(max_memory="1GB")) == 2
    assert run(random_estimator()) == 0
    truth = sintel / "training/flow/alley_1/frame_0001.flo"
    os.utime(truth, ns=(1, 1))
    assert run(estimator) == 1


def test_what_free_memory_decided_is_judged_anew(
    tmp_path: Path,
    estimator: FlowEstimator,
    counting: Counting,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = write_sintel(tmp_path / "sintel", frames=2, passes=("clean",), size=(400, 720))

    def run(some: FlowEstimator) -> int:
        before = counting.calls
        list(PairEvaluator(some, tmp_path).evaluate(examples_of(root)))
        return counting.calls - before

    with monkeypatch.context() as short:
        short.setattr("gmaflow.runtime.device.free_memory", lambda _device: 94e6)
        assert run(estimator) == 1
        assert "in tiles of" in caplog.text
    assert run(estimator) == 1  # the tiles' errors are not taken for those of the whole image
    assert run(estimator) == 0
    limited = random_estimator(max_memory="75MB")
    assert [run(limited), run(limited)] == [1, 0]  # tiles that were asked for are kept


def stop_after(judged: Iterator[PairResult], count: int) -> None:
    for _ in range(count):
        next(judged)


@pytest.mark.parametrize("last_flow_is_there", [True, False])
def test_an_interrupted_warm_run_goes_on_as_if_nothing_had_been(
    tmp_path: Path, estimator: FlowEstimator, counting: Counting, last_flow_is_there: bool
) -> None:
    root = write_sintel(tmp_path / "sintel", frames=5)
    whole = list(
        PairEvaluator(estimator, tmp_path / "whole").evaluate(examples_of(root), warm=True)
    )
    before = counting.calls
    stop_after(
        PairEvaluator(estimator, tmp_path / "part").evaluate(examples_of(root), warm=True), 6
    )
    judge = PairEvaluator(estimator, tmp_path / "part")
    if not last_flow_is_there:
        judge.last.remove()
    rest = list(judge.evaluate(examples_of(root), warm=True))
    assert (table(rest) == table(whole)).all()
    # Four cold and three warm; without the last flow, three warm ones more to get it back.
    assert counting.calls - before == 7 + (0 if last_flow_is_there else 3)


def test_warm_differs_from_cold_but_for_the_first(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator
) -> None:
    cold1, warm1, cold2, warm2 = PairEvaluator(estimator, tmp_path).evaluate(
        examples_of(sintel), warm=True
    )
    assert warm1.key == cold1.key
    assert warm2.key != cold2.key
    assert warm2.epe != cold2.epe


def test_a_torn_line_costs_its_pair_alone(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator, counting: Counting
) -> None:
    whole = list(PairEvaluator(estimator, tmp_path).evaluate(examples_of(sintel)))
    stored = tmp_path / RESULTS
    stored.write_bytes(stored.read_bytes()[:-40])
    again = list(PairEvaluator(estimator, tmp_path).evaluate(examples_of(sintel)))
    assert counting.calls == 3
    assert (table(again) == table(whole)).all()
    third = list(PairEvaluator(estimator, tmp_path).evaluate(examples_of(sintel)))
    assert counting.calls == 3
    assert (table(third) == table(whole)).all()


def test_a_broken_pair_loses_none_before_it(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator, counting: Counting
) -> None:
    (sintel / "training/flow/alley_1/frame_0002.flo").write_bytes(b"PIEH")
    judged = PairEvaluator(estimator, tmp_path).evaluate(examples_of(sintel))
    next(judged)
    with pytest.raises(FlowError, match=r"frame_0002\.flo"):
        next(judged)
    next(PairEvaluator(estimator, tmp_path).evaluate(examples_of(sintel)))
    assert counting.calls == 1
