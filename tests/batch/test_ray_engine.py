"""A Ray cluster of two nodes, one of which is killed in the middle of the work."""

import importlib.util
import json
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gmaflow.batch import (
    BatchConfig,
    BatchProgress,
    Clip,
    ClipResult,
    ray_engine,
    run_batch,
    worker,
)
from gmaflow.batch.destination import Destination
from gmaflow.batch.ray_engine import ActorPool, RayWorker, check_version, reason_of, worker_slots
from gmaflow.cli import batch as batch_command
from gmaflow.cli import main
from gmaflow.errors import FlowError
from gmaflow.model import MODELS
from gmaflow.version import __version__
from gmaflow.weights import Checkpoint
from tests.batch.conftest import bytes_of

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is missing")


@pytest.fixture
def nothing_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Ray from registering what its clusters do at exit.

    Processes that Python 3.13 forks for other tests would drop that, and with it Ray's clients,
    which crash outside the process that made them.
    """
    monkeypatch.setattr("atexit.register", lambda callback, *_, **__: callback)


class TellingWorker(RayWorker):
    """An actor that tells after each pair how far it is."""

    def start(self, *args: Any) -> str:  # noqa: ANN401
        worker.REPORT_EVERY = 0.0
        return super().start(*args)


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
@pytest.mark.usefixtures("nothing_at_exit")
def test_a_killed_node_costs_nothing_but_time(
    clips: Path,
    small_weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command line on two nodes; the one that finishes the first clip is killed then."""
    from ray.cluster_utils import Cluster

    # The head does no clips; two nodes with a core each do them.
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    lost: list[Any] = []
    under_way: set[str] = set()

    def watch(progress: BatchProgress) -> None:
        under_way.update(clip.clip.identifier for clip in progress.under_way.values())
        if progress.last is not None and not lost:
            lost.extend(node for node in nodes if node.node_id[:6] in progress.last.node)
            cluster.remove_node(lost[0], allow_graceful=False)  # by SIGKILL

    monkeypatch.setattr(ray_engine, "RayWorker", TellingWorker)
    monkeypatch.setattr(ray_engine, "ASK_EVERY", 0.1)
    monkeypatch.setattr(batch_command, "show_batch", lambda **_: nullcontext(watch))
    names = [f"{number:02d}" for number in range(5)]
    inputs = [str(clips / name) for name in (*names, "bad")]
    # Many iterations: a clip takes long enough to be caught in the middle of it.
    options = ("--weights", str(small_weights), "--iters", "40", "--json")
    ray_options = ("--engine", "ray", "--address", cluster.address, "--workers", "2")
    try:
        with pytest.raises(SystemExit) as ended:
            main(["batch", *inputs, "-o", str(tmp_path / "ray"), *options, *ray_options])
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]
    assert ended.value.code == 1  # for the bad clip
    assert len(lost) == 1
    *events, report = map(json.loads, capsys.readouterr().out.splitlines())
    assert sorted(event["id"] for event in events if "error" not in event) == names
    assert (report["done"], report["failed"], len(report["nodes"])) == (5, 1, 2)
    assert under_way & set(names)
    # The other engine finds nothing to do, and would have written the same.
    config = BatchConfig(weights=str(small_weights), iters=40)
    progress = run_batch(config, inputs, str(tmp_path / "ray"))
    assert (progress.done, progress.finished_before) == (0, 5)
    reference = f"memory://ray-{tmp_path.name}"
    run_batch(config, inputs, reference)
    assert len(bytes_of(tmp_path / "ray")) == 5 * 3 + 2
    assert_same(tmp_path / "ray", reference)


class Method:
    """A method of an actor; a call returns a reference, which is a function here."""

    def __init__(self, answer: Callable[..., object]) -> None:
        self.answer = answer

    def options(self, **_: object) -> "Method":
        return self

    def remote(self, *args: object) -> Callable[[], object]:
        return partial(self.answer, *args)


