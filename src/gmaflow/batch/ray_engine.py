"""Workers on a Ray cluster: actors with a GPU, a part of one, or a CPU core each.

The driver gives each actor a few clips at a time. If a node dies, Ray raises an error for what was
running there; the driver gives those clips to other actors, while Ray restarts the lost actors
where there is room. Actors that Ray cannot place yet, on a cluster that grows, join when they can.
"""

import logging
import os
import re
import socket
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from gmaflow.batch.config import BatchConfig
from gmaflow.batch.destination import Destination
from gmaflow.batch.local_engine import clips_at_once
from gmaflow.batch.manifest import Clip
from gmaflow.batch.worker import ClipProgress, ClipResult, ClipWorker
from gmaflow.errors import FlowError
from gmaflow.version import __version__
from gmaflow.weights import Checkpoint

log = logging.getLogger(__name__)

MOST_TRIES = 4
"""Nodes may die for any reason; a clip that ended this many actors is taken for the reason."""
AHEAD = 1
"""Clips that wait in an actor, so that it need not wait for the driver."""
ASK_EVERY = 2.0
"""Seconds after which actors are asked how far their clips are."""
CONNECT_WITHIN = 10.0
"""Seconds in which a cluster must answer; Ray itself would try for many minutes."""


def import_ray() -> Any:  # noqa: ANN401  (a module without types)
    """Import Ray, or say how to install it."""
    # Actors without a GPU must still see those that other programs gave them.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise FlowError("the engine ray needs Ray: pip install 'gmaflow[ray]'") from None
    return ray


def require_cluster(config: BatchConfig, destination: Destination) -> None:
    """Refuse what Ray cannot do, before anything is written.

    Raises:
        FlowError: Ray is missing, nothing answers at the address of the cluster, or workers would
            not see the destination.
    """
    ray = import_ray()
    if destination.in_this_process:
        raise FlowError(
            f"{destination.url} is memory of one process, which Ray's workers do not share; use a "
            "shared folder, or an address such as s3://"
        )
    address = address_of(config)
    if ray.is_initialized() or address in (None, "auto", "local"):
        return
    found = re.fullmatch(r"(?:ray://)?\[?([^/\s]+?)\]?:(\d{1,5})", address or "")
    if found is None:
        raise FlowError(
            f"{address!r} is not the address of a Ray cluster; give HOST:PORT, such as "
            "10.0.0.1:6379, or auto"
        )
    try:
        socket.create_connection((found[1], int(found[2])), timeout=CONNECT_WITHIN).close()
    except (OSError, OverflowError) as err:
        raise no_cluster(address) from err


def address_of(config: BatchConfig) -> str | None:
    """Return the address of the cluster, if one is named."""
    return config.address or os.environ.get("RAY_ADDRESS") or None


def no_cluster(address: str | None) -> FlowError:
    """Return the error if there is no cluster."""
    where = "on this machine" if address in (None, "auto", "local") else f"at {address}"
    return FlowError(
        f"there is no Ray cluster {where}; start one with `ray start --head`, or leave out "
        "--address"
    )


class RayWorker:
    """The actor: a worker with clips in threads. Ray makes one in a process on some node."""

    def __init__(self) -> None:
        self._worker: ClipWorker | None = None
        self._under_way: dict[str, ClipProgress] = {}

    def start(
        self, config: BatchConfig, destination: Destination, device: str, checkpoint: Checkpoint
    ) -> str:
        """Load the network, and return the version of gmaflow."""
        import ray

        context = ray.get_runtime_context()
        name = str(context.get_actor_id())[:8]
        worker = ClipWorker(config, destination, device=device, checkpoint=checkpoint, name=name)
        worker.node = f"{worker.node} {context.get_node_id()[:6]}"
        self._worker = worker
        return __version__

    def run(self, clip: Clip) -> ClipResult | None:
        """Do a clip; None if the actor was restarted and has not loaded the network yet."""
        if self._worker is None:
            return None
        try:
            return self._worker.run(clip, self._note)
        finally:
            self._under_way.pop(clip.key, None)

    def _note(self, progress: ClipProgress) -> None:
        self._under_way[progress.clip.key] = progress

    def under_way(self) -> list[ClipProgress]:
        """Return how far its clips are; called while `run` is running."""
        return list(self._under_way.values())


