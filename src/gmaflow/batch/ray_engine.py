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
from gmaflow.errors import FlowError, import_extra
from gmaflow.version import __version__
from gmaflow.weights import Checkpoint

log = logging.getLogger(__name__)

MAX_TRIES = 4
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
    return import_extra("ray", "the engine ray", extra="ray")


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
    match = re.fullmatch(r"(?:ray://)?\[?([^/\s]+?)\]?:(\d{1,5})", address or "")
    if match is None:
        raise FlowError(
            f"{address!r} is not the address of a Ray cluster; give HOST:PORT, such as "
            "10.0.0.1:6379, or auto"
        )
    try:
        socket.create_connection((match[1], int(match[2])), timeout=CONNECT_WITHIN).close()
    except (OSError, OverflowError, UnicodeError) as err:  # the last for 10..0.1
        raise no_cluster(address) from err


def address_of(config: BatchConfig) -> str | None:
    """Return the address of the cluster, if one is named."""
    return config.address or os.environ.get("RAY_ADDRESS") or None


def no_cluster(address: str | None) -> FlowError:
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
        """Process a clip; None if the actor was restarted and has not loaded the network yet."""
        if self._worker is None:
            return None
        try:
            return self._worker.run(clip, self._note)
        finally:
            self._under_way.pop(clip.key, None)

    def _note(self, progress: ClipProgress) -> None:
        self._under_way[progress.clip.key] = progress

    def under_way(self) -> list[ClipProgress]:
        """Return the progress of its clips; called while `run` is running."""
        return list(self._under_way.values())


@dataclass(eq=False)
class Actor:
    """An actor and its clips."""

    handle: Any
    assigned: dict[Any, Clip] = field(default_factory=dict)
    """Clips by the reference of their result."""
    starting: Any = None
    """The reference that becomes ready when the actor is; None if it is ready."""
    poll: Any = None
    """The reference of the progress of its clips, if that was requested."""
    alone: bool = False
    node: str = ""
    """Where its last result came from."""


@contextmanager
def connected(config: BatchConfig) -> Iterator[str]:
    """Connect to a Ray cluster; yields the type of device that its workers compute on."""
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


def worker_slots(node: dict[str, float], num_gpus: float) -> int:
    """Return how many workers with `num_gpus` GPUs and one core each fit on a node.

    Ray takes a fraction from a single GPU: three workers with 0.4 need two.
    """
    room, gpus = int(node.get("CPU", 0.0)), int(node.get("GPU", 0.0))
    if not num_gpus:
        return room
    return min(room, gpus * int(1 / num_gpus) if num_gpus <= 1 else int(gpus / num_gpus))


