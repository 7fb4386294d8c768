import json
from pathlib import Path

import numpy as np

from gmaflow.example import load_example
from gmaflow.io import read_flow_arrays, read_image
from tests.cli.conftest import Run


def test_it_works_at_once(run: Run, tmp_path: Path) -> None:
    outcome = run("demo", "-o", tmp_path / "out", "--iters", "4")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(
        f"wrote {tmp_path / 'out' / 'demo.png'}: the mean error of the estimate is "
    )
    example = load_example()
    assert np.array_equal(
        read_flow_arrays(tmp_path / "out" / "truth.flo").array, example.flow.array
    )
    assert np.array_equal(read_image(tmp_path / "out" / "frame2.png"), example.image2)


def test_with_weights_it_compares(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    call = ["demo", "-o", tmp_path / "out", "--weights", weights["raft-small"], "--iters", "1"]
    report = json.loads(run(*call, "--json").out)
    assert report["mean_error"] > 0
    shown = run(*call, "--overwrite")
    assert f"the mean error of the estimate is {report['mean_error']:.2f} px" in shown.out
    assert read_image(tmp_path / "out" / "demo.png").std() > 0


def test_existing_files_are_kept(run: Run, tmp_path: Path) -> None:
    (tmp_path / "demo.png").write_text("precious")
    outcome = run("demo", "-o", tmp_path)
    assert "exists; add --overwrite" in outcome.complaint
    assert [path.name for path in tmp_path.iterdir()] == ["demo.png"]
    outcome = run("demo", "-o", tmp_path / "demo.png")
    assert "is a file" in outcome.complaint