@dataclass(eq=False)
class Actor:
    """An actor, and what it is doing."""

    handle: Any
    doing: dict[Any, Clip] = field(default_factory=dict)
    """Clips by the reference of their result."""
    starting: Any = None
    """The reference that becomes ready when the actor is; None if it is ready."""
    asked: Any = None
    """The reference of how far its clips are, if that was asked."""
    alone: bool = False
    node: str = ""
    """Where its last result came from."""


@contextmanager
def connected(config: BatchConfig) -> Iterator[str]:
    """Be connected to a Ray cluster; gives the kind of device that its workers compute on."""
    ray = import_ray()
    ours = not ray.is_initialized()
    if ours:
        connect(ray, config)
    try:
        yield device_type_on(ray.cluster_resources(), config)
    finally:
        if ours:
            ray.shutdown()


def device_type_on(resources: dict[str, float], config: BatchConfig) -> str:
    """Return the kind of device that workers compute on: GPUs if the cluster has some."""
    gpus = resources.get("GPU", 0.0)
    if not config.device.startswith("cuda"):
        return "cuda" if config.device == "auto" and gpus > 0 else "cpu"
    if not gpus and config.workers is None:
        raise FlowError(
            "the Ray cluster has no GPU; use --device cpu, or set --workers if "
            "it adds nodes on demand"
        )
    return "cuda"


def room_on(node: dict[str, float], num_gpus: float) -> int:
    """Return how many workers with so many GPUs, and a core each, a node has room for.

    Ray takes a fraction from a single GPU: three workers with 0.4 need two.
    """
    room, gpus = int(node.get("CPU", 0.0)), int(node.get("GPU", 0.0))
    if not num_gpus:
        return room
    return min(room, gpus * int(1 / num_gpus) if num_gpus <= 1 else int(gpus / num_gpus))


def run_on_ray(
    config: BatchConfig, destination: Destination, clips: Iterator[Clip], checkpoint: Checkpoint
) -> Generator[ClipResult | ClipProgress]:
    """Do clips on the cluster that is `connected`; gives results and progress as they come."""
    pool = ActorPool(import_ray(), config)
    try:
        pool.start(destination, checkpoint)
        yield from pool.run(clips)
    finally:
        pool.stop()


