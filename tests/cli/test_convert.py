"""Flow files as pictures, or in another format."""

import json
from pathlib import Path

import numpy as np
import pytest

from gmaflow.cli.outputs import HEADROOM
from gmaflow.io import open_clip, read_flow_arrays, read_image, write_flow
from gmaflow.viz import flow_to_image
from tests.cli.conftest import Run


def make_flow(*, longest: float = 8.0) -> np.ndarray:
    """Return motion to the right and down, in steps that every format holds exactly."""
    rows = np.linspace(0, longest, 24 * 32, dtype=np.float32).reshape(24, 32)
    return np.round(np.stack([rows, rows / 2], axis=2) * 64) / 64


@pytest.mark.parametrize(
    "name", ["a.pfm", "a.npy", "a.npz", "a.flo5", "a.exr", "a.kitti.png", "a.f16.npz"]
)
def test_numbers_stay_what_they_are(run: Run, tmp_path: Path, name: str) -> None:
    flow, valid = make_flow(), np.ones((24, 32), bool)
    valid[3:5] = False
    write_flow(tmp_path / "a.flo", flow, valid)
    assert run("convert", tmp_path / "a.flo", "-o", tmp_path / name).code == 0
    assert run("convert", tmp_path / name, "-o", tmp_path / "back.flo").code == 0
    back = read_flow_arrays(tmp_path / "back.flo")
    np.testing.assert_array_equal(back.valid, valid)
    np.testing.assert_array_equal(back.array[valid], flow[valid])


def test_8_bits_keep_what_lies_within_the_bound(run: Run, tmp_path: Path) -> None:
    write_flow(tmp_path / "a.flo", make_flow())
    x, y = tmp_path / "flow_x.jpg", tmp_path / "flow_y.jpg"
    assert run("convert", tmp_path / "a.flo", "-o", x, "--bound", "9").code == 0
    assert run("convert", y, "-o", tmp_path / "back.npy").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "back.npy"), make_flow(), atol=4 * 18 / 255)
    outcome = run("convert", tmp_path / "a.flo", "-o", x)
    assert "flow_x.jpg exists" in outcome.complaint
    x.unlink()
    outcome = run("convert", tmp_path / "a.flo", "-o", x)
    assert "flow_y.jpg exists" in outcome.complaint
    outcome = run("convert", tmp_path / "a.flo", "-o", x, "-f", "--bound", "-1")
    assert "a bound of -1.0 pixels is out of range" in outcome.complaint


def test_a_folder_becomes_a_clip_and_a_clip_a_folder(run: Run, tmp_path: Path) -> None:
    for number in (3, 4, 12):
        write_flow(tmp_path / "in" / f"frame{number}.flo", make_flow(longest=number))
    write_flow(tmp_path / "in" / "frame4-backward.flo", make_flow())
    steps = (
        ("in", "a.h5", ()),
        ("a.h5", "jpegs", ("--format", "xy", "--bound", "13")),
        ("jpegs", "b.tar", ("--bound", "13")),
        ("b.tar", "b.h5", ()),
        ("b.h5", "back", ("--format", "npz16")),
    )
    for source, target, options in steps:
        outcome = run("convert", tmp_path / source, "-o", tmp_path / target, *options)
        assert outcome.code == 0, outcome.err
        assert f"wrote 3 {'files' if Path(target).suffix == '' else 'flows'} to" in outcome.out
        clip = open_clip(tmp_path / target)
        assert clip.frames == (3, 4, 12)
        for frame, flow in zip(clip.frames, clip, strict=True):
            np.testing.assert_allclose(flow.array, make_flow(longest=frame), atol=1.0)
    outcome = run("convert", tmp_path / "a.h5", "-o", tmp_path / "pictures", "--json")
    report = json.loads(outcome.out)
    assert report["converted"] == 3
    assert report["max_length"] > 12
    assert read_image(tmp_path / "pictures" / "000012.png").shape == (24, 32, 3)


def test_flow_that_does_not_fit_a_clip_is_left_out_and_reported(run: Run, tmp_path: Path) -> None:
    for number in range(3):
        write_flow(tmp_path / "in" / f"{number}.flo", make_flow()[: 24 - 8 * (number == 1)])
    (tmp_path / "in" / "3.flo").write_bytes(b"PIEH")
    outcome = run("convert", tmp_path / "in", "-o", tmp_path / "a.h5")
    assert outcome.code == 1
    assert "a clip has one size" in outcome.err
    assert "not a Middlebury .flo file" in outcome.err
    assert open_clip(tmp_path / "a.h5").frames == (0, 2)


def test_clips_that_cannot_be_are_refused(run: Run, tmp_path: Path) -> None:
    write_flow(tmp_path / "in" / "1.flo", make_flow())
    assert run("convert", tmp_path / "in", "-o", tmp_path / "a.h5").code == 0
    for source, target, options, message in (
        ("in/1.flo", "b.h5", (), "is one flow file; give a folder of flow files"),
        ("a.h5", "b.flo", (), "a.h5 is a clip; give a folder to write to"),
        ("in", "b.h5", ("--format", "xy"), "the suffix picks the format"),
        ("in", "b.h5", ("--legend",), "are for pictures, and b.h5 is a flow file"),
        ("in", "a.h5", (), "a.h5 exists; add --overwrite"),
        ("a.h5", "a.h5", ("-f",), "a.h5 is an input"),
        ("gone.tar", "b", (), "gone.tar does not exist; give a clip"),
    ):
        outcome = run("convert", tmp_path / source, "-o", tmp_path / target, *options)
        assert message in outcome.complaint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "in"]


def test_backward_flow_stays_backward(run: Run, tmp_path: Path) -> None:
    write_flow(tmp_path / "a.exr", make_flow(), backward=True)
    assert run("convert", tmp_path / "a.exr", "-o", tmp_path / "b.exr").code == 0
    assert read_flow_arrays(tmp_path / "b.exr").backward


def test_a_picture_matches_the_library(run: Run, tmp_path: Path) -> None:
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


def test_a_folder_has_one_scale_and_reports_skipped_files(run: Run, tmp_path: Path) -> None:
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


def test_a_folder_of_kitti_files_is_read_as_flow(run: Run, tmp_path: Path) -> None:
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
    for args, message in {
        (folder, "-o", f"{tmp_path}/out/"): "a.flo and a.pfm would both become a.png",
        (folder, "-o", f"{tmp_path}/a.png"): "is a folder; give a folder to write to",
        (source, "-o", source, "--overwrite"): "is an input",
        (source, "-o", twin): "exists; add --overwrite",
        (source, "-o", tmp_path / "b.npz", "--legend"): "b.npz is a flow file",
        (source, "-o", tmp_path / "b.npz", "--format", "npz"): "the suffix picks the format",
        (source, "-o", tmp_path / "b.doc"): ".doc is not a flow format",
        (source, "-o", tmp_path / "b.png", "--max-length", "0"): "give a number above 0",
        (tmp_path / "gone.flo", "-o", tmp_path / "b.png"): "does not exist",
        (tmp_path, "-o", f"{tmp_path}/out/"): "holds no flow",
    }.items():
        outcome = run("convert", *args)
        assert message in outcome.complaint
        assert "\n" not in outcome.err.strip()
    assert source.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_flow_that_a_format_cannot_hold_is_reported(run: Run, tmp_path: Path) -> None:
    write_flow(tmp_path / "a.flo", make_flow(longest=700.0))
    outcome = run("convert", tmp_path / "a.flo", "-o", tmp_path / "a.kitti.png")
    assert "does not fit KITTI's format" in outcome.complaint
    assert not (tmp_path / "a.kitti.png").exists()
