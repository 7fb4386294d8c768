"""Worker processes: the same bytes, a dead process costs nothing, Ctrl-C ends cleanly."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gmaflow.batch import BatchConfig, ClipProgress, local_engine, run_batch
from gmaflow.batch.destination import Destination
from gmaflow.batch.local_engine import WorkerPool, WorkerProcess, cpu_workers, devices_of
from gmaflow.batch.manifest import Clip, ClipList
from gmaflow.batch.worker import ClipResult, Progress
from gmaflow.errors import FlowError
from tests.batch.conftest import Command, bytes_of, write_clip_frames
from tests.full_disk import largest_file

ITERS = 20
"""Many, so that the other clips are not done before a signal comes."""


def test_a_cpu_gets_as_many_workers_as_cores_and_memory() -> None:
    assert 1 <= cpu_workers() <= (os.cpu_count() or 1)
    assert devices_of(BatchConfig(device="cpu", workers=3)) == ["cpu"] * 3


@pytest.mark.parametrize(("memory", "cores", "each"), [(140e9, 16, 2), (140e9, 6, 1), (8e9, 16, 1)])
def test_two_workers_share_a_large_gpu(
    memory: float, cores: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "pick_device", torch.device)
    monkeypatch.setattr(local_engine, "usable_cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    properties = SimpleNamespace(total_memory=memory)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert devices_of(BatchConfig(device="cuda")) == ["cuda:0", "cuda:1"] * each
    assert devices_of(BatchConfig(device="cuda", workers=3)) == ["cuda:0", "cuda:1", "cuda:0"]
    alone = ["cuda:1"] * (1 if memory < 16e9 else 2)
    assert devices_of(BatchConfig(device="cuda:1")) == alone


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_does_not_fit_on_a_gpu_gets_a_smaller_plan_and_then_a_row(tmp_path: Path) -> None:
    for name, size in {"small": (256, 344), "large": (1088, 1920)}.items():
        write_clip_frames(tmp_path / "clips" / name, 3, seed=0, size=size)
    config = BatchConfig(device="cuda", workers=1, iters=2, max_memory="40GB")
    held = fill_gpu(leave=2.2e9)
    # Even an eighth of 40 GB is more than there is; a quarter of 8 GB is not.
    first = run_batch(config, [str(tmp_path / "clips")], str(tmp_path / "out"))
    smaller = replace(config, max_memory="8GB")
    fitting = run_batch(smaller, [str(tmp_path / "clips" / "large")], str(tmp_path / "fitting"))
    held.clear()
    torch.cuda.empty_cache()
    assert first.last_failure is not None
    assert first.last_failure.clip.identifier == "large"
    assert "not enough memory on cuda:0" in str(first.last_failure.error)
    assert (first.done, first.failed) == (1, 1)
    assert (fitting.done, fitting.failed) == (1, 0)
    again = replace(config, retry_failed=True)
    last = run_batch(again, [str(tmp_path / "clips")], str(tmp_path / "out"))
    assert (last.done, last.failed, last.finished_before) == (1, 0, 1)
    assert (tmp_path / "out" / "failures.jsonl").read_text() == ""


def fill_gpu(*, leave: float) -> list[torch.Tensor]:
    """Take the memory of the GPU but for so many bytes, until what it returns is deleted."""
    held = []
    for piece in (2**32, 2**30, 2**28, 2**26):
        while torch.cuda.mem_get_info()[0] - piece > leave:
            held.append(torch.empty(piece, dtype=torch.uint8, device="cuda"))
    return held


@pytest.fixture(scope="module")
def whole(
    clips: Path, small_weights: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The bytes of all clips, by one process."""
    pytest.importorskip("fsspec")
    folder = tmp_path_factory.mktemp("whole")
    config = BatchConfig(weights=str(small_weights), iters=ITERS)
    memory = f"memory://{folder.name}"
    run_batch(config, [str(clips)], memory)
    stored = Destination(memory)
    for name in stored.names(""):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(stored.read(name) or b"")
    return bytes_of(folder)


def test_an_interrupt_and_a_killed_worker_cost_nothing(
    clips: Path, small_weights: Path, tmp_path: Path, whole: dict[str, str]
) -> None:
    """A job is interrupted; the same command continues it, and loses one of two workers."""
    out = tmp_path / "out"
    args = (clips, "-o", out, "--weights", small_weights, "--iters", f"{ITERS}")
    command = Command(*args, "--workers", "1")
    command.read()
    # To all processes, as a terminal does.
    ended = command.kill(signal.SIGINT)
    assert ended.code == 130
    assert ended.err.strip().endswith("finished clips are kept; the same command continues")
    assert "Traceback" not in ended.err
    assert not (out / "_partial").exists()
    before = len(list((out / "_clips").rglob("*.json")))
    assert 0 < before < 7

    command = Command(*args, "--workers", "2")
    first = command.read()
    victims = children_of(command.process.pid)
    assert victims
    os.kill(victims[0], signal.SIGKILL)
    ended = command.end()
    assert ended.code == 1, ended.err  # for the bad clip
    assert "1 clip failed" in ended.err
    assert (ended.report["finished_before"], ended.report["failed"]) == (before, 1)
    assert ended.report["done"] == 8 - before
    assert len(ended.clips) + ("error" not in first) == 8 - before  # each once
    assert bytes_of(out) == whole


