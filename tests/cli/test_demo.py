import json
from pathlib import Path

import numpy as np
import pytest

from gmaflow.example import load_example
from gmaflow.io import read_flow, read_image
from gmaflow.weights import shipped
from tests.cli.conftest import Run


def test_without_weights_it_shows_the_truth_and_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "SHIPPED_FOLDER", tmp_path / "none")
    outcome = run("demo", "-o", tmp_path / "out")
    assert outcome.code == 0
    assert "no trained weights ship yet" in outcome.err
    assert outcome.out == f"wrote {tmp_path / 'out' / 'demo.png'}\n"
    example = load_example()
    assert np.array_equal(read_flow(tmp_path / "out" / "truth.flo").array, example.flow.array)
    assert np.array_equal(read_image(tmp_path / "out" / "frame2.png"), example.image2)


def test_with_weights_it_compares(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    call = ["demo", "-o", tmp_path / "out", "--weights", weights["raft-small"], "--iters", "1"]
    report = json.loads(run(*call, "--json").out)
    assert report["mean_error"] > 0
    shown = run(*call, "--overwrite")
    assert f"the estimate is {report['mean_error']:.2f} px off the truth" in shown.out
    assert read_image(tmp_path / "out" / "demo.png").std() > 0


def test_what_is_there_is_kept(run: Run, tmp_path: Path) -> None:
    (tmp_path / "demo.png").write_text("precious")
    outcome = run("demo", "-o", tmp_path)
    assert outcome.code == 2
    assert "exists; add --overwrite" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["demo.png"]
    outcome = run("demo", "-o", tmp_path / "demo.png")
    assert (outcome.code, "needs a folder" in outcome.err) == (2, True)
