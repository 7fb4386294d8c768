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
"""Clips that a worker processes at the same time, in threads: while some are read and written, the
GPU computes others. On a CPU, one."""
WORKER_MEMORY = 1.5e9
"""Bytes that a worker on a CPU takes with frames of a usual size: torch, the network, a pair."""
WORKERS_PER_GPU = 2
"""Workers that share a GPU by default: one process cannot read and write images as fast as a large
GPU computes. Two make 612 pairs of 256x344 a second on an H200, one makes 365."""
SHARED_GPU_MEMORY, SHARED_GPU_CORES = 16e9, 4
"""A smaller GPU, or one with fewer CPU cores, has one worker."""
MAX_TRIES = 2

Reply: TypeAlias = "ClipResult | ClipProgress | str | None"
"""A result, how far a clip is, why the worker cannot start, or that it has started."""


def devices_of(config: BatchConfig) -> list[str]:
    """Return the device of each worker."""
    device = pick_device(config.device)
    if device.type == "cuda":
        numbers = range(torch.cuda.device_count()) if device.index is None else [device.index]
        workers = config.workers or len(numbers) * workers_per_gpu(numbers)
        return [f"cuda:{numbers[worker % len(numbers)]}" for worker in range(workers)]
    if device.type != "cpu":
        return [str(device)] * (config.workers or 1)
    return ["cpu"] * (config.workers or cpu_workers())


def workers_per_gpu(numbers: Sequence[int]) -> int:
    """Return how many workers share each of these GPUs."""
    memory = min(torch.cuda.get_device_properties(number).total_memory for number in numbers)
    enough = usable_cores() >= SHARED_GPU_CORES * len(numbers)
    large = memory >= SHARED_GPU_MEMORY and enough
    return WORKERS_PER_GPU if large else 1


def cpu_workers() -> int:
    """Return how many workers with one thread each this machine has cores and memory for."""
    return max(1, min(usable_cores(), int(free_host_memory() / WORKER_MEMORY)))


def clips_at_once(device: str) -> int:
    """Return how many clips a worker on a device processes at the same time."""
    return CLIPS_AT_ONCE.get(device.partition(":")[0], 1)


def run_in_process(
    config: BatchConfig, destination: Destination, clips: Iterator[Clip]
) -> Generator[ClipResult]:
    """Process clips in this process, one by one; for places that other processes cannot see."""
    threads = torch.get_num_threads()
    try:
        worker = ClipWorker(config, destination, device=config.device, name="0")
        yield from map(worker.run, clips)
    finally:
        torch.set_num_threads(threads)


def run_local(
    config: BatchConfig, destination: Destination, clips: Iterator[Clip]
) -> Generator[ClipResult | ClipProgress]:
    """Process clips on all devices of this machine; yields results and progress as they come."""
    pool = WorkerPool(config, destination)
    try:
        yield from pool.run(clips)
    finally:
        pool.stop()


@dataclass(eq=False)
class WorkerProcess:
    """A process and its clips."""

    name: str
    device: str
    process: BaseProcess
    connection: Connection
    assigned: dict[str, Clip] = field(default_factory=dict)
    alone: bool = False
    """Whether it has a clip that may have ended another process, and gets no other meanwhile."""
    started: bool = False

    @property
    def load(self) -> float:
        """How busy it is: 0 for idle, 1 if it can take no more."""
        return 1.0 if self.alone else len(self.assigned) / clips_at_once(self.device)

    def assign(self, clip: Clip, *, alone: bool) -> None:
        self.assigned[clip.key] = clip
        self.alone = alone
        with suppress(OSError):  # it has just died, which is noticed when its results are awaited
            self.connection.send(clip)