def run_on_ray(
    config: BatchConfig, destination: Destination, clips: Iterator[Clip], checkpoint: Checkpoint
) -> Generator[ClipResult | ClipProgress]:
    """Process clips on the `connected` cluster; yields results and progress as they come."""
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
    """Actors that get clips as they have room."""

    def __init__(self, ray: Any, config: BatchConfig) -> None:  # noqa: ANN401
        self._ray, self._config = ray, config
        self._actors: list[Actor] = []
        self._tries: Counter[str] = Counter()
        self._retries: deque[Clip] = deque()
        self._at_once = 1
        self._more = True
        self._arguments: tuple[Any, ...] = ()
        self._requested_at = time.monotonic()

    def start(self, destination: Destination, checkpoint: Checkpoint) -> None:
        device = device_type_on(self._ray.cluster_resources(), self._config)
        share = self._config.num_gpus if device == "cuda" else 0.0
        nodes = (node["Resources"] for node in self._ray.nodes() if node["Alive"])
        slots = sum(worker_slots(node, share) for node in nodes)
        self._at_once = clips_at_once(device)
        # A separate thread answers requests for progress.
        actor_class = self._ray.remote(concurrency_groups={"progress": 1})(RayWorker).options(
            num_cpus=1,
            num_gpus=share,
            max_restarts=-1,
            max_task_retries=0,  # the driver gives clips of a lost actor to others
            max_concurrency=self._at_once,
        )
        # Weights are sent once to each node, which needs no file of them.
        self._arguments = (self._config, destination, device, self._ray.put(checkpoint))
        for _ in range(self._config.workers or max(1, slots)):
            actor = Actor(actor_class.remote())
            self._load_network(actor)
            self._actors.append(actor)

    def _load_network(self, actor: Actor) -> None:
        """Load the network on an actor when it has started or restarted."""
        start = actor.handle.start.options(max_task_retries=-1)
        actor.starting = start.remote(*self._arguments)

    def run(self, clips: Iterator[Clip]) -> Iterator[ClipResult | ClipProgress]:
        """Assign clips, and collect results and progress."""
        while True:
            self._assign_clips(clips)
            waiting = [reference for actor in self._actors for reference in actor.assigned]
            starting = [a.starting for a in self._actors if a.starting is not None]
            if not waiting and not self._retries and not self._more:
                return
            self._request_progress()
            polls = [actor.poll for actor in self._actors if actor.poll is not None]
            ready, _ = self._ray.wait(
                [*waiting, *starting, *polls], num_returns=1, timeout=ASK_EVERY, fetch_local=False
            )
            for reference in ready:
                yield from self._collect(reference)

    def _request_progress(self) -> None:
        """Ask the actors for the progress of their clips, every `ASK_EVERY` seconds."""
        if time.monotonic() - self._requested_at < ASK_EVERY:
            return
        self._requested_at = time.monotonic()
        for actor in self._actors:
            if actor.assigned and actor.starting is None and actor.poll is None:
                ask = actor.handle.under_way.options(concurrency_group="progress")
                actor.poll = ask.remote()

    def _assign_clips(self, clips: Iterator[Clip]) -> None:
        self._more = True
        while self._more:
            free = [actor for actor in self._actors if actor.starting is None and not actor.alone]
            actor = min(free, key=lambda actor: len(actor.assigned), default=None)
            if actor is None or len(actor.assigned) >= self._at_once + AHEAD:
                return
            if self._retries and not actor.assigned:
                clip, actor.alone = self._retries.popleft(), True
            else:
                next_clip = next(clips, None)
                self._more = next_clip is not None
                if next_clip is None:
                    return
                clip = next_clip
            actor.assigned[actor.handle.run.remote(clip)] = clip

    def _collect(self, reference: Any) -> Iterator[ClipResult | ClipProgress]:  # noqa: ANN401
        actor = next(
            a for a in self._actors if reference in a.assigned or reference in (a.starting, a.poll)
        )
        errors = self._ray.exceptions
        lost = (
            errors.RayActorError,
            errors.RaySystemError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,  # Ray ends actors of a node that is short of memory
        )
        if reference == actor.poll:
            actor.poll = None
            assigned = {clip.key for clip in actor.assigned.values()}
            with suppress(*lost):
                yield from (p for p in self._ray.get(reference) if p.clip.key in assigned)
        elif reference == actor.starting:
            try:
                check_version(self._ray.get(reference))
            except (*lost, errors.RayTaskError) as err:
                raise FlowError(f"a worker on Ray cannot start: {reason_of(err)}") from err
            actor.starting = None
        else:
            result: ClipResult | None = None
            with suppress(*lost):
                result = self._ray.get(reference)
            yield from self._take(actor, actor.assigned.pop(reference), result)

    def _take(self, actor: Actor, clip: Clip, result: ClipResult | None) -> Iterator[ClipResult]:
        """Take the result of a clip; None if its actor died or was restarted."""
        actor.alone = actor.alone and bool(actor.assigned)
        if result is not None:
            actor.node = result.node
            self._tries.pop(clip.key, None)
            yield result
            return
        # Its node or process died. Ray restarts it; others go on with its clips.
        if actor.starting is None:
            log.warning("a worker on %s is lost; others take over", actor.node or "a new node")
            self._load_network(actor)
        self._tries[clip.key] += 1
        if self._tries[clip.key] < MAX_TRIES:
            self._retries.append(clip)
        else:
            reason = f"the worker died each of the {MAX_TRIES} times that it was tried"
            yield ClipResult(clip, error=reason)

    def stop(self) -> None:
        """End all actors, busy or not."""
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
