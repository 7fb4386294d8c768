import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gmaflow.data import FlowSample
from gmaflow.errors import FlowError, OutputError
from gmaflow.evaluation import (
    evaluate,
    evaluating,
    open_examples,
    render_examples,
    write_report,
)
from gmaflow.evaluation.evaluating import (
    LAST_FLOW,
    RESULTS,
    PairEvaluator,
    PairResult,
    digest,
    identify,
)
from gmaflow.evaluation.examples import Example
from gmaflow.evaluation.metrics import measure
from gmaflow.inference import Flow, FlowEstimator
from gmaflow.io import read_flow_arrays, write_flow
from gmaflow.model.settling import SETTLED_THRESHOLD
from gmaflow.weights import fingerprint
from tests.evaluation.conftest import random_estimator, write_sintel


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_json_and_csv_agree_with_the_pixels(tmp_path: Path, estimator: FlowEstimator) -> None:
    root = write_sintel(tmp_path / "sintel", scenes=("alley_1", "cave_2"), frames=2)
    data = open_examples("sintel", root)
    evaluate(estimator, data, tmp_path / "out", weights="mine.pth")
    results = json.loads((tmp_path / "out/results.json").read_text())
    errors = []
    for example in data.examples:
        sample = example.load()
        flow = estimator(sample.image1, sample.image2).array
        errors.append(np.linalg.norm(flow.astype(float) - sample.flow, axis=2))
    cold = results["results"]["clean"]["cold"]
    assert cold["regions"]["all"]["epe"] == pytest.approx(np.mean(errors))
    assert cold["regions"]["s40+"]["epe"] is None
    assert cold["sequences"]["cave_2"]["all"]["epe"] == pytest.approx(errors[1].mean())
    assert sum(cold["histogram"]) == np.size(errors)
    assert results["network"]["weights"] == "mine.pth"
    rows = read_rows(tmp_path / "out/results.csv")
    assert [row["scene"] for row in rows] == ["alley_1", "cave_2"]
    assert float(rows[0]["epe all"]) == pytest.approx(errors[0].mean(), rel=1e-4)
    assert rows[0]["epe s40+"] == ""


def test_the_iterations_used_are_reported(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator
) -> None:
    data = open_examples("sintel", sintel)
    automatic = estimator.with_iters("auto")
    for _ in range(2):  # the second time from stored results
        evaluation = evaluate(automatic, data, tmp_path)
        results = json.loads((tmp_path / "results.json").read_text())
        used = [automatic(s.image1, s.image2).iterations for s in map(load, data.examples)]
        assert results["iterations_per_pair"] == pytest.approx(np.mean(used))  # type: ignore[arg-type]
        assert any("per pair on average, at most 32" in note for note in evaluation.notes)
    fixed = evaluate(estimator.with_iters(32), data, tmp_path)
    assert not any("per pair on average" in note for note in fixed.notes)
    assert fixed.summary.iterations == 32 * len(data.examples)


def load(example: Example) -> FlowSample:
    return example.load()


def test_sequences_have_warm_and_cold_figures(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator
) -> None:
    evaluation = evaluate(estimator, open_examples("sintel", sintel), tmp_path, warm_start=True)
    assert [title for title, _ in evaluation.columns()] == ["clean, cold", "clean, warm"]
    assert not (tmp_path / "last-flow.safetensors").exists()
    page = write_report(evaluation, estimator, tmp_path).read_text()
    assert "clean, warm" in page


@pytest.mark.usefixtures("few_textures")
def test_warm_changes_nothing_where_no_pair_follows(
    tmp_path: Path, estimator: FlowEstimator
) -> None:
    data = render_examples("mix", seed=0, count=1, size=(48, 64))
    evaluation = evaluate(estimator, data, tmp_path, warm_start=True)
    assert [title for title, _ in evaluation.columns()] == ["final"]
    assert any("warm start makes no difference" in note for note in evaluation.notes)


