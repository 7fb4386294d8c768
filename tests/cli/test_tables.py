import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.usefixtures("few_textures")
def test_tables_of_a_run_and_a_file(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    folder, out = tmp_path / "first", tmp_path / "out"
    folder.mkdir()
    shutil.copy(weights["gma"], folder / "weights.safetensors")
    args = ["tables", folder, weights["raft-small"], "--scenes", "1", "--size", "48x64"]
    found = run(*args, "--iters", "1", "-o", out)
    assert found.code == 0
    assert "Table 3: Ablations" in found.out
    assert "raft-small is raft-small, which has no row in either table" in found.out.replace(
        "\n", " "
    )
    result = json.loads((out / "tables.json").read_text())
    mine = [row for row in result["tables"][0]["rows"] if row["source"] == "first"]
    measured = json.loads((out / "first/scenes/results.json").read_text())["results"]
    assert mine[0]["label"] == "GMA"
    assert mine[0]["figures"]["Scenes final"] == pytest.approx(
        measured["final"]["cold"]["regions"]["all"]["epe"]
    )
    for name in ("tables.md", "tables.tex"):
        assert "first" in (out / name).read_text()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "none of the tables' data sets was found"),
        (["--models", "gma", "raft"], "got 2 models for 1 files"),
        (["--sintel", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_exits_with_2(
    run: Run, weights: dict[str, Path], tmp_path: Path, more: list[str], message: str
) -> None:
    found = run("tables", weights["gma"], "-o", tmp_path / "out", *more)
    assert message in found.complaint
    assert not (tmp_path / "out").exists()


def test_no_run_is_refused(run: Run, tmp_path: Path) -> None:
    found = run("tables", "-o", tmp_path / "out")
    assert "got no runs; give folders" in found.complaint


def test_a_folder_without_weights_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = run("tables", tmp_path / "empty", "-o", tmp_path / "out")
    assert "contains no trained weights" in found.complaint
