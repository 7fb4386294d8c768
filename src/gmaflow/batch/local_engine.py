"""Workers in processes of this machine: one or two for each GPU, or one for each CPU core.

Processes, because a decoder that crashes on a damaged file must not end the job, and because Python
threads do not share cores well. A worker that dies is replaced; what it was doing is tried again
once, by itself, and then counts as failed.
"""

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeAlias

import torch

from gmaflow.batch.config import BatchConfig
from gmaflow.batch.destination import Destination
from gmaflow.batch.manifest import Clip
from gmaflow.batch.worker import ClipProgress, ClipResult, ClipWorker
from gmaflow.errors import FlowError
from gmaflow.runtime.device import free_host_memory, pick_device, usable_cores

CLIPS_AT_ONCE = {"cuda": 8}
"""Clips that a worker does at the same time, in threads: while some are read and written, the GPU
computes others. On a CPU, one."""
MEMORY_OF_A_WORKER = 1.5e9
"""Bytes that a worker on a CPU takes with frames of a usual size: torch, the network, a pair."""
WORKERS_OF_A_GPU = 2
"""Workers that share a GPU by default: one process cannot read and write images as fast as a large
GPU computes. Two make 612 pairs of 256x344 a second on an H200, one makes 365."""
MEMORY_OF_SHARED_GPU, CORES_OF_SHARED_GPU = 16e9, 4
"""A smaller GPU, or one with fewer CPU cores, has one worker."""
MOST_TRIES = 2

Reply: TypeAlias = "ClipResult | ClipProgress | str | None"
"""A result, how far a clip is, why the worker cannot start, or that it has started."""


def devices_of(config: BatchConfig) -> list[str]:
    """Return the device of each worker."""
    place = pick_device(config.device)
    if place.type == "cuda":
        numbers = range(torch.cuda.device_count()) if place.index is None else [place.index]
        workers = config.workers or len(numbers) * workers_of_a_gpu(numbers)
        return [f"cuda:{numbers[worker % len(numbers)]}" for worker in range(workers)]
    if place.type != "cpu":
        return [str(place)] * (config.workers or 1)
    return ["cpu"] * (config.workers or cpu_workers())


def workers_of_a_gpu(numbers: Sequence[int]) -> int:
    """Return how many workers share each of these GPUs."""
    memory = min(torch.cuda.get_device_properties(number).total_memory for number in numbers)
    enough = usable_cores() >= CORES_OF_SHARED_GPU * len(numbers)
    large = memory >= MEMORY_OF_SHARED_GPU and enough
    return WORKERS_OF_A_GPU if large else 1


def cpu_workers() -> int:
    """Return how many workers with one thread each this machine has cores and memory for."""
    return max(1, min(usable_cores(), int(free_host_memory() / MEMORY_OF_A_WORKER)))


def clips_at_once(device: str) -> int:
    """Return how many clips a worker on a device does at the same time."""
    return CLIPS_AT_ONCE.get(device.partition(":")[0], 1)


def run_here(
    config: BatchConfig, destination: Destination, clips: Iterator[Clip]
) -> Generator[ClipResult]:
    """Do clips in this process, one after the other; for places that other processes cannot see."""
    threads = torch.get_num_threads()
    try:
        worker = ClipWorker(config, destination, device=config.device, name="0")
        yield from map(worker.run, clips)
    finally:
        torch.set_num_threads(threads)


def run_local(
    config: BatchConfig, destination: Destination, clips: Iterator[Clip]
) -> Generator[ClipResult | ClipProgress]:
    """Do clips with all devices of this machine; gives results and progress as they come."""
    pool = WorkerPool(config, destination)
    try:
        yield from pool.run(clips)
    finally:
        pool.stop()


@dataclass(eq=False)
class WorkerProcess:
    """A process, and what it is doing."""

    name: str
    device: str
    process: BaseProcess
    connection: Connection
    doing: dict[str, Clip] = field(default_factory=dict)
    alone: bool = False
    """Whether it has a clip that may have ended another process, and gets no other beside it."""
    started: bool = False

    @property
    def load(self) -> float:
        """How busy it is: 0 for idle, 1 if it can take no more."""
        return 1.0 if self.alone else len(self.doing) / clips_at_once(self.device)

    def give(self, clip: Clip, *, alone: bool) -> None:
        """Send a clip."""
        self.doing[clip.key] = clip
        self.alone = alone
        with suppress(OSError):  # it has just died, which is noticed when its results are awaited
            self.connection.send(clip)


