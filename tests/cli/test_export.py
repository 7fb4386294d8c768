import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.full_disk import largest_file

QUICK = ("--size", "40x56", "--iters", "1")


def test_replacing_a_file_and_json(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "flow.pt2"
    output.write_bytes(b"precious")
    args = ("export", "-o", output, "--weights", weights["raft-small"], *QUICK, "--json")
    kept = run(*args)
    assert (kept.code, output.read_bytes()) == (2, b"precious")
    assert f"{output} exists; add --overwrite to replace it" in kept.err

    replaced = run(*args, "--overwrite")
    assert replaced.code == 0
    result = json.loads(replaced.out)
    assert result["file"] == str(output)
    assert result["bytes"] == output.stat().st_size > 1e6
    assert result["inputs"][1]["shape"] == [1, 3, 40, 56]
    assert 0 <= result["differences"][0]["mean"] < 1e-3


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        ("flow.pt", (), "unknown format; give a name that ends in .onnx or .pt2"),
        ("flow", (), "unknown format"),
        ("flow.pt2", ("--size", "wide"), "'wide' is not a size; give height x width"),
        ("flow.pt2", ("--size", "8x8"), "8x8 is too small; give at least 16x16"),
        ("flow.pt2", ("--size", "9000x9000"), "give a smaller --size or --batch"),
        ("flow.pt2", ("--iters", "0"), "iters is 0; give at least 1"),
        ("flow.pt2", ("--weights", "nowhere.pth"), "nowhere.pth does not exist"),
        ("flow.pt2", ("--weights", "gma", "--model", "raft"), "the file holds gma, but raft"),
        ("flow.pt2", ("--size", "64x64", "--dynamic"), "give --size or --dynamic"),
    ],
)
def test_bad_input_is_a_sentence(
    name: str, args: tuple[str, ...], sentence: str, run: Run, tmp_path: Path
) -> None:
    done = run("export", "-o", tmp_path / name, *args)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert all(line.startswith("gmaflow: ") for line in done.err.splitlines())
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_is_a_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    done = run("export", "-o", tmp_path / "file" / "flow.pt2", *QUICK)
    assert "flow.pt2 cannot be written: " in done.complaint


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra_the_error_explains_how_to_get_it(
    missing: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    done = run("export", "-o", tmp_path / "flow.onnx", *QUICK)
    assert f"needs {missing}: pip install 'gmaflow[export]'" in done.complaint


def test_a_full_disk_is_a_sentence(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "flow.pt2"
    with largest_file(100_000):
        done = run("export", "-o", output, "--weights", weights["raft-small"], *QUICK)
    assert f"{output} cannot be written: file too large" in done.complaint
    assert not list(tmp_path.iterdir())
