import csv
import json
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import OutputError
from gmaflow.evaluation import (
    evaluate,
    evaluating,
    open_examples,
    render_examples,
    write_report,
)
from gmaflow.inference import FlowEstimator
from gmaflow.io import read_flow_arrays, write_flow
from tests.evaluation.conftest import write_sintel


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
        sample = example.source.load()
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


def test_warm_stands_beside_cold_where_there_are_sequences(
    sintel: Path, tmp_path: Path, estimator: FlowEstimator
) -> None:
    evaluation = evaluate(estimator, open_examples("sintel", sintel), tmp_path, warm_start=True)
    assert [title for title, _ in evaluation.columns()] == ["clean, cold", "clean, warm"]
    assert not (tmp_path / "last-flow.safetensors").exists()
    page = write_report(evaluation, estimator, tmp_path).read_text()
    assert "clean, warm" in page
    assert "Compared with the paper" in page
    assert 2 * '<td class="number">1.30</td>' in page


@pytest.mark.usefixtures("few_textures")
def test_warm_changes_nothing_where_no_pair_follows(
    tmp_path: Path, estimator: FlowEstimator
) -> None:
    data = render_examples("mix", seed=0, count=1, size=(48, 64))
    evaluation = evaluate(estimator, data, tmp_path, warm_start=True)
    assert [title for title, _ in evaluation.columns()] == ["final"]
    assert any("warm start makes no difference" in note for note in evaluation.notes)


def test_missing_masks_and_empty_truths_are_told(tmp_path: Path, estimator: FlowEstimator) -> None:
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


def test_of_too_many_sequences_none_is_summed_up(
    tmp_path: Path, estimator: FlowEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "MOST_SCENES", 2)
    root = write_sintel(tmp_path / "sintel", scenes=("a", "b", "c", "d"), frames=2)
    evaluation = evaluate(estimator, open_examples("sintel", root), tmp_path / "out")
    assert evaluation.summary.scenes == {("clean", "cold"): {}}
    assert "more than 2 sequences" in evaluation.notes[0]
    page = write_report(evaluation, estimator, tmp_path / "out").read_text()
    assert "Sequences" not in page