class FakeRay:
    """Ray with one actor, which it ends once because the node is short of memory."""

    def __init__(self, exceptions: ModuleType) -> None:
        self.exceptions = exceptions
        self.runs = self.starts = 0

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": self.cluster_resources()}]

    def remote(self, **_: object) -> Callable[[type], Any]:
        actor = SimpleNamespace(start=Method(self.start), run=Method(self.work))
        return lambda _: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: actor))

    def put(self, value: object) -> object:
        return value

    def wait(self, references: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        return references[:1], references[1:]

    def get(self, reference: Callable[[], object]) -> object:
        return reference()

    def start(self, *_: object) -> str:
        self.starts += 1
        return __version__

    def work(self, clip: Clip) -> ClipResult:
        self.runs += 1
        if self.runs == 1:
            raise self.exceptions.OutOfMemoryError("the node is running low on memory")
        return ClipResult(clip, pairs=2)


@needs_ray
def test_an_actor_that_is_ended_for_its_memory_is_replaced() -> None:
    import ray.exceptions

    fake = FakeRay(ray.exceptions)
    pool = ActorPool(fake, BatchConfig(engine="ray"))
    pool.start(Destination("memory://none"), Checkpoint(config=MODELS["raft"], tensors={}))
    clips = [Clip("a", "a.mp4"), Clip("b", "b.mp4")]
    results = list(pool.run(iter(clips)))
    assert sorted((r.clip.identifier, r.pairs) for r in results) == [("a", 2), ("b", 2)]
    assert fake.starts == 2


class SharingWorker(RayWorker):
    """An actor that notes which GPU it has, and computes on the CPU."""

    def start(
        self, config: BatchConfig, destination: Destination, device: str, checkpoint: Checkpoint
    ) -> str:
        import ray

        environment = [
            ray.get_gpu_ids(),
            os.environ["CUDA_VISIBLE_DEVICES"],
            device,
            config.num_gpus,
        ]
        notes = Path(destination.url).with_name("notes")
        (notes / f"{os.getpid()}").write_text(json.dumps(environment))
        deadline = time.monotonic() + 60
        while len(list(notes.iterdir())) < 2:  # both are there at the same time
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return super().start(config, destination, "cpu", checkpoint)


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
@pytest.mark.usefixtures("nothing_at_exit")
def test_two_workers_share_a_gpu(
    clips: Path, config: BatchConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that says it has a GPU: Ray gives the same one to both workers."""
    from ray.cluster_utils import Cluster

    (tmp_path / "notes").mkdir()
    monkeypatch.setattr(ray_engine, "RayWorker", SharingWorker)
    head = {"num_cpus": 4, "num_gpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    config = replace(config, engine="ray", address=cluster.address, num_gpus=0.5)
    try:
        progress = run_batch(config, [str(clips / "00"), str(clips / "01")], str(tmp_path / "out"))
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]
    assert (progress.done, progress.failed) == (2, 0)
    notes = [json.loads(path.read_text()) for path in (tmp_path / "notes").iterdir()]
    assert notes == [[[0], "0", "cuda", 0.5]] * 2


@pytest.mark.parametrize(
    ("cores", "gpus", "num_gpus", "room"),
    [
        (4, 0, 0.0, 4),
        (16, 2, 1.0, 2),
        (16, 2, 0.5, 4),
        (16, 2, 0.4, 4),  # not five: the rest of two GPUs is no GPU
        (64, 3, 0.1, 30),
        (16, 8, 3.0, 2),
        (3, 8, 1.0, 3),
        (16, 0, 1.0, 0),
    ],
)
def test_workers_are_as_many_as_a_node_has_room_for(
    cores: int, gpus: int, num_gpus: float, room: int
) -> None:
    assert worker_slots({"CPU": float(cores), "GPU": float(gpus)}, num_gpus) == room


def assert_same(folder: Path, reference: str) -> None:
    stored = Destination(reference)
    wanted = {name: stored.read(name) for name in stored.names("")}
    assert {name: (folder / name).read_bytes() for name in wanted} == wanted


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_what_ray_cannot_do_is_one_sentence_and_nothing_is_written(
    clips: Path, small_weights: Path, tmp_path: Path
) -> None:
    config = BatchConfig(engine="ray", address="127.0.0.1:9", weights=str(small_weights))
    for address, message in (
        ("127.0.0.1:9", r"there is no Ray cluster at 127\.0\.0\.1:9; start one"),
        ("ray://[::1]:9", r"there is no Ray cluster at ray://\[::1\]:9; start one"),
        ("127.0.0.1:99999", "there is no Ray cluster at"),
        ("127..0.1:9", "there is no Ray cluster at"),
        ("auto", "there is no Ray cluster on this machine; start one"),
        ("node1", "'node1' is not the address of a Ray cluster; give HOST:PORT"),
    ):
        with pytest.raises(FlowError, match=message):
            run_batch(replace(config, address=address), [str(clips)], str(tmp_path / "flow"))
    assert not (tmp_path / "flow").exists()
    with pytest.raises(FlowError, match="is memory of one process"):
        run_batch(config, [str(clips)], "memory://ray")


def test_missing_ray_is_one_sentence_and_nothing_is_written(
    clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(FlowError, match=r"pip install 'gmaflow\[ray\]'"):
        run_batch(BatchConfig(engine="ray"), [str(clips)], str(tmp_path / "flow"))
    assert not (tmp_path / "flow").exists()


def test_nodes_with_another_version_are_refused() -> None:
    with pytest.raises(FlowError, match="install one version everywhere"):
        check_version("0.0.0")


def test_the_reason_of_an_actor_is_its_last_line() -> None:
    assert reason_of(RuntimeError("Traceback\n  ...\nFlowError: no weights\n\n")) == (
        "FlowError: no weights"
    )