def children_of(pid: int) -> list[int]:
    """The worker processes: not multiprocessing's tracker of resources."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [n for n in map(int, listed) if b"spawn_main" in Path(f"/proc/{n}/cmdline").read_bytes()]


def serve_on_a_full_disk(*args: Any) -> None:  # noqa: ANN401
    """A worker that may write small files only: larger ones fail as on a full disk."""
    with largest_file(8000):
        real_serve(*args)


def test_a_full_disk_is_one_sentence(
    clips: Path, config: BatchConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "serve", serve_on_a_full_disk)
    with pytest.raises(FlowError, match="file too large; finished clips are kept, and the same"):
        run_batch(replace(config, workers=1), [str(clips)], str(tmp_path / "out"))
    assert not list((tmp_path / "out").rglob("*.flo"))


class Dying:
    """A worker that dies on one clip, and tells how far it is with the others."""

    def __init__(self, *_args: object, **_options: object) -> None:
        pass

    def run(self, clip: Clip, progress: Progress) -> Any:  # noqa: ANN401
        if clip.identifier == "bad":
            os.kill(os.getpid(), signal.SIGKILL)
        progress(ClipProgress(clip, 1, 2))
        return ClipResult(clip, pairs=2)


def serve_dying(*args: Any) -> None:  # noqa: ANN401
    """What a process runs in place of a worker with a network."""
    vars(local_engine)["ClipWorker"] = Dying
    real_serve(*args)


real_serve = local_engine.serve


def test_a_clip_that_ends_every_process_fails_and_no_other(
    clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "serve", serve_dying)
    monkeypatch.setattr(local_engine, "CLIPS_AT_ONCE", {"cpu": 4})
    pool = WorkerPool(BatchConfig(workers=1, device="cpu"), Destination(str(tmp_path)))
    try:
        replies = list(pool.run(iter(ClipList([str(clips)]))))
    finally:
        pool.stop()
    results = [reply for reply in replies if isinstance(reply, ClipResult)]
    assert len(results) == 9
    # Each clip tells how far it is before it is done.
    under_way = [reply.clip for reply in replies if isinstance(reply, ClipProgress)]
    assert {clip.identifier for clip in under_way} == {f"{number:02d}" for number in range(8)}
    for result in results:
        if result.error is None:
            first = next(reply for reply in replies if reply.clip == result.clip)
            assert first == ClipProgress(result.clip, 1, 2)
    (failed,) = [result for result in results if result.error]
    assert failed.clip.identifier == "bad"
    assert failed.error == "the process that worked on it was ended by signal 9, twice"


def serve_from_the_second_start(*args: Any) -> None:  # noqa: ANN401
    """A worker whose first process dies before it can take a clip."""
    started = Path(args[2].url, "started")
    if not started.exists():
        started.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    serve_dying(*args)


def serve_never(*_args: object) -> None:
    """A worker that dies whenever it starts."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_while_it_starts_is_started_again(
    clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "serve", serve_from_the_second_start)
    good = [str(clips / f"{number:02d}") for number in range(3)]
    pool = WorkerPool(BatchConfig(workers=1, device="cpu"), Destination(str(tmp_path)))
    start, started = pool._start, list[WorkerProcess]()

    def note(name: str, device: str) -> WorkerProcess:
        started.append(start(name, device))
        return started[-1]

    monkeypatch.setattr(pool, "_start", note)
    try:
        replies = list(pool.run(iter(ClipList(good))))
    finally:
        pool.stop()
    assert [worker.connection.closed for worker in started] == [True, True]
    results = [reply for reply in replies if isinstance(reply, ClipResult)]
    assert len(results) == 3
    assert not any(result.error for result in results)


def test_workers_that_cannot_start_end_the_job(
    clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "serve", serve_never)
    pool = WorkerPool(BatchConfig(workers=1, device="cpu"), Destination(str(tmp_path)))
    try:
        with pytest.raises(FlowError, match="was ended by signal 9 while it started, twice"):
            list(pool.run(iter(ClipList([str(clips)]))))
    finally:
        pool.stop()
