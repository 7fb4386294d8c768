"""A worker writes what was asked for, and a bad clip is a result."""

import gc
import json
import re
import shutil
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gmaflow import read_flow
from gmaflow.batch import BatchConfig, Clip, ClipProgress, ClipWorker
from gmaflow.batch import worker as worker_module
from gmaflow.batch.clip_outputs import FLOW_FORMATS, ROWS
from gmaflow.batch.destination import Destination, record_name
from gmaflow.batch.worker import memory_limit
from gmaflow.errors import FlowError
from gmaflow.inference import FlowEstimator
from gmaflow.inference.scoring import score_motion
from gmaflow.io import open_clip, read_image, write_image
from gmaflow.runtime import device as device_module
from gmaflow.runtime.device import memory_budget
from tests.batch.conftest import SIZE, bytes_of
from tests.io.clips import write_clip
from tests.io.frames import moving


@pytest.fixture
def worker(config: BatchConfig, tmp_path: Path) -> ClipWorker:
    return ClipWorker(config, Destination(str(tmp_path / "out")), device="cpu")


def with_options(worker: ClipWorker, **options: object) -> ClipWorker:
    worker.config = replace(worker.config, **options)  # type: ignore[arg-type]
    return worker


def record_of(worker: ClipWorker, clip: Clip) -> dict[str, object]:
    data = worker.destination.read(record_name(clip))
    assert data is not None
    found: dict[str, object] = json.loads(data)
    return found


