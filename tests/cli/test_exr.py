"""Frames and flow as OpenEXR, through the command line."""

import sys
from pathlib import Path

import numpy as np
import OpenEXR
import pytest

from gmaflow.inference import FlowEstimator
from gmaflow.io import read_flow_arrays, read_image
from tests.cli.conftest import Run, write_frames
from tests.io.exrs import linear, write


@pytest.fixture
def frames(tmp_path: Path) -> list[Path]:
    """Three frames as PNG; in `linear` the same ones as OpenEXR."""
    (tmp_path / "linear").mkdir()
    pictures = write_frames(tmp_path / "png", 3)
    for path in pictures:
        write(tmp_path / "linear" / f"{path.stem}.exr", linear(read_image(path)))
    return pictures


def linear_frames(frames: list[Path]) -> list[Path]:
    return [path.parent.parent / "linear" / f"{path.stem}.exr" for path in frames]


def test_the_flow_of_frames_is_that_of_the_same_pictures(
    run: Run, frames: list[Path], fast: list[str], tmp_path: Path
) -> None:
    assert run("flow", *frames[:2], "-o", tmp_path / "png.exr", *fast).code == 0
    outcome = run("flow", *linear_frames(frames)[:2], "-o", tmp_path / "exr.exr", *fast)
    assert (outcome.code, outcome.err) == (0, "")
    of_png, of_exr = read_flow_arrays(tmp_path / "png.exr"), read_flow_arrays(tmp_path / "exr.exr")
    assert np.abs(of_png.array).max() > 0
    np.testing.assert_array_equal(of_png.array, of_exr.array)


def test_flow_in_it_is_a_truth(
    run: Run, frames: list[Path], fast: list[str], tmp_path: Path
) -> None:
    truth = tmp_path / "truth.exr"
    assert run("flow", *frames[:2], "-o", truth, *fast).code == 0
    outcome = run("flow", *frames[:2], "-o", tmp_path / "a.flo", "--truth", truth, *fast)
    assert "mean error 0.00 px" in outcome.out


def test_a_folder_of_frames_is_a_video_and_gets_a_file_for_each(
    run: Run, frames: list[Path], fast: list[str], tmp_path: Path
) -> None:
    folder = linear_frames(frames)[0].parent
    call = ("video", folder, "-o", tmp_path / "out", "--format", "exr", "--no-cuts", *fast)
    outcome = run(*call)
    assert (outcome.code, sorted(path.name for path in (tmp_path / "out").glob("*.exr"))) == (
        0,
        ["000000.exr", "000001.exr"],
    ), outcome.err
    assert read_flow_arrays(tmp_path / "out" / "000001.exr").valid.all()


@pytest.mark.parametrize("verb", ["pair", "flow", "video"])
def test_backward_flow_is_called_by_its_own_frame_and_so_are_its_channels(
    verb: str, run: Run, frames: list[Path], fast: list[str], tmp_path: Path
) -> None:
    folder, out = frames[0].parent, tmp_path / "out"
    call, first, second = {
        "pair": (("flow", *frames[:2], "-o", out / "a.exr"), "a", "a"),
        "flow": (("flow", folder, "-o", out, "--format", "exr"), "frame0", "frame1"),
        "video": (
            ("video", folder, "-o", out, "--format", "exr", "--no-cuts"),
            "000000",
            "000001",
        ),
    }[verb]
    assert run(*call, "--backward", *fast).code == 0
    both = FlowEstimator(fast[1], iters=1, device="cpu").bidirectional(*frames[:2])
    for name, flow, layer in (
        (f"{first}.exr", both.forward, "forward"),
        (f"{second}-backward.exr", both.backward, "backward"),
    ):
        found = read_flow_arrays(out / name)
        np.testing.assert_allclose(found.array, flow.array, atol=1e-4)
        assert found.backward == flow.backward == (layer == "backward")
        channels = OpenEXR.File(str(out / name), separate_channels=True).channels()
        assert set(channels) == {f"{layer}.u", f"{layer}.v", "valid.a"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: b"", "is empty"),
        (lambda raw: raw[:100], "cannot be read (it is truncated)"),
        (lambda raw: raw[:-1], "cannot be read (it is truncated)"),
        (
            lambda raw: raw.replace(
                np.array([0, 0, 55, 39], "<i4").tobytes(),
                np.array([0, 0, 99_999_999, 39], "<i4").tobytes(),
            ),
            "more pixels than is safe",
        ),
    ],
)
def test_damaged_frames_are_one_sentence(
    damage: object, message: str, run: Run, frames: list[Path], fast: list[str], tmp_path: Path
) -> None:
    first, second = linear_frames(frames)[:2]
    assert callable(damage)
    second.write_bytes(damage(second.read_bytes()))
    outcome = run("flow", first, second, "-o", tmp_path / "a.exr", *fast)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"gmaflow: {second} ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "a.exr").exists()


def test_without_the_package_both_ways_say_what_to_install(
    run: Run, frames: list[Path], fast: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    for inputs, name, doing in (
        (linear_frames(frames), "a.flo", "reading"),
        (frames, "a.exr", "writing"),
    ):
        outcome = run("flow", *inputs[:2], "-o", tmp_path / name, *fast)
        assert f"{doing} .exr needs OpenEXR: pip install 'gmaflow[exr]'" in outcome.complaint
        assert not (tmp_path / name).exists()


def test_a_format_that_cannot_be_written_is_refused_before_the_work(
    run: Run, frames: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    monkeypatch.setitem(sys.modules, "h5py", None)
    no_weights = ("--weights", tmp_path / "none.safetensors")  # fails if the work is begun
    folder, out = frames[0].parent, tmp_path / "out"
    for extra, command in (
        ("exr", ("flow", *frames[:2], "-o", f"{out}/flow.exr")),
        ("data", ("flow", *frames[:2], "-o", f"{out}/", "--format", "flo5")),
        ("exr", ("flow", folder, "-o", f"{out}/", "--format", "exr")),
        ("data", ("video", folder, "-o", f"{out}/", "--format", "flo5")),
    ):
        outcome = run(*command, *no_weights)
        assert f"pip install 'gmaflow[{extra}]'" in outcome.complaint
        assert not out.exists()
