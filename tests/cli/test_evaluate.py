import json
from pathlib import Path

import pytest

from gmaflow.inference import FlowEstimator
from tests.cli.conftest import Run, write_frames
from tests.evaluation.conftest import write_sintel


def test_a_table_and_three_files(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    root = write_sintel(tmp_path / "sintel")
    output = tmp_path / "out"
    args = ["evaluate", "--data", "sintel", "--root", root, "--passes", "clean", "final"]
    args += ["--weights", weights["raft-small"], "--iters", "1", "-o", output, "--warm-start"]
    found = run(*args)
    assert found.code == 0
    for shown in (
        "MPI Sintel training: raft-small",
        "clean, cold",
        "final, warm",
        "occ-in",
        "s40+",
    ):
        assert shown in found.out
    assert f"wrote {output / 'report.html'}" in found.out.replace("\n", "")
    results = json.loads((output / "results.json").read_text())
    assert set(results["results"]) == {"clean", "final", "clean + final"}
    assert (output / "results.csv").read_text().count("\n") == 9
    assert (output / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert run(*args).out == found.out


@pytest.mark.usefixtures("few_textures")
def test_rendered_scenes(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    found = run(
        *("evaluate", "--data", "scenes", "--count", "2", "--size", "48x64", "--seed", "5"),
        *("--weights", weights["gma"], "--iters", "1", "-o", tmp_path),
    )
    assert found.code == 0
    assert "rendered scenes: mix, seed 5, 48 x 64" in found.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--data", "sintel", "--split", "test"], "gmaflow submit"),
        (["--data", "sintl"], "did you mean sintel"),
        (["--data", "nope"], ", folder, scenes"),
        (["--data", "scenes", "--size", "8x64"], "8x64 is too small; give at least 32x32"),
        (["--data", "sintel", "--passes", "dirty"], "no pass 'dirty'"),
        (["--data", "scenes", "--preset", "nothing"], "no preset"),
        (["--data", "sintel", "--model", "raft"], "raft"),
    ],
)
def test_bad_input_exits_with_2(
    run: Run, weights: dict[str, Path], tmp_path: Path, args: list[str], message: str
) -> None:
    root = write_sintel(write_sintel(tmp_path / "sintel"), split="test", passes=("clean",))
    out = tmp_path / "out"
    found = run("evaluate", "--root", root, "--weights", weights["gma"], "-o", out, *args)
    assert found.code == 2
    assert message in found.err
    assert not out.exists()


def test_footage_without_truth(
    run: Run, weights: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_frames(tmp_path / "frames", 3)
    args = ["evaluate", "--data", "folder", "--root", tmp_path / "frames", "-o", tmp_path / "out"]
    args += ["--weights", weights["raft-small"], "--iters", "1"]
    refused = run(*args)
    assert refused.code == 2
    assert "--unsupervised" in refused.err
    found = run(*args, "--unsupervised")
    assert found.code == 0
    assert "photometric" in found.out
    judged = json.loads((tmp_path / "out/unsupervised.json").read_text())
    assert judged["pairs"] == 2
    assert judged["mean"]["photometric"] > 0
    assert (tmp_path / "out/unsupervised.csv").read_text().count("\n") == 3
    page = (tmp_path / "out/unsupervised.html").read_text()
    assert page.count("<article>") == 2

    def refuse(*_args: object, **_more: object) -> object:
        raise AssertionError("it was estimated again")

    # What was judged is kept, and so is the flow that the page shows.
    monkeypatch.setattr(FlowEstimator, "batch", refuse)
    assert run(*args, "--unsupervised").out == found.out
    assert (tmp_path / "out/unsupervised.html").read_text() == page


def test_scenes_need_no_judgement_without_truth(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    args = ["--data", "scenes", "--unsupervised", "--weights", weights["raft-small"]]
    assert run("evaluate", *args, "-o", tmp_path / "out").code == 2
