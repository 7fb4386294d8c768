"""Flow files as pictures, or in another format."""

import json
from pathlib import Path

import numpy as np
import pytest

from gmaflow.cli.scale import HEADROOM
from gmaflow.io import read_flow_arrays, read_image, write_flow
from gmaflow.viz import flow_to_image
from tests.cli.conftest import Run


def make_flow(*, longest: float = 8.0) -> np.ndarray:
    """Return motion to the right and down, in steps that every format holds exactly."""
    rows = np.linspace(0, longest, 24 * 32, dtype=np.float32).reshape(24, 32)
    return np.round(np.stack([rows, rows / 2], axis=2) * 64) / 64


@pytest.mark.parametrize("name", ["a.pfm", "a.npy", "a.npz", "a.flo5", "a.exr", "a.kitti.png"])
def test_numbers_stay_what_they_are(run: Run, tmp_path: Path, name: str) -> None:
    flow, valid = make_flow(), np.ones((24, 32), bool)
    valid[3:5] = False
    write_flow(tmp_path / "a.flo", flow, valid)
    assert run("convert", tmp_path / "a.flo", "-o", tmp_path / name).code == 0
    assert run("convert", tmp_path / name, "-o", tmp_path / "back.flo").code == 0
    back = read_flow_arrays(tmp_path / "back.flo")
    np.testing.assert_array_equal(back.valid, valid)
    np.testing.assert_array_equal(back.array[valid], flow[valid])


def test_backward_flow_stays_backward(run: Run, tmp_path: Path) -> None:
    write_flow(tmp_path / "a.exr", make_flow(), backward=True)
    assert run("convert", tmp_path / "a.exr", "-o", tmp_path / "b.exr").code == 0
    assert read_flow_arrays(tmp_path / "b.exr").backward


def test_a_picture_is_that_of_the_library(run: Run, tmp_path: Path) -> None:
    write_flow(tmp_path / "a.flo", make_flow())
    source, drawn, marked = (tmp_path / name for name in ("a.flo", "a.png", "b.png"))
    assert run("convert", source, "-o", drawn, "--max-length", "20").code == 0
    picture = read_image(drawn)
    np.testing.assert_array_equal(picture, flow_to_image(make_flow(), max_length=20.0))
    large = np.repeat(np.repeat(make_flow(), 10, axis=0), 10, axis=1)
    write_flow(source, large)
    assert run("convert", source, "-o", marked, "--legend").code == 0
    changed = (read_image(marked) != flow_to_image(large)).any(axis=2)
    assert changed[-60:, -60:].any()
    assert not changed[:60, :60].any()


def test_a_folder_has_one_scale_and_tells_what_is_left_out(run: Run, tmp_path: Path) -> None:
    folder, out = tmp_path / "flows", tmp_path / "out"
    for number, longest in enumerate((2.0, 40.0), 1):
        write_flow(folder / f"flow{number}.flo", make_flow(longest=longest))
    write_flow(folder / "flow3.kitti.png", make_flow())
    (folder / "broken.flo").write_text("no flow")
    (folder / "flow1.png").write_text("a picture, which is no input here")
    outcome = run("convert", folder, "-o", out, "--json")
    report = json.loads(outcome.out)
    assert (outcome.code, report["converted"], len(report["skipped"])) == (1, 3, 1)
    assert sorted(path.name for path in out.iterdir()) == ["flow1.png", "flow2.png", "flow3.png"]
    lengths = np.linalg.norm(make_flow(longest=40.0), axis=2)
    assert report["max_length"] == pytest.approx(HEADROOM * np.quantile(lengths, 0.99), rel=1e-4)
    expected = flow_to_image(make_flow(longest=2.0), max_length=report["max_length"])
    np.testing.assert_array_equal(read_image(out / "flow1.png"), expected)


def test_a_folder_of_kitti_files_is_taken_for_flow(run: Run, tmp_path: Path) -> None:
    write_flow(tmp_path / "in" / "000000_10.png", make_flow())
    outcome = run("convert", tmp_path / "in", "-o", f"{tmp_path}/out/", "--format", "npy")
    assert (outcome.code, outcome.err) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "000000_10.npy"), make_flow())


def test_what_cannot_be_meant_is_refused_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    source, twin = folder / "a.flo", folder / "a.pfm"
    write_flow(source, make_flow())
    write_flow(twin, make_flow())
    before = source.read_bytes()
    for args, told in {
        (folder, "-o", f"{tmp_path}/out/"): "a.flo and a.pfm would both become a.png",
        (folder, "-o", f"{tmp_path}/a.png"): "is a folder; give a folder to write to",
        (source, "-o", source, "--overwrite"): "is an input",
        (source, "-o", twin): "exists; add --overwrite",
        (source, "-o", tmp_path / "b.npz", "--legend"): "b.npz is a flow file",
        (source, "-o", tmp_path / "b.npz", "--format", "npz"): "the suffix picks the format",
        (source, "-o", tmp_path / "b.doc"): ".doc is not a flow format",
        (source, "-o", tmp_path / "b.png", "--max-length", "0"): "is not a length",
        (tmp_path / "gone.flo", "-o", tmp_path / "b.png"): "does not exist",
        (tmp_path, "-o", f"{tmp_path}/out/"): "holds no flow",
    }.items():
        outcome = run("convert", *args)
        assert outcome.code == 2
        assert told in outcome.err
        assert "\n" not in outcome.err.strip()
    assert source.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_what_a_format_cannot_hold_is_told(run: Run, tmp_path: Path) -> None:
    write_flow(tmp_path / "a.flo", make_flow(longest=700.0))
    outcome = run("convert", tmp_path / "a.flo", "-o", tmp_path / "a.kitti.png")
    assert (outcome.code, "does not fit KITTI's format" in outcome.err) == (2, True)
    assert not (tmp_path / "a.kitti.png").exists()
