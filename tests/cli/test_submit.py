from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gmaflow.errors import FlowError
from gmaflow.evaluation import submission
from gmaflow.inference import Flow, FlowEstimator
from gmaflow.weights import load_checkpoint, save_checkpoint
from tests.cli.conftest import Run
from tests.evaluation.conftest import write_sintel


def test_an_incomplete_submission_is_reported_and_exits_with_1(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    root = write_sintel(tmp_path / "my data", split="test", frames=2)
    args = ["submit", "sintel", "--root", root, "--weights", weights["raft-small"], "--iters", "1"]
    found = run(*args, "-o", tmp_path / "out")
    assert found.code == 1
    assert "2 of 1104 files: 2 written, 0 kept" in found.out
    assert "the server wants 1104 files" in found.err
    assert f"`gmaflow data check sintel '{root}'` lists what MPI Sintel lacks" in found.err
    assert "is not ready for upload" in found.err


def test_a_complete_submission_describes_the_next_step(
    run: Run, weights: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "count_published", lambda _benchmark: 2)
    root = write_sintel(tmp_path / "data", split="test", frames=2)
    out = tmp_path / "the results"
    found = run(
        *("submit", "sintel", "--root", root, "--weights", weights["raft-small"]),
        *("--iters", "1", "-o", out),
    )
    assert found.code == 0
    assert "all files were read back" in found.out
    assert f"bundler '{out}'/clean '{out}'/final sintel.lzma" in found.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["middlebury"], "there are sintel, kitti, kitti-2012, spring"),
        (["kitti", "--root", "/nowhere/at/all"], "/nowhere/at/all is not a folder"),
    ],
)
def test_bad_input_exits_with_2(run: Run, tmp_path: Path, args: list[str], message: str) -> None:
    found = run("submit", *args, "-o", tmp_path / "out")
    assert message in found.complaint


@pytest.mark.parametrize(("named", "used"), [(None, 32), (1, 1)])
def test_the_weights_may_name_their_refinements(
    run: Run,
    weights: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: int | None,
    used: int,
) -> None:
    """Without a number on their card, as published."""
    checkpoint = load_checkpoint(weights["raft-small"])
    path = tmp_path / "w.safetensors"
    save_checkpoint(path, replace(checkpoint, card=replace(checkpoint.card, iters=named)))
    seen = []

    def submit(_benchmark: object, estimator: FlowEstimator, *_: object, **__: object) -> None:
        seen.append(estimator.iters)
        raise FlowError("seen")

    monkeypatch.setattr("gmaflow.evaluation.submit", submit)
    root = write_sintel(tmp_path / "data", split="test", frames=2)
    run("submit", "sintel", "--root", root, "--weights", path, "-o", tmp_path / "out")
    assert seen == [used]


@pytest.mark.parametrize(("card", "warm"), [(None, True), (True, True), (False, False)])
def test_the_weights_may_say_that_a_warm_start_does_not_help(
    run: Run,
    weights: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    card: bool | None,
    warm: bool,
) -> None:
    checkpoint = load_checkpoint(weights["raft-small"])
    path = tmp_path / "w.safetensors"
    save_checkpoint(path, replace(checkpoint, card=replace(checkpoint.card, warm_start=card)))
    starts = []
    estimate = FlowEstimator.__call__

    def watched(self: FlowEstimator, *images: Any, previous: Any = None) -> Flow:  # noqa: ANN401
        starts.append(previous is not None)
        return estimate(self, *images, previous=previous)

    monkeypatch.setattr(FlowEstimator, "__call__", watched)
    root = write_sintel(tmp_path / "data", split="test", frames=3)
    args = ("submit", "sintel", "--root", root, "--weights", path, "--iters", "1")
    outcome = run(*args, "-o", tmp_path / "out").err
    assert starts == 2 * [False, warm]
    assert f"1 refinement, {'with' if warm else 'without'} a warm start" in outcome
