import json
from pathlib import Path

import numpy as np
import pytest

from gmaflow.inference import FlowEstimator
from gmaflow.io import write_image
from tests.cli.conftest import Run, write_frames
from tests.evaluation.conftest import SIZE, write_sintel


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
    assert json.loads(run(*args, "--json").out) == results


def test_ignored_pixels_do_not_count(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    root = write_sintel(tmp_path / "sintel")
    write_image(tmp_path / "mask.png", np.uint8(255) * (np.indices(SIZE)[0] < 10))
    write_image(tmp_path / "small.png", np.zeros((20, 20), np.uint8))
    args = ["evaluate", "--data", "sintel", "--root", root, "-o", tmp_path / "out", "--json"]
    args += ["--weights", weights["raft-small"], "--iters", "1"]
    pixels = []
    for more in ([], ["--ignore", tmp_path / "mask.png"]):
        found = json.loads(run(*args, *more).out)
        pixels.append(found["results"]["clean"]["cold"]["regions"]["all"]["pixels"])
    assert pixels == [2 * 40 * 56, 2 * 30 * 56]
    assert "ignored: the white pixels of mask.png" in found["notes"]
    refused = run(*args, "--ignore", tmp_path / "small.png")
    assert "differ in size: 20x20 and 40x56" in refused.complaint
    plain, masked = (
        json.loads(run(*args, "--unsupervised", *more).out)["mean"]
        for more in ([], ["--ignore", tmp_path / "mask.png"])
    )
    assert plain["photometric"] != masked["photometric"]


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
        (["--data", "sintel", "--count", "2"], "--count is for rendered scenes, --data scenes"),
        (["--data", "sintel", "--count", "2"], "use --limit for fewer pairs"),
        (["--data", "sintel", "--seed", "0"], "--seed is for rendered scenes"),
        (["--data", "scenes"], "--root is for data sets of files, not for scenes"),
        (["--data", "sintel", "--limit", "0"], "0 pairs were requested; give at least 1"),
        (["--data", "sintel", "--unsupervised", "--warm-start"], "--warm-start needs ground truth"),
        (["--data", "sintel", "--unsupervised", "--size", "64x64"], "--size is for rendered"),
        (["--data", "sintel", "--passes", "dirty"], "no pass 'dirty'"),
        (["--data", "sintel", "--model", "raft"], "raft"),
    ],
)
def test_bad_input_exits_with_2(
    run: Run, weights: dict[str, Path], tmp_path: Path, args: list[str], message: str
) -> None:
    root = write_sintel(write_sintel(tmp_path / "sintel"), split="test", passes=("clean",))
    out = tmp_path / "out"
    found = run("evaluate", "--root", root, "--weights", weights["gma"], "-o", out, *args)
    assert message in found.complaint
    assert not out.exists()


@pytest.mark.parametrize("prefix", ["", "folder:"])
def test_a_folder_in_place_of_a_data_set_is_understood(
    run: Run, tmp_path: Path, prefix: str
) -> None:
    found = run("evaluate", "--data", f"{prefix}{tmp_path}", "-o", tmp_path / "out")
    assert f"did you mean --data folder --root {tmp_path}?" in found.complaint


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--size", "8x64"], "8x64 is too small; give at least 32x32"),
        (["--preset", "nothing"], "unknown preset"),
        (["--count", "0"], "0 scenes were requested; give at least 1"),
    ],
)
def test_scenes_that_cannot_be_rendered_are_refused(
    run: Run, tmp_path: Path, args: list[str], message: str
) -> None:
    found = run("evaluate", "--data", "scenes", "-o", tmp_path / "out", *args)
    assert message in found.complaint
    assert not (tmp_path / "out").exists()


def test_a_limit_judges_some_pairs_of_each_pass(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    root = write_sintel(tmp_path / "sintel")
    args = ["evaluate", "--data", "sintel", "--root", root, "--weights", weights["raft-small"]]
    args += ["--passes", "clean", "final", "--iters", "1", "--limit", "1", "-o", tmp_path / "out"]
    found = run(*args)
    assert found.code == 0
    assert "note: 2 of 4 pairs, evenly spaced in each pass" in found.out
    results = json.loads((tmp_path / "out/results.json").read_text())["results"]
    assert [results[name]["cold"]["regions"]["all"]["images"] for name in results] == [1, 1, 2]
    assert run(*args, "--unsupervised").code == 0
    # Both passes are one set there.
    assert json.loads((tmp_path / "out/unsupervised.json").read_text())["pairs"] == 1


def test_footage_of_several_folders_has_the_name_of_the_one_above(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        write_frames(tmp_path / "mine" / name, 2)
    found = run(
        *("evaluate", "--data", "folder", "--root", tmp_path / "mine", "--unsupervised"),
        *("--weights", weights["raft-small"], "--iters", "1", "-o", tmp_path / "out"),
    )
    assert found.code == 0
    assert "mine: 2 pairs" in found.out


def test_footage_without_truth(
    run: Run, weights: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_frames(tmp_path / "frames", 3)
    args = ["evaluate", "--data", "folder", "--root", tmp_path / "frames", "-o", tmp_path / "out"]
    args += ["--weights", weights["raft-small"], "--iters", "1"]
    refused = run(*args)
    assert "--unsupervised" in refused.complaint
    found = run(*args, "--unsupervised")
    assert found.code == 0
    assert "photometric" in found.out
    judged = json.loads((tmp_path / "out/unsupervised.json").read_text())
    assert judged["pairs"] == 2
    assert json.loads(run(*args, "--unsupervised", "--json").out) == judged
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
