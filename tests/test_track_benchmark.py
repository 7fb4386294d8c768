"""benchmarks/tracks.py continues files of earlier versions."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "tracks.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="needs the benchmarks")
def test_clips_that_lack_a_method_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("tracks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    output = tmp_path / "scores.json"

    def measure(*options: str) -> None:
        small = ["--size", "64x96", "--frames", "3", "--weights", "raft", "--device", "cpu"]
        argv = [str(SCRIPT), *small, "--output", str(output), *options]
        monkeypatch.setattr(sys, "argv", argv)
        script.main()

    measure("--first", "1", "--clips", "1")
    done = json.loads(output.read_text())
    methods = set(done["1"]["scores"])
    del done["1"]["scores"]["direct, one flow"]
    output.write_text(json.dumps(done))
    measure("--clips", "2")
    found = json.loads(output.read_text())
    assert set(found["0"]["scores"]) == set(found["1"]["scores"]) == methods == script.METHODS
    assert "2 clips" in capsys.readouterr().out
    measure("--clips", "1", "--limits")
    measure("--clips", "2")
    assert any("limit" in name for name in json.loads(output.read_text())["0"]["scores"])