class WorkerPool:
    """Worker processes that get clips as they have room."""

    def __init__(self, config: BatchConfig, destination: Destination) -> None:
        self._config, self._destination = config, destination
        self._tries: Counter[str] = Counter()
        self._suspects: deque[Clip] = deque()
        self._workers: list[WorkerProcess] = []
        self._shares: Counter[str] = Counter()
        """Number of workers that share a device."""
        self._failed_starts = 0
        """How many workers died while they started, since the last one that did start."""

    def run(self, clips: Iterator[Clip]) -> Iterator[ClipResult | ClipProgress]:
        """Assign clips, and collect results and progress."""
        device_names = devices_of(self._config)
        self._shares = Counter(device_names)
        devices = deque(enumerate(device_names))
        while True:
            self._assign_clips(clips, devices)
            busy = [worker for worker in self._workers if worker.assigned]
            if not busy:
                return
            ready = wait([worker.connection for worker in busy])
            for worker in busy:
                if worker.connection in ready:
                    yield from self._collect(worker)

    def _assign_clips(self, clips: Iterator[Clip], devices: deque[tuple[int, str]]) -> None:
        """Fill all workers evenly; processes are started as there is work for them."""
        while True:
            worker = min(self._workers, key=lambda worker: worker.load, default=None)
            if (worker is None or worker.load > 0) and devices:
                clip = self._suspects.popleft() if self._suspects else next(clips, None)
                if clip is None:
                    return
                number, device = devices.popleft()
                self._workers.append(self._start(str(number), device))
                self._workers[-1].assign(clip, alone=clip.key in self._tries)
            elif worker is not None and worker.load == 0 and self._suspects:
                worker.assign(self._suspects.popleft(), alone=True)
            elif worker is not None and worker.load < 1:
                clip = next(clips, None)
                if clip is None:
                    return
                worker.assign(clip, alone=False)
            else:
                return

    def _start(self, name: str, device: str) -> WorkerProcess:
        # Each plans with its share of a GPU's memory.
        config = replace(self._config, num_gpus=self._config.num_gpus / self._shares[device])
        context = multiprocessing.get_context("spawn")
        parent_end, child_end = context.Pipe()
        process = context.Process(
            target=serve,
            args=(child_end, config, self._destination, device, name),
            name=f"gmaflow-batch-{name}",
            daemon=True,
        )
        process.start()
        child_end.close()
        return WorkerProcess(name, device, process, parent_end)

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
            del worker.assigned[reply.clip.key]
            worker.alone = worker.alone and bool(worker.assigned)
            self._tries.pop(reply.clip.key, None)
            yield reply

    def _replace(self, worker: WorkerProcess) -> Iterator[ClipResult]:
        """Start a new process in place of one that died; try its clips again, each by itself."""
        worker.process.join()
        worker.connection.close()
        if not worker.started:
            self._failed_starts += 1
            if self._failed_starts == MAX_TRIES:
                raise FlowError(f"a worker {exit_reason(worker.process)} while it started, twice")
        successor = self._start(worker.name, worker.device)
        self._workers[self._workers.index(worker)] = successor
        for clip in worker.assigned.values():
            if not worker.started:  # no clip is to blame
                successor.assign(clip, alone=worker.alone)
                continue
            self._tries[clip.key] += 1
            if self._tries[clip.key] < MAX_TRIES:
                self._suspects.append(clip)
            else:
                reason = f"the process that worked on it {exit_reason(worker.process)}, twice"
                yield ClipResult(clip, worker=worker.name, error=reason)

    def stop(self) -> None:
        """End all processes, busy or not."""
        for worker in self._workers:
            if worker.assigned:
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


def exit_reason(process: BaseProcess) -> str:
    """Describe how a process ended."""
    code = process.exitcode or 0
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"


def serve(
    connection: Connection, config: BatchConfig, destination: Destination, device: str, name: str
) -> None:
    """Process clips as they come, in a worker process, until None comes or the driver is gone."""
    # Ctrl-C reaches all processes of a terminal; the driver decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lock = threading.Lock()

    def send(reply: Reply) -> None:
        try:
            with lock:
                connection.send(reply)
        except OSError:
            os._exit(1)  # the driver is gone

    try:
        worker = ClipWorker(config, destination, device=device, name=name)
    except FlowError as err:
        send(str(err))
        return
    send(None)

    def process(clip: Clip) -> None:
        send(worker.run(clip, send))

    with ThreadPoolExecutor(clips_at_once(device)) as threads:
        while True:
            try:
                clip: Clip | None = connection.recv()
            except (EOFError, OSError):
                os._exit(1)  # the driver was killed; clips in progress are lost
            if clip is None:
                return
            threads.submit(process, clip)
