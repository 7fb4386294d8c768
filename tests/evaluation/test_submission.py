import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import av
import h5py
import numpy as np
import pytest

from gmaflow.errors import DatasetError, FlowError, OutputError
from gmaflow.evaluation import BENCHMARKS, find_benchmark, submit
from gmaflow.inference import FlowEstimator
from gmaflow.io import read_image, write_flow, write_image
from gmaflow.io.resumable import unlock_folder
from tests.evaluation.conftest import SIZE, random_estimator, write_sintel


def read_flo(path: Path) -> np.ndarray:
    """Read a .flo file by its specification, without our reader."""
    data = path.read_bytes()
    magic, width, height = struct.unpack("<fii", data[:12])
    assert magic == 202021.25
    return np.frombuffer(data, "<f4", offset=12).reshape(height, width, 2)


def read_kitti(path: Path) -> np.ndarray:
    """Read KITTI's .png through FFmpeg, without our reader."""
    with av.open(str(path)) as container:
        codes = next(container.decode(video=0)).to_ndarray(format="rgb48le")
    assert codes.dtype == np.uint16
    assert (codes[..., 2] == 1).all()
    return (codes[..., :2].astype(float) - 2**15) / 64


def write_frames(folder: Path, *names: str) -> None:
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        write_image(folder / name, rng.integers(0, 256, (*SIZE, 3), dtype=np.uint8))