def test_missing_masks_and_empty_truths_are_reported(
    tmp_path: Path, estimator: FlowEstimator
) -> None:
    root = write_sintel(tmp_path / "sintel", scenes=("alley_1", "cave_2"), frames=2)
    for mask in (root / "training/occlusions").rglob("*.png"):
        mask.unlink()
    path = root / "training/flow/cave_2/frame_0001.flo"
    flow = read_flow_arrays(path)
    write_flow(path, flow.array, np.zeros_like(flow.valid))
    evaluation = evaluate(estimator, open_examples("sintel", root), tmp_path / "out")
    lacking = "1 of 2 pairs have no valid ground truth and are not counted: clean cave_2"
    assert lacking in evaluation.notes[0]
    assert (
        "no pair has an occlusion mask, so there are no figures for noc, occ" in evaluation.notes[1]
    )
    assert not (tmp_path / "out").joinpath("results.json").read_text().count("NaN")


def test_results_need_a_folder(sintel: Path, tmp_path: Path, estimator: FlowEstimator) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a file"):
        evaluate(estimator, open_examples("sintel", sintel), tmp_path / "file")


def test_several_passes_are_also_counted_together(tmp_path: Path, estimator: FlowEstimator) -> None:
    root = write_sintel(tmp_path / "sintel", frames=2)
    data = open_examples("sintel", root, passes=("clean", "final"))
    columns = dict(evaluate(estimator, data, tmp_path / "out").columns())
    assert list(columns) == ["clean", "final", "clean + final"]
    mean = (columns["clean"]["occ"].epe + columns["final"]["occ"].epe) / 2
    assert columns["clean + final"]["occ"].epe == pytest.approx(mean)


def test_too_many_sequences_are_not_summed_up(
    tmp_path: Path, estimator: FlowEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "MOST_SCENES", 2)
    root = write_sintel(tmp_path / "sintel", scenes=("a", "b", "c", "d"), frames=2)
    evaluation = evaluate(estimator, open_examples("sintel", root), tmp_path / "out")
    assert evaluation.summary.scenes == {("clean", "cold"): {}}
    assert "more than 2 sequences" in evaluation.notes[0]
    page = write_report(evaluation, estimator, tmp_path / "out").read_text()
    assert "Sequences" not in page


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


def judge(
    estimator: FlowEstimator, folder: Path, sintel: Path, *, warm: bool = False
) -> Iterator[PairResult]:
    """Evaluate the pairs of Sintel one by one, with the results in a folder."""
    return PairEvaluator(estimator, folder).evaluate(
        open_examples("sintel", sintel).examples, warm=warm
    )


def table(results: list[PairResult]) -> np.ndarray:
    return np.stack([one.sums.table for one in results])


def test_a_pair_gets_the_errors_of_its_estimate(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator
) -> None:
    judged = list(judge(estimator, tmp_path / "out", sintel))
    sample = judged[1].example.load()
    expected = measure(estimator(sample.image1, sample.image2).array, sample)
    assert [one.example.frame for one in judged] == ["0001", "0002"]
    assert (judged[1].sums.table == expected.table).all()


def test_a_repeated_run_estimates_nothing(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator, counting: Counting
) -> None:
    first = list(judge(estimator, tmp_path, sintel, warm=True))
    # Of three pairs' worth of frames: two cold, and one warm, since the first is both.
    assert counting.calls == 3
    again = list(judge(estimator, tmp_path, sintel, warm=True))
    assert counting.calls == 3
    assert (table(first) == table(again)).all()