@pytest.mark.parametrize("flow_format", ["h5", "tar"])
@pytest.mark.parametrize("name", ["bad", "none"])  # after a pair, and before the first
def test_a_bad_clip_leaves_no_file_open(
    worker: ClipWorker, clips: Path, name: str, flow_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if flow_format == "h5":
        pytest.importorskip("h5py")
    late: list[object] = []
    with_options(worker, format=flow_format, write="flow,occlusion")
    monkeypatch.setattr(sys, "unraisablehook", lambda event: late.append(event.exc_value))
    assert worker.run(Clip(name, str(clips / name))).error
    gc.collect()
    assert not late
    assert not any(path.is_file() for path in Path(worker.destination.url).rglob("*"))


def test_the_flow_is_the_estimators(worker: ClipWorker, clips: Path) -> None:
    clip = Clip("x/00", str(clips / "00"))
    result = worker.run(clip)
    assert (result.error, result.pairs) == (None, 2)
    out = Path(worker.destination.url)
    frames = [clips / "00" / f"frame{number}.png" for number in range(3)]
    for number, flow in enumerate(worker.estimator.sequence(frames)):
        written = read_flow(out / "x" / "00" / f"frame{number}.flo")
        np.testing.assert_array_equal(written.array, flow.array)
    record = record_of(worker, clip)
    assert (record["pairs"], record["height"], record["width"]) == (2, *SIZE)
    files = record["files"]
    assert isinstance(files, dict)
    assert {name: (out / name).stat().st_size for name in files} == files


def test_everything_that_can_be_written(worker: ClipWorker, clips: Path) -> None:
    with_options(worker, write="occlusion,pictures,flow,statistics", format="npz", max_length=3.0)
    clip = Clip("00", str(clips / "00"))
    assert worker.run(clip).error is None
    out = Path(worker.destination.url)
    assert read_image(out / "00" / "frame1.png").shape == (*SIZE, 3)
    with np.load(out / "00.occlusion.npz") as stored:
        names = {
            f"{n}/frame{i}" for n in ("occluded_in", "occluded_out", "confidence") for i in (0, 1)
        }
        assert set(stored.files) == names
        assert stored["confidence/frame1"].shape == SIZE
        assert stored["occluded_in/frame0"].dtype == np.bool_
    statistics = record_of(worker, clip)["statistics"]
    assert isinstance(statistics, dict)
    flows = [read_flow(out / "00" / f"frame{n}.npz") for n in (0, 1)]
    wanted = [flow.statistics() for flow in flows]
    assert statistics["mean_length"] == pytest.approx(np.mean([one.mean_length for one in wanted]))
    assert statistics["max_length"] == max(one.max_length for one in wanted)


def test_bytes_do_not_depend_on_when_or_where(
    worker: ClipWorker, clips: Path, tmp_path: Path
) -> None:
    with_options(worker, write="occlusion,pictures,flow,statistics", format="npz")
    clip = Clip("00", str(clips / "00"))
    worker.run(clip)
    first = bytes_of(tmp_path / "out")
    worker.destination = Destination(str(tmp_path / "again"))
    worker.run(clip)
    assert bytes_of(tmp_path / "again") == first


@pytest.mark.parametrize("flow_format", FLOW_FORMATS)
def test_every_format_holds_the_flow(worker: ClipWorker, clips: Path, flow_format: str) -> None:
    if flow_format == "exr":
        pytest.importorskip("OpenEXR")
    if flow_format in ("h5", "flo5"):
        pytest.importorskip("h5py")
    with_options(worker, format=flow_format, bound=4.0)
    clip = Clip("x/00", str(clips / "00"))
    assert worker.run(clip).error is None
    folder = Path(worker.destination.url) / "x"
    whole = folder / f"00.{flow_format}"
    stored = open_clip(whole if whole.is_file() else folder / "00")
    frames = [clips / "00" / f"frame{number}.png" for number in range(3)]
    tolerance = {"tar": 0.2, "xy": 0.2, "kitti": 0.01, "h5": 2e-3, "npz16": 2e-3}
    for found, flow in zip(stored, worker.estimator.sequence(frames), strict=True):
        difference = np.abs(found.array - flow.array).max()
        assert difference <= tolerance.get(flow_format, 0.0)


def test_the_score_is_that_of_the_flow(worker: ClipWorker, clips: Path) -> None:
    with_options(worker, write="score,statistics")
    clip = Clip("00", str(clips / "00"))
    worker.run(clip)
    frames = [clips / "00" / f"frame{number}.png" for number in range(3)]
    wanted = asdict(score_motion(worker.estimator.sequence(frames)))
    found = record_of(worker, clip)["score"]
    assert isinstance(found, dict)
    assert found == {name: wanted[name] for name in ROWS["score"]}


def test_threads_may_share_a_worker(worker: ClipWorker, clips: Path, tmp_path: Path) -> None:
    some = [Clip(f"{number:02d}", str(clips / f"{number:02d}")) for number in range(4)]
    for clip in some:
        worker.run(clip)
    worker.destination = Destination(str(tmp_path / "threads"))
    with ThreadPoolExecutor(4) as threads:
        assert all(result.error is None for result in threads.map(worker.run, some))
    assert bytes_of(tmp_path / "threads") == bytes_of(tmp_path / "out")


def test_videos_pairs_cuts_gaps_and_sizes(worker: ClipWorker, clips: Path, tmp_path: Path) -> None:
    scenes = moving(4, seed=1) + moving(4, seed=2)
    video = str(write_clip(tmp_path / "v.mp4", scenes))
    whole = Clip("v", video)
    assert worker.run(whole).pairs == 6
    assert record_of(worker, whole)["cuts"] == ["000003"]
    part = Clip("part", video, start=0.2, end=0.35)  # frames of 1/20 s
    assert worker.run(part).pairs == 2
    first, second = (str(clips / "00" / f"frame{n}.png") for n in (0, 2))
    pair = Clip("pair", first, second)
    assert worker.run(pair).pairs == 1
    with_options(worker, every=2, scale=2.0)
    assert worker.run(Clip("00", str(clips / "00"))).pairs == 1
    assert read_flow(tmp_path / "out" / "00" / "frame0.flo").shape == (64, 80, 2)
    assert worker.run(Clip("v2", video)).pairs == 2


@pytest.mark.parametrize(
    ("side", "scales"), [(24, (24 / 32, 24 / 48)), (40, (1, 40 / 48)), (64, (1, 1))]
)
def test_a_side_shrinks_frames_and_never_enlarges_them(
    side: int, scales: tuple[float, float], config: BatchConfig, clips: Path, tmp_path: Path
) -> None:
    video = write_clip(tmp_path / "v.mp4", moving(2))
    for source, scale in zip((clips / "00", video), scales, strict=True):
        footage = worker_module.ClipFrames(Clip("x", str(source)), replace(config, side=side))
        assert {frame.scale for frame in footage} == {scale}


def test_only_videos_have_a_start_and_an_end(worker: ClipWorker, clips: Path) -> None:
    first, second = (str(clips / "00" / f"frame{n}.png") for n in (0, 2))
    for clip in (Clip("a", str(clips / "00"), start=0.0), Clip("b", first, second, end=1.0)):
        error = worker.run(clip).error
        assert error is not None
        assert f"{clip.source} has a start or end in seconds" in error


def test_it_reports_the_progress_of_a_clip(
    worker: ClipWorker, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[ClipProgress] = []
    video = str(write_clip(tmp_path / "v.mp4", moving(4)))
    worker.run(Clip("quick", video), progress=reports.append)
    assert not reports
    monkeypatch.setattr(worker_module, "REPORT_EVERY", 0.0)
    for source, pairs in ((video, 3), (str(clips / "00"), 2)):
        reports.clear()
        clip = Clip(f"{pairs}", source)
        assert worker.run(clip, progress=reports.append).pairs == pairs
        expected = ClipProgress(clip, 0, pairs, node=worker.node)
        assert reports == [replace(expected, pairs=number + 1) for number in range(pairs)]


def test_a_bad_clip_is_a_result_and_leaves_nothing(
    worker: ClipWorker, clips: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    (tmp_path / "one").mkdir()
    write_image(tmp_path / "one" / "a.png", moving(1)[0])
    shutil.copytree(clips / "00", tmp_path / "twins")
    shutil.copy(tmp_path / "twins" / "frame0.png", tmp_path / "twins" / "frame0.jpg")
    truncated = write_clip(tmp_path / "long.mp4", moving(60))
    truncated.write_bytes(truncated.read_bytes()[: truncated.stat().st_size // 2])
    for clip, message in [
        (Clip("1", str(tmp_path / "broken.mp4")), "cannot be read as video"),
        (Clip("2", str(tmp_path / "none.mp4")), "does not exist"),
        (Clip("3", str(clips / "bad")), "differ in size"),
        (Clip("4", str(tmp_path / "one")), "has 1 frame; flow needs at least two"),
        (Clip("5", str(truncated)), "truncated|damaged"),
        (Clip("6", "memory://none/a.mp4"), "does not exist"),
        (Clip("7", str(tmp_path / "twins")), "would both write 'frame0'; rename one"),
    ]:
        result = worker.run(clip)
        assert result.error is not None, clip
        assert not result.fatal

        assert re.search(message, result.error), result.error
    out = tmp_path / "out"
    assert not [path for path in out.rglob("*") if path.is_file()]


def test_a_clip_that_runs_out_of_memory_gets_a_smaller_plan(
    worker: ClipWorker, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[float | None] = []
    encode = FlowEstimator.encode

    def short_of_memory(self: FlowEstimator, image: object) -> object:
        budgets.append(self.max_memory)
        if len(budgets) < enough:
            try:
                raise MemoryError
            except MemoryError as err:
                raise FlowError("not enough memory") from err
        return encode(self, image)  # type: ignore[arg-type]

    monkeypatch.setattr(FlowEstimator, "encode", short_of_memory)
    enough = 3
    result = worker.run(Clip("00", str(clips / "00")))
    assert result.error is None
    first, second = budgets[1:3]
    assert first is not None
    assert second == pytest.approx(first / 2)
    # Never enough: the clip fails, with the reason.
    budgets.clear()
    enough = 100
    assert worker.run(Clip("01", str(clips / "01"))).error == "not enough memory"
    assert len(budgets) == 4


def test_workers_of_one_gpu_plan_with_their_shares_of_it(
    config: BatchConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "free_memory", lambda _: 10e9)
    gpu = torch.device("cuda:0")
    whole = memory_budget(gpu)
    assert memory_limit(config, gpu) is None  # what is free when it plans
    assert memory_limit(replace(config, num_gpus=0.5), gpu) == pytest.approx(whole / 2)
    assert memory_limit(replace(config, num_gpus=0.5, max_memory="1GB"), gpu) == "1GB"
    assert memory_limit(replace(config, num_gpus=0.5), torch.device("cpu")) is None


def test_a_place_that_cannot_be_written_to_is_fatal(
    worker: ClipWorker, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "destination", Destination("/dev/full/out"))
    result = worker.run(Clip("00", str(clips / "00")))
    assert result.fatal
    assert "cannot be written" in str(result.error)


def test_remote_clips_are_downloaded(worker: ClipWorker, clips: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    source = Destination(f"memory://sources-{tmp_path.name}")
    for path in (clips / "00").iterdir():
        source.write(f"00/{path.name}", path.read_bytes())
    video = write_clip(tmp_path / "v.mp4", moving(3))
    source.write("v.mp4", video.read_bytes())
    assert worker.run(Clip("local", str(clips / "00"))).pairs == 2
    assert worker.run(Clip("remote", f"{source.url}/00")).pairs == 2
    out = tmp_path / "out"
    assert bytes_of(out / "local") == bytes_of(out / "remote")
    assert worker.run(Clip("video", f"{source.url}/v.mp4")).pairs == 2
    first, second = (f"{source.url}/00/frame{n}.png" for n in (0, 1))
    assert worker.run(Clip("pair", first, second)).pairs == 1
    assert not (out / "_partial").exists() or not any((out / "_partial").rglob("*.png"))


def test_occlusion_archives_are_plain_zip_files(worker: ClipWorker, clips: Path) -> None:
    with_options(worker, write="occlusion")
    worker.run(Clip("00", str(clips / "00")))
    with zipfile.ZipFile(Path(worker.destination.url) / "00.occlusion.npz") as archive:
        assert archive.testzip() is None
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
