"""A Ray cluster of two nodes, one of which is killed in the middle of the work."""

import importlib.util
from pathlib import Path

import pytest

from gmaflow.batch import BatchConfig, ray_engine, run_batch
from gmaflow.batch.ray_engine import check_version, import_ray, reason_of
from gmaflow.errors import FlowError
from tests.batch.conftest import Command, bytes_of

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is missing")


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_a_killed_node_costs_nothing_but_time(
    clips: Path, small_weights: Path, tmp_path: Path
) -> None:
    from ray.cluster_utils import Cluster

    # The head does no clips; two nodes with a core each do them.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        # Many iterations: a clip takes long enough to be caught in the middle of it.
        config = BatchConfig(weights=str(small_weights), iters=60)
        command = Command(
            *(clips, "-o", tmp_path / "ray", "--weights", small_weights, "--iters", "60"),
            *("--engine", "ray", "--address", cluster.address, "--workers", "2"),
        )
        first = command.read()
        (lost,) = [node for node in nodes if node.node_id[:6] in first["node"]]
        cluster.remove_node(lost, allow_graceful=False)  # by SIGKILL
        ended = command.end()
        assert ended.code == 1, ended.err
        assert (ended.report["done"], ended.report["failed"]) == (8, 1)
        assert len(ended.report["nodes"]) == 2
        done = [event["id"] for event in [first] if "error" not in event] + ended.clips
        assert sorted(done) == [f"{number:02d}" for number in range(8)]
        # The other engine finds nothing to do, and would have written the same.
        progress = run_batch(config, [str(clips)], str(tmp_path / "ray"))
        assert (progress.done, progress.finished_before) == (0, 8)
        reference = f"memory://ray-{tmp_path.name}"
        run_batch(config, [str(clips)], reference)
        assert len(bytes_of(tmp_path / "ray")) == 8 * 3 + 2
        assert_same(tmp_path / "ray", reference)
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]


def assert_same(folder: Path, reference: str) -> None:
    from gmaflow.batch.destination import Destination

    stored = Destination(reference)
    wanted = {name: stored.read(name) for name in stored.names("")}
    assert {name: (folder / name).read_bytes() for name in wanted} == wanted


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_no_cluster_at_the_address_is_one_sentence(clips: Path, small_weights: Path) -> None:
    import ray

    config = BatchConfig(engine="ray", address="127.0.0.1:9", weights=str(small_weights))

    class NoCluster:
        """Ray as it answers when nobody listens; asking it for real takes minutes."""

        exceptions = ray.exceptions

        @staticmethod
        def init(**_options: object) -> None:
            raise ConnectionError("failed to connect")

    with pytest.raises(FlowError, match=r"there is no Ray cluster at 127\.0\.0\.1:9; start one"):
        ray_engine.connect(NoCluster, config)
    with pytest.raises(FlowError, match="is memory of one process"):
        run_batch(config, [str(clips)], "memory://ray")


def test_missing_ray_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(FlowError, match=r"pip install 'gmaflow\[ray\]'"):
        import_ray()


def test_nodes_with_another_version_are_refused() -> None:
    with pytest.raises(FlowError, match="install one version everywhere"):
        check_version("0.0.0")


def test_the_reason_of_an_actor_is_its_last_line() -> None:
    assert reason_of(RuntimeError("Traceback\n  ...\nFlowError: no weights\n\n")) == (
        "FlowError: no weights"
    )