def test_other_weights_settings_or_files_are_judged_anew(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator, counting: Counting
) -> None:
    def run(some: FlowEstimator) -> int:
        before = counting.calls
        list(judge(some, tmp_path, sintel))
        return counting.calls - before

    assert run(estimator) == 2
    assert run(random_estimator(seed=1)) == 2
    assert run(random_estimator(iters=2)) == 2
    assert run(random_estimator(max_memory="1GB")) == 2
    assert run(random_estimator()) == 0
    truth = sintel / "training/flow/alley_1/frame_0001.flo"
    os.utime(truth, ns=(1, 1))
    assert run(estimator) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["1", "torch.float32", "cpu", "sintel"]),
        ({"padding": "kitti"}, ["1", "torch.float32", "cpu", "kitti"]),
        ({"backend": "fast"}, ["1", "torch.float32", "cpu", "sintel", "fast"]),
        (
            {"iters": "auto", "max_memory": "1.5GB", "backend": "reference", "precision": "fp16"},
            [
                *("32", "torch.float16", "cpu", "sintel"),
                *("reference", f"settled {SETTLED_THRESHOLD:g}", "within 1.5e+09 bytes"),
            ],
        ),
    ],
)
def test_stored_results_keep_their_keys(
    options: dict[str, Any], words: list[str], estimator: FlowEstimator
) -> None:
    usual: dict[str, Any] = {"iters": 1, "device": "cpu", "precision": "fp32"}
    key = identify(FlowEstimator(estimator.checkpoint, **(usual | options)))
    assert key == digest("4", fingerprint(estimator.network), *words)


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
        list(judge(some, tmp_path, root))
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
def test_an_interrupted_warm_run_resumes_with_the_same_results(
    tmp_path: Path,
    estimator: FlowEstimator,
    counting: Counting,
    monkeypatch: pytest.MonkeyPatch,
    last_flow_is_there: bool,
) -> None:
    clock = SimpleNamespace(perf_counter=lambda: float(counting.calls))
    monkeypatch.setattr(evaluating, "time", clock)
    root = write_sintel(tmp_path / "sintel", frames=5)
    whole = list(judge(estimator, tmp_path / "whole", root, warm=True))
    before = counting.calls
    stop_after(judge(estimator, tmp_path / "part", root, warm=True), 6)
    if not last_flow_is_there:
        (tmp_path / "part" / LAST_FLOW).unlink()
    rest = list(judge(estimator, tmp_path / "part", root, warm=True))
    assert (table(rest) == table(whole)).all()
    # Four cold and three warm; without the last flow, three warm ones more to get it back.
    assert counting.calls - before == 7 + (0 if last_flow_is_there else 3)
    assert {result.seconds for result in rest} == {1.0}  # each is timed alone


def test_warm_differs_from_cold_but_for_the_first(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator
) -> None:
    cold1, warm1, cold2, warm2 = judge(estimator, tmp_path, sintel, warm=True)
    assert warm1.key == cold1.key
    assert warm2.key != cold2.key
    assert warm2.epe != cold2.epe


def test_a_torn_line_costs_only_its_pair(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator, counting: Counting
) -> None:
    whole = list(judge(estimator, tmp_path, sintel))
    stored = tmp_path / RESULTS
    stored.write_bytes(stored.read_bytes()[:-40])
    again = list(judge(estimator, tmp_path, sintel))
    assert counting.calls == 3
    assert (table(again) == table(whole)).all()
    third = list(judge(estimator, tmp_path, sintel))
    assert counting.calls == 3
    assert (table(third) == table(whole)).all()


@pytest.mark.parametrize("damage", ['"iterations"', '"sums"', '"key"'])
def test_a_line_that_lacks_a_field_costs_only_its_pair(
    damage: str, sintel: Path, tmp_path: Path, estimator: FlowEstimator, counting: Counting
) -> None:
    whole = list(judge(estimator, tmp_path, sintel))
    stored = tmp_path / RESULTS
    first, *others = stored.read_text().splitlines(keepends=True)
    stored.write_text("".join([first.replace(damage, '"other"'), "7\n", *others]))
    assert (table(list(judge(estimator, tmp_path, sintel))) == table(whole)).all()
    assert counting.calls == 3


def test_a_broken_pair_loses_none_before_it(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator, counting: Counting
) -> None:
    (sintel / "training/flow/alley_1/frame_0002.flo").write_bytes(b"PIEH")
    judged = judge(estimator, tmp_path, sintel)
    next(judged)
    with pytest.raises(FlowError, match=r"frame_0002\.flo"):
        next(judged)
    next(judge(estimator, tmp_path, sintel))
    assert counting.calls == 1