def files_of(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_published_settings() -> None:
    sintel, kitti = BENCHMARKS["sintel"], BENCHMARKS["kitti"]
    assert (sintel.iters, sintel.warm_start, sintel.passes) == (32, True, ("clean", "final"))
    assert (kitti.iters, kitti.warm_start, kitti.padding) == (24, False, "kitti")
    with pytest.raises(FlowError, match="sintel, kitti, kitti-2012, spring"):
        find_benchmark("middlebury")


def test_sintel_is_warm_and_named_as_its_server_wants(
    tmp_path: Path, estimator: FlowEstimator
) -> None:
    root = write_sintel(tmp_path / "data", split="test", scenes=("a", "b"), frames=3)
    out = tmp_path / "out"
    report = submit(BENCHMARKS["sintel"], estimator, out, root=root)
    assert files_of(out) == [
        *(f"{p}/{s}/frame000{n}.flo" for p in ("clean", "final") for s in "ab" for n in (1, 2)),
        "submission.json",
    ]
    frames = sorted((root / "test/final/b").iterdir())
    first, second = estimator.sequence([read_image(f) for f in frames], warm_start=True)
    assert (read_flo(out / "final/b/frame0001.flo") == first.array).all()
    assert (read_flo(out / "final/b/frame0002.flo") == second.array).all()
    assert (report.written, report.kept) == (8, 0)
    assert len(report.problems) == 1
    assert "wants 1104 files but the test data has 8 pairs" in report.problems[0]


def test_an_interrupted_submission_resumes_with_the_same_files(
    tmp_path: Path, estimator: FlowEstimator
) -> None:
    root = write_sintel(tmp_path / "data", split="test", frames=5)
    whole, part = tmp_path / "whole", tmp_path / "part"
    submit(BENCHMARKS["sintel"], estimator, whole, root=root / "test")

    def stop(done: int, _total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit(BENCHMARKS["sintel"], estimator, part, root=root, progress=stop)
    assert len(files_of(part)) == 3 + 2
    report = submit(BENCHMARKS["sintel"], estimator, part, root=root)
    assert (report.written, report.kept) == (5, 3)
    assert files_of(part) == files_of(whole)
    for name in files_of(whole):
        assert (part / name).read_bytes() == (whole / name).read_bytes()


def test_a_lost_file_is_estimated_again_from_the_same_start(
    tmp_path: Path, estimator: FlowEstimator
) -> None:
    root, out = write_sintel(tmp_path / "data", split="test", frames=5), tmp_path / "out"
    submit(BENCHMARKS["sintel"], estimator, out, root=root)
    lost, others = out / "clean/alley_1/frame0003.flo", set(files_of(out))
    before = lost.read_bytes()
    lost.unlink()
    (out / "last-flow.safetensors").write_bytes(b"damaged")
    report = submit(BENCHMARKS["sintel"], estimator, out, root=root)
    assert (report.written, report.kept) == (1, 7)
    assert lost.read_bytes() == before
    assert set(files_of(out)) == others


def test_kitti_is_16_bits_and_clipped_to_what_they_hold(
    tmp_path: Path, estimator: FlowEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_frames(tmp_path / "testing/image_2", "000000_10.png", "000000_11.png")
    out = tmp_path / "out"
    submit(BENCHMARKS["kitti"], estimator, out, root=tmp_path)
    assert files_of(out) == ["flow/000000_10.png", "submission.json"]
    frames = [tmp_path / f"testing/image_2/000000_{n}.png" for n in (10, 11)]
    expected = estimator(*frames).array
    assert read_kitti(out / "flow/000000_10.png") == pytest.approx(expected, abs=1 / 128)

    def far(*_args: object, **_more: object) -> object:
        return replace(estimator_flow, array=np.full((*SIZE, 2), -700, np.float32))

    estimator_flow = estimator(*frames)
    monkeypatch.setattr(FlowEstimator, "__call__", far)
    submit(BENCHMARKS["kitti"], estimator, tmp_path / "far", root=tmp_path)
    assert (read_kitti(tmp_path / "far/flow/000000_10.png") == -(2**15 - 1) / 64).all()


def test_kitti_2012_is_packed_without_a_folder(tmp_path: Path, estimator: FlowEstimator) -> None:
    benchmark = BENCHMARKS["kitti-2012"]
    assert (benchmark.iters, benchmark.padding, benchmark.dataset) == (24, "kitti", "kitti-2012")
    write_frames(tmp_path / "testing/colored_0", "000194_10.png", "000194_11.png")
    out = tmp_path / "out"
    report = submit(benchmark, estimator, out, root=tmp_path)
    assert files_of(out) == ["flow/000194_10.png", "submission.json"]
    assert "wants 195 files but the test data has 1 pair;" in report.problems[0]
    frames = [tmp_path / f"testing/colored_0/000194_{n}.png" for n in (10, 11)]
    expected = estimator(*frames).array
    assert read_kitti(out / "flow/000194_10.png") == pytest.approx(expected, abs=1 / 128)
    assert f"cd {out}/flow && zip" in benchmark.instructions.format(folder=out)


def test_spring_has_both_cameras_and_directions(tmp_path: Path, estimator: FlowEstimator) -> None:
    for camera in ("left", "right"):
        names = (f"frame_{camera}_000{n}.png" for n in (1, 2))
        write_frames(tmp_path / f"test/0003/frame_{camera}", *names)
    out = tmp_path / "out"
    submit(BENCHMARKS["spring"], estimator, out, root=tmp_path)
    assert files_of(out / "0003") == [
        "flow_BW_left/flow_BW_left_0002.flo5",
        "flow_BW_right/flow_BW_right_0002.flo5",
        "flow_FW_left/flow_FW_left_0001.flo5",
        "flow_FW_right/flow_FW_right_0001.flo5",
    ]
    later, earlier = (tmp_path / f"test/0003/frame_left/frame_left_000{n}.png" for n in (2, 1))
    with h5py.File(out / "0003/flow_BW_left/flow_BW_left_0002.flo5") as file:
        assert (file["flow"][()] == estimator(later, earlier).array).all()


def test_broken_and_foreign_files_are_detected(tmp_path: Path, estimator: FlowEstimator) -> None:
    write_frames(tmp_path / "testing/image_2", "000000_10.png", "000000_11.png")
    out = tmp_path / "out"
    submit(BENCHMARKS["kitti"], estimator, out, root=tmp_path)
    (out / "flow/notes.txt").touch()
    write_flow(out / "flow/000000_10.png", np.zeros((5, 6, 2), np.float32))
    report = submit(BENCHMARKS["kitti"], estimator, out, root=tmp_path)
    assert report.written == 1
    assert not report.complete
    assert any("notes.txt does not belong" in problem for problem in report.problems)


def test_a_folder_of_other_weights_is_refused(tmp_path: Path, estimator: FlowEstimator) -> None:
    write_frames(tmp_path / "testing/image_2", "000000_10.png", "000000_11.png")
    submit(BENCHMARKS["kitti"], estimator, tmp_path / "out", root=tmp_path)
    with pytest.raises(OutputError, match="other weights or settings"):
        submit(BENCHMARKS["kitti"], random_estimator(1), tmp_path / "out", root=tmp_path)
    (tmp_path / "out/submission.json").write_text(json.dumps([]))
    with pytest.raises(OutputError, match="other weights or settings"):
        submit(BENCHMARKS["kitti"], estimator, tmp_path / "out", root=tmp_path)


def test_a_second_process_is_refused(tmp_path: Path, estimator: FlowEstimator) -> None:
    fcntl = pytest.importorskip("fcntl")
    root = write_sintel(tmp_path / "data", split="test", frames=2)
    out = tmp_path / "out"
    submit(BENCHMARKS["sintel"], estimator, out, root=root)
    unlock_folder(out)
    handle = os.open(out, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as the other process does
    with pytest.raises(OutputError, match="another process is writing to"):
        submit(BENCHMARKS["sintel"], estimator, out, root=root)
    os.close(handle)
    submit(BENCHMARKS["sintel"], estimator, out, root=root)


def test_without_test_data_nothing_is_written(tmp_path: Path, estimator: FlowEstimator) -> None:
    with pytest.raises(DatasetError, match="no complete pair"):
        submit(BENCHMARKS["kitti"], estimator, tmp_path / "out", root=tmp_path)
    assert not (tmp_path / "out").exists()
