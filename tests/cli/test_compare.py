import json
import shutil
from pathlib import Path

import pytest

from gmaflow.cli.compare import unique_names
from tests.cli.conftest import Run
from tests.evaluation.conftest import write_sintel


def test_a_table_and_a_page(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    root = write_sintel(tmp_path / "sintel")
    out = tmp_path / "out"
    args = ["compare", weights["raft-small"], weights["gma"], "--data", "sintel", "--root", root]
    args += ["--iters", "1", "-o", out]
    found = run(*args)
    assert found.code == 0
    for shown in ("raft-small", "gma", "improvement", "95 % interval", "occ-in"):
        assert shown in found.out
    assert "clean has 2 pairs; intervals from so few" in found.out
    assert "*" not in found.out  # nor what a star would mean
    assert "clean has 2 pairs" in (out / "comparison.html").read_text()
    assert (out / "gma/results.csv").exists()
    assert run(*args, "--json").out == (out / "comparison.json").read_text()


def test_wide_tables_are_whole_in_a_file(
    run: Run, weights: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    root = write_sintel(tmp_path / "sintel")
    files = [weights["raft-small"], *3 * [weights["gma"]]]
    args = ["--data", "sintel", "--root", root, "--iters", "1", "-o", tmp_path / "out"]
    found = run("compare", *files, *args)
    assert found.out.count("95 % interval") == 3
    assert "…" not in found.out


@pytest.mark.usefixtures("few_textures")
def test_hidden_pixels_by_depth(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    found = run(
        *("compare", weights["raft-small"], weights["gma"], "--data", "scenes", "--count", "2"),
        *("--size", "48x64", "--by", "depth", "--iters", "1", "-o", tmp_path / "out"),
    )
    assert found.code == 0
    for shown in ("noc", "occ-out", "occ<1"):
        assert shown in found.out
    assert "s40+" not in found.out
    lines = json.loads((tmp_path / "out/comparison.json").read_text())["lines"]
    by_region = {line["region"]: line for line in lines}
    assert {"low", "high"} < set(by_region["occ<1"]["improvement_percent"]["gma"])
    assert "s0-10" in by_region


def test_the_folder_of_a_run_stands_for_its_weights(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(weights["raft-small"], folder / "weights.safetensors")
    found = run(
        *("compare", weights["raft-small"], folder, "--data", "scenes", "--count", "1"),
        *("--size", "48x64", "--iters", "1", "-o", tmp_path / "out"),
    )
    assert found.code == 0
    lines = json.loads((tmp_path / "out/comparison.json").read_text())["lines"]
    assert lines[0]["epe"].keys() == {weights["raft-small"].stem, "run"}
    assert all(len(set(line["epe"].values())) == 1 for line in lines)


def test_files_with_the_same_name_are_distinguished() -> None:
    assert unique_names(("a/gma.pth", "b/gma.pth", "c.pth")) == ["gma", "gma-2", "c"]


def test_runs_are_called_by_the_whole_name_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lr2.5e-4", "lr2.0e-4"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "lr2.0e-4")
    assert unique_names(("../lr2.5e-4", ".")) == ["lr2.5e-4", "lr2.0e-4"]


@pytest.mark.parametrize(
    ("files", "more", "message"),
    [
        (["raft-small"], [], "give the weights of two or more"),
        (["raft-small", "gma"], ["--models", "gma"], "got 1 models for 2 files"),
        (["raft-small", "gma"], ["--split", "test"], "gmaflow submit"),
        (["raft-small", "gma"], ["--show", "-1"], "--show is -1; give 0 or more"),
    ],
)
def test_bad_input_exits_with_2(
    run: Run,
    weights: dict[str, Path],
    tmp_path: Path,
    *,
    files: list[str],
    more: list[str],
    message: str,
) -> None:
    root = write_sintel(tmp_path / "sintel", split="test")
    names = [weights[name] for name in files]
    found = run(
        "compare", *names, "--data", "sintel", "--root", root, "-o", tmp_path / "out", *more
    )
    assert message in found.complaint


def test_unknown_pairs_are_refused_before_the_work(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    root = write_sintel(tmp_path / "sintel")
    files = [weights[name] for name in ("raft-small", "gma")]
    out = ["-o", tmp_path / "out", "--pairs", "clean/nowhere/0001"]
    found = run("compare", *files, "--data", "sintel", "--root", root, *out)
    assert "no pair 'clean/nowhere/0001'; give names such as" in found.complaint
    assert not (tmp_path / "out").exists()