class WorkerPool:
    """Worker processes that are given clips as they have room."""

    def __init__(self, config: BatchConfig, destination: Destination) -> None:
        self._config, self._destination = config, destination
        self._tries: Counter[str] = Counter()
        self._suspects: deque[Clip] = deque()
        self._workers: list[WorkerProcess] = []
        self._sharing: Counter[str] = Counter()
        """How many workers a device has."""
        self._failed_starts = 0
        """How many workers died while they started, since the last one that did start."""

    def run(self, clips: Iterator[Clip]) -> Iterator[ClipResult | ClipProgress]:
        """Give out clips, and collect results and progress."""
        places = devices_of(self._config)
        self._sharing = Counter(places)
        devices = deque(enumerate(places))
        while True:
            self._give_out(clips, devices)
            busy = [worker for worker in self._workers if worker.doing]
            if not busy:
                return
            ready = wait([worker.connection for worker in busy])
            for worker in busy:
                if worker.connection in ready:
                    yield from self._collect(worker)

    def _give_out(self, clips: Iterator[Clip], devices: deque[tuple[int, str]]) -> None:
        """Fill all workers evenly; processes are started as there is work for them."""
        while True:
            worker = min(self._workers, key=lambda worker: worker.load, default=None)
            if (worker is None or worker.load > 0) and devices:
                clip = self._suspects.popleft() if self._suspects else next(clips, None)
                if clip is None:
                    return
                number, device = devices.popleft()
                self._workers.append(self._start(str(number), device))
                self._workers[-1].give(clip, alone=clip.key in self._tries)
            elif worker is not None and worker.load == 0 and self._suspects:
                worker.give(self._suspects.popleft(), alone=True)
            elif worker is not None and worker.load < 1:
                clip = next(clips, None)
                if clip is None:
                    return
                worker.give(clip, alone=False)
            else:
                return

    def _start(self, name: str, device: str) -> WorkerProcess:
        # Each plans with its share of a GPU's memory.
        config = replace(self._config, num_gpus=self._config.num_gpus / self._sharing[device])
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=serve,
            args=(theirs, config, self._destination, device, name),
            name=f"gmaflow-batch-{name}",
            daemon=True,
        )
        process.start()
        theirs.close()
        return WorkerProcess(name, device, process, ours)

    def _collect(self, worker: WorkerProcess) -> Iterator[ClipResult | ClipProgress]:
        try:
            reply: Reply = worker.connection.recv()
        except (EOFError, OSError):
            yield from self._replace(worker)
            return
        if reply is None:
            worker.started = True
            self._failed_starts = 0
        elif isinstance(reply, str):
            raise FlowError(reply)
        elif isinstance(reply, ClipProgress):
            yield reply
        else:
            del worker.doing[reply.clip.key]
            worker.alone = worker.alone and bool(worker.doing)
            self._tries.pop(reply.clip.key, None)
            yield reply

    def _replace(self, worker: WorkerProcess) -> Iterator[ClipResult]:
        """Start a new process in place of one that died; try its clips again, each by itself."""
        worker.process.join()
        if not worker.started:
            self._failed_starts += 1
            if self._failed_starts == MOST_TRIES:
                raise FlowError(f"a worker {how_it_ended(worker.process)} while it started, twice")
        successor = self._start(worker.name, worker.device)
        self._workers[self._workers.index(worker)] = successor
        for clip in worker.doing.values():
            if not worker.started:  # no clip is to blame
                successor.give(clip, alone=worker.alone)
                continue
            self._tries[clip.key] += 1
            if self._tries[clip.key] < MOST_TRIES:
                self._suspects.append(clip)
            else:
                reason = f"the process that worked on it {how_it_ended(worker.process)}, twice"
                yield ClipResult(clip, worker=worker.name, error=reason)

    def stop(self) -> None:
        """End all processes, whatever they are doing."""
        for worker in self._workers:
            if worker.doing:
                worker.process.terminate()
            else:
                with suppress(OSError):
                    worker.connection.send(None)
        for worker in self._workers:
            worker.process.join(timeout=10)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.connection.close()


def how_it_ended(process: BaseProcess) -> str:
    """Return how a process ended, in words."""
    code = process.exitcode or 0
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"


def serve(
    connection: Connection, config: BatchConfig, destination: Destination, device: str, name: str
) -> None:
    """Do clips as they come, in a process of its own, until None comes or the driver is gone."""
    # Ctrl-C reaches all processes of a terminal; the driver decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sending = threading.Lock()

    def send(reply: Reply) -> None:
        try:
            with sending:
                connection.send(reply)
        except OSError:
            os._exit(1)  # the driver is gone

    try:
        worker = ClipWorker(config, destination, device=device, name=name)
    except FlowError as err:
        send(str(err))
        return
    send(None)

    def do(clip: Clip) -> None:
        send(worker.run(clip, send))

    with ThreadPoolExecutor(clips_at_once(device)) as threads:
        while True:
            try:
                clip: Clip | None = connection.recv()
            except (EOFError, OSError):
                os._exit(1)  # killed without a chance to say so; clips that are begun are lost
            if clip is None:
                return
            threads.submit(do, clip)
