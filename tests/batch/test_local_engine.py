"""Worker processes: the same bytes, a dead process costs nothing, Ctrl-C ends cleanly."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gmaflow.batch import BatchConfig, local_engine, run_batch
from gmaflow.batch.destination import Destination
from gmaflow.batch.local_engine import WorkerPool, cpu_workers, devices_of
from gmaflow.batch.manifest import Clip, ClipList
from gmaflow.batch.worker import ClipResult
from tests.batch.conftest import Command, bytes_of


def test_a_cpu_gets_as_many_workers_as_cores_and_memory() -> None:
    assert 1 <= cpu_workers() <= (os.cpu_count() or 1)
    assert devices_of(BatchConfig(device="cpu", workers=3)) == ["cpu"] * 3


@pytest.fixture(scope="module")
def whole(
    clips: Path, small_weights: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The bytes of all clips, by one process."""
    pytest.importorskip("fsspec")
    folder = tmp_path_factory.mktemp("whole")
    config = BatchConfig(weights=str(small_weights), iters=1)
    memory = f"memory://{folder.name}"
    run_batch(config, [str(clips)], memory)
    stored = Destination(memory)
    for name in stored.names(""):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(stored.read(name) or b"")
    return bytes_of(folder)


def test_a_worker_that_is_killed_costs_nothing(
    clips: Path, small_weights: Path, tmp_path: Path, whole: dict[str, str]
) -> None:
    """Two workers, one of which is killed in the middle of its work; and then a full disk."""
    args = (clips, "-o", tmp_path / "out", "--weights", small_weights, "--iters", "1")
    command = Command(*args, "--workers", "2")
    command.read()
    victims = children_of(command.process.pid)
    assert victims
    os.kill(victims[0], signal.SIGKILL)
    ended = command.end()
    assert ended.code == 1, ended.err  # for the bad clip
    assert "1 clip failed" in ended.err
    assert (ended.report["done"], ended.report["failed"]) == (8, 1)
    assert bytes_of(tmp_path / "out") == whole


def children_of(pid: int) -> list[int]:
    """The worker processes: not multiprocessing's tracker of resources."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [n for n in map(int, listed) if b"spawn_main" in Path(f"/proc/{n}/cmdline").read_bytes()]


def test_an_interrupt_ends_cleanly_and_the_same_command_continues(
    clips: Path, small_weights: Path, tmp_path: Path
) -> None:
    # Many iterations: the other clips must not be done before the signal comes.
    settings = ("--weights", small_weights, "--iters", "40", "--workers", "1")
    args = (clips, "-o", tmp_path / "out", *settings)
    command = Command(*args)
    command.read()
    # To all processes, as a terminal does.
    ended = command.kill(signal.SIGINT)
    assert ended.code == 130
    assert ended.err.strip().endswith("finished clips are kept; the same command continues")
    assert "Traceback" not in ended.err
    assert not (tmp_path / "out" / "_partial").exists()
    before = set((tmp_path / "out" / "_clips").rglob("*.json"))
    assert before
    ended = Command(*args).end()
    assert ended.report["finished_before"] == len(before)
    Command(clips, "-o", tmp_path / "whole", *settings).end()
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "whole")


def test_a_full_disk_is_one_sentence(clips: Path, small_weights: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: writing fails in the same way."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))

    options = f"inputs={clips} output={tmp_path}/out weights={small_weights} iters=1 workers=1"
    done = subprocess.run(
        [sys.executable, "-B", "-m", "gmaflow", "batch", *options.split()],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be written: file too large; finished clips are kept" in done.stderr
    assert "Traceback" not in done.stderr


class Dying:
    """A worker that dies on one clip; each process notes what it was given."""

    def __init__(self, *_args: object, **_options: object) -> None:
        pass

    def run(self, clip: Clip) -> Any:  # noqa: ANN401
        if clip.identifier == "bad":
            os.kill(os.getpid(), signal.SIGKILL)
        return ClipResult(clip, pairs=1)


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
        results = list(pool.run(iter(ClipList([str(clips)]))))
    finally:
        pool.stop()
    assert len(results) == 9
    (failed,) = [result for result in results if result.error]
    assert failed.clip.identifier == "bad"
    assert failed.error == "the process that worked on it was ended by signal 9, twice"