def connect(ray: Any, config: BatchConfig) -> None:  # noqa: ANN401
    """Connect to a cluster, or start one on this machine if none is named and none runs."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = address_of(config)
    try:
        if address is not None:
            ray.init(address=address, **options)
            return
        try:
            ray.init(address="auto", **options)
        except ConnectionError:
            ray.init(address="local", include_dashboard=False, **options)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as err:
        raise no_cluster(address) from err


class ActorPool:
    """Actors that are given clips as they have room."""

    def __init__(self, ray: Any, config: BatchConfig) -> None:  # noqa: ANN401
        self._ray, self._config = ray, config
        self._actors: list[Actor] = []
        self._tries: Counter[str] = Counter()
        self._again: deque[Clip] = deque()
        self._at_once = 1
        self._more = True
        self._arguments: tuple[Any, ...] = ()
        self._asked_at = time.monotonic()

    def start(self, destination: Destination, checkpoint: Checkpoint) -> None:
        """Ask Ray for actors."""
        device = device_type_on(self._ray.cluster_resources(), self._config)
        share = self._config.num_gpus if device == "cuda" else 0.0
        nodes = (node["Resources"] for node in self._ray.nodes() if node["Alive"])
        fitting = sum(room_on(node, share) for node in nodes)
        self._at_once = clips_at_once(device)
        # A thread of its own answers how far the clips are.
        make = self._ray.remote(concurrency_groups={"progress": 1})(RayWorker).options(
            num_cpus=1,
            num_gpus=share,
            max_restarts=-1,
            max_task_retries=0,  # the driver gives clips of a lost actor to others
            max_concurrency=self._at_once,
        )
        # Weights are sent once to each node, which needs no file of them.
        self._arguments = (self._config, destination, device, self._ray.put(checkpoint))
        for _ in range(self._config.workers or max(1, fitting)):
            actor = Actor(make.remote())
            self._await(actor)
            self._actors.append(actor)

    def _await(self, actor: Actor) -> None:
        """Let an actor load the network when it has started, or started again."""
        start = actor.handle.start.options(max_task_retries=-1)
        actor.starting = start.remote(*self._arguments)

    def run(self, clips: Iterator[Clip]) -> Iterator[ClipResult | ClipProgress]:
        """Give out clips, and collect results and progress."""
        while True:
            self._give_out(clips)
            waiting = [reference for actor in self._actors for reference in actor.doing]
            starting = [a.starting for a in self._actors if a.starting is not None]
            if not waiting and not self._again and not self._more:
                return
            self._ask()
            asked = [actor.asked for actor in self._actors if actor.asked is not None]
            ready, _ = self._ray.wait(
                [*waiting, *starting, *asked], num_returns=1, timeout=ASK_EVERY, fetch_local=False
            )
            for reference in ready:
                yield from self._collect(reference)

    def _ask(self) -> None:
        """Ask actors how far their clips are, now and then."""
        if time.monotonic() - self._asked_at < ASK_EVERY:
            return
        self._asked_at = time.monotonic()
        for actor in self._actors:
            if actor.doing and actor.starting is None and actor.asked is None:
                ask = actor.handle.under_way.options(concurrency_group="progress")
                actor.asked = ask.remote()

    def _give_out(self, clips: Iterator[Clip]) -> None:
        self._more = True
        while self._more:
            free = [actor for actor in self._actors if actor.starting is None and not actor.alone]
            actor = min(free, key=lambda actor: len(actor.doing), default=None)
            if actor is None or len(actor.doing) >= self._at_once + AHEAD:
                return
            if self._again and not actor.doing:
                clip, actor.alone = self._again.popleft(), True
            else:
                following = next(clips, None)
                self._more = following is not None
                if following is None:
                    return
                clip = following
            actor.doing[actor.handle.run.remote(clip)] = clip

    def _collect(self, reference: Any) -> Iterator[ClipResult | ClipProgress]:  # noqa: ANN401
        actor = next(
            a for a in self._actors if reference in a.doing or reference in (a.starting, a.asked)
        )
        errors = self._ray.exceptions
        lost = (errors.RayActorError, errors.RaySystemError, errors.ObjectLostError)
        if reference == actor.asked:
            actor.asked = None
            doing = {clip.key for clip in actor.doing.values()}
            with suppress(*lost):
                yield from (p for p in self._ray.get(reference) if p.clip.key in doing)
        elif reference == actor.starting:
            try:
                check_version(self._ray.get(reference))
            except (errors.RayActorError, errors.RayTaskError) as err:
                raise FlowError(f"a worker on Ray cannot start: {reason_of(err)}") from err
            actor.starting = None
        else:
            result: ClipResult | None = None
            with suppress(*lost):
                result = self._ray.get(reference)
            yield from self._take(actor, actor.doing.pop(reference), result)

    def _take(self, actor: Actor, clip: Clip, result: ClipResult | None) -> Iterator[ClipResult]:
        """Take the result of a clip; None if its actor died or was restarted."""
        actor.alone = actor.alone and bool(actor.doing)
        if result is not None:
            actor.node = result.node
            self._tries.pop(clip.key, None)
            yield result
            return
        # Its node or process died. Ray restarts it; others go on with its clips.
        if actor.starting is None:
            log.warning("a worker on %s is lost; others take over", actor.node or "a new node")
            self._await(actor)
        self._tries[clip.key] += 1
        if self._tries[clip.key] < MOST_TRIES:
            self._again.append(clip)
        else:
            reason = f"the worker died each of the {MOST_TRIES} times that it was tried"
            yield ClipResult(clip, error=reason)

    def stop(self) -> None:
        """End all actors, whatever they are doing."""
        for actor in self._actors:
            with suppress(Exception):
                self._ray.kill(actor.handle)


def check_version(version: str) -> None:
    """Refuse workers with another version, whose results could differ."""
    if version != __version__:
        raise FlowError(
            f"a node of the Ray cluster has gmaflow {version}, and this machine {__version__}; "
            "install one version everywhere"
        )


def reason_of(err: Exception) -> str:
    """Return the last line of an error that an actor raised."""
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    return lines[-1] if lines else type(err).__name__
