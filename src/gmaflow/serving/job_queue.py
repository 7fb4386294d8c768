"""The job queue: clients take turns, and a thread computes one pair at a time."""

import asyncio
import logging
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from threading import Condition, Thread

import numpy as np

from gmaflow.errors import FlowError, OutputError
from gmaflow.inference import BidirectionalFlow, Flow, FlowEstimator, Refinement
from gmaflow.io.resumable import is_locked_here, lock_folder, unlock_folder
from gmaflow.runtime.device import release_freed_memory
from gmaflow.serving.http_errors import ApiError, gone, server_error, too_busy
from gmaflow.serving.jobs import (
    Footage,
    Job,
    JobRequest,
    JobState,
    JobStatus,
    Task,
    frame_name,
    iteration_name,
)
from gmaflow.serving.limits import Limits
from gmaflow.serving.models import ModelRegistry
from gmaflow.serving.results import ResultFolder, StoredArrays
from gmaflow.serving.track_views import save_tracks
from gmaflow.serving.views import AttentionCache, ResultView
from gmaflow.viz import largest_length

log = logging.getLogger(__name__)

TRACKING_JOBS = 2
"""Jobs that track at a time, because each keeps frames in memory; others wait for one to finish."""
SWEEP_SECONDS = 1.0
"""How often an idle worker looks for expired results."""
ABANDONED = "cancelled because no client asked about the job"
DELETED_IDS = 10_000
"""Deleted jobs to remember; they are answered with 410 instead of 404."""


FOLDER_PREFIX = "gmaflow-serve-"
NEW_SECONDS = 60.0


class StoppedError(Exception):
    """The job was stopped."""


class JobTimeoutError(Exception):
    """A task took longer than the limit."""


class FairQueue:
    """Waiting jobs. Clients take turns, and so do the jobs of one client.

    A job is taken for one task at a time and then added again, at the end of its client's line. A
    long clip therefore delays neither other clients nor other jobs of the same client.
    """

    def __init__(self) -> None:
        self._lines: dict[str, deque[Job]] = {}  # by client, in the order of their turns

    def add(self, job: Job) -> None:
        """Add a job to its client's line. A new client comes after all others."""
        self._lines.setdefault(job.client, deque()).append(job)

    def take(self, may_run: Callable[[Job], bool] = lambda job: True) -> Job | None:
        """Remove and return the next job that may run; its client moves to the end."""
        for client, line in self._lines.items():
            job = next(filter(may_run, line), None)
            if job is not None:
                line.remove(job)
                del self._lines[client]
                if line:
                    self._lines[client] = line
                return job
        return None

    def remove(self, job: Job) -> bool:
        """Remove a job; returns whether it was waiting."""
        line = self._lines.get(job.client, deque())
        if job not in line:
            return False
        line.remove(job)
        if not line:
            del self._lines[job.client]
        return True

    def order(self) -> list[Job]:
        """Return the jobs in the order in which they will be taken."""
        rounds = zip_longest(*self._lines.values())
        return [job for turn in rounds for job in turn if job is not None]

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))


class JobQueue:
    """All jobs of a server, and the thread that computes them."""

    def __init__(self, models: ModelRegistry, limits: Limits) -> None:
        self.models = models
        self.limits = limits
        self.attention = AttentionCache()
        self.closing = False
        self._jobs: dict[str, Job] = {}
        self._waiting = FairQueue()
        self._deleted: deque[str] = deque(maxlen=DELETED_IDS)
        # One lock for everything; it is only held briefly.
        self._changed = Condition()
        remove_leftovers()
        self._folder = tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX)
        lock_folder(Path(self._folder.name))
        self._folders = 0
        self._thread = Thread(target=self._work, name="gmaflow-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Cancel all jobs and accept no more. The worker stops after the current refinement."""
        with self._changed:
            self.closing = True
            for job in self._jobs.values():
                self._stop(job, "the server is shutting down")
            self._notify()

    def wait_closed(self) -> None:
        """Close, wait for the worker, and delete all results."""
        self.close()
        self._thread.join()
        unlock_folder(Path(self._folder.name))
        self._folder.cleanup()

    def new_folder(self) -> ResultFolder:
        """Return a new folder for the frames and results of a job."""
        with self._changed:
            self._folders += 1
            return ResultFolder(Path(self._folder.name) / f"{self._folders:08d}")

    def admit(self, client: str, uploads: int = 0) -> None:
        """Raise `ApiError` if a client, with this many uploads in progress, may not submit."""
        with self._changed:
            if self.closing:
                raise ApiError(503, "the server is shutting down")
            unfinished = [job for job in self._jobs.values() if not job.state.over]
            count = uploads + sum(job.client == client for job in unfinished)
            if count >= self.limits.queue:
                limit = self.limits.queue
                raise too_busy(f"you have {count} unfinished jobs and uploads (at most {limit})")
            if len(unfinished) >= self.limits.queue_of_all:
                raise too_busy("the queue is full")
            if sum(job.footage.folder.bytes for job in unfinished) > self.limits.keep_bytes:
                raise too_busy("the disk space for jobs (--keep-disk) is used up")

    def submit(self, client: str, footage: Footage, request: JobRequest) -> Job:
        """Add a job. If there is no room, its footage is deleted and `ApiError` is raised."""
        try:
            with self._changed:
                self.admit(client)
                job = Job(client, footage, request)
                self._jobs[job.id] = job
                self._waiting.add(job)
                self._notify()
                return job
        except ApiError:
            footage.folder.delete()
            raise

    def find(self, job_id: str) -> Job:
        """Return a job; raises `ApiError` if it does not exist or was deleted."""
        with self._changed:
            job = self._jobs.get(job_id)
            if job is None:
                raise gone() if job_id in self._deleted else ApiError(404, "unknown job")
            job.last_seen = time.monotonic()
            return job

    @contextmanager
    def watch(self, job: Job) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the status of a job may have changed.

        A job that is watched is not abandoned.
        """
        event, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has stopped; nobody waits any more
                loop.call_soon_threadsafe(event.set)

        with self._changed:
            job.listeners.add(wake)
        try:
            yield event
        finally:
            with self._changed:
                job.listeners.remove(wake)
                job.last_seen = time.monotonic()

    def status(self, job: Job) -> JobStatus:
        """Return the status of a job as clients see it."""
        with self._changed:
            waiting = self._waiting.order()
            return job.status(waiting.index(job) + 1 if job in waiting else 0)

    def counts(self) -> tuple[int, int]:
        """Return the number of waiting jobs and of all jobs."""
        with self._changed:
            return len(self._waiting), len(self._jobs)

    def seek(self, job: Job, pair: int) -> JobStatus:
        """Continue a clip with this pair."""
        with self._changed:
            job.seek(pair)
            return self.status(job)

    def cancel(self, job: Job) -> None:
        """Cancel an unfinished job. Its finished results are kept."""
        with self._changed:
            self._stop(job, "cancelled")
            self._notify()

    def delete(self, job: Job) -> None:
        """Cancel a job and delete its results."""
        with self._changed:
            self._stop(job, "cancelled")
            self._notify()
            if self._jobs.pop(job.id, None) is not None:
                self._deleted.append(job.id)
        self.attention.forget(job)
        # A running job needs its folder until it has stopped; the worker deletes it then.
        if job.state.over:
            job.footage.folder.delete()

    def _notify(self) -> None:
        """Wake the worker and everyone who watches a job: queue positions may have changed."""
        self._changed.notify_all()
        for job in self._jobs.values():
            for wake in job.listeners:
                wake()

    def _stop(self, job: Job, reason: str) -> None:
        if job.state.over:
            return
        job.stop = reason
        if self._waiting.remove(job):
            job.state, job.error = JobState.CANCELLED, reason
            job.tracking = None

    def _work(self) -> None:
        while True:
            self._sweep()
            with self._changed:
                job = self._waiting.take(self._may_run)
                if job is None:
                    if self.closing:
                        return
                    self._changed.wait(SWEEP_SECONDS)
                    continue
                job.state, job.iteration = JobState.RUNNING, 0
                self._notify()
            self._run_next_task(job)
            if not len(self._waiting):
                release_freed_memory()  # the C library may still hold gigabytes after a burst

    def _may_run(self, job: Job) -> bool:
        under_way = sum(other.tracking is not None for other in self._jobs.values())
        has_begun = job.request.reference is None or job.tracking is not None
        return has_begun or under_way < TRACKING_JOBS

    def _run_next_task(self, job: Job) -> None:
        """Run the next task of a job. An exception ends the job, never the worker."""
        task = job.todo[0]
        started = time.monotonic()
        state, error = JobState.QUEUED, None
        try:
            estimator = self.models.estimator(job.request.models[task.model])
            job.deadline = time.monotonic() + self.limits.job_seconds
            if job.request.reference is None:
                self._compute(job, task, estimator)
            else:
                self._track(job, estimator)
            if job.request.prepare_attention and estimator.config.aggregates:
                self.attention.prepare(job, task, estimator)
        except StoppedError:
            state, error = JobState.CANCELLED, job.stop
        except JobTimeoutError:
            limit = f"{self.limits.job_seconds:g} s"
            unit = "pair" if job.request.reference is None else "frame"
            state, error = (
                JobState.FAILED,
                f"a {unit} took longer than {limit}; send smaller images",
            )
            job.failure = 504
        except Exception as err:
            state, error = JobState.FAILED, str(err)
            if isinstance(err, OutputError) or not isinstance(err, FlowError):
                # A full disk is not a bug: one line, not a traceback for each job.
                log.error("a job failed: %s", err, exc_info=not isinstance(err, OutputError))
                failure = server_error(err)
                error, job.failure = failure.detail, failure.status_code
        disk_full = job.failure == 507
        with self._changed:
            job.seconds += time.monotonic() - started
            self._settle(job, task, state, error)
            if disk_full:
                job.done.clear()
            self._notify()
            for wake in job.listeners:  # a deleted job is no longer among those notified
                wake()
        if disk_full or job.id not in self._jobs:
            job.footage.folder.delete()

    def _settle(self, job: Job, task: Task, state: JobState, error: str | None) -> None:
        """Record the outcome of a task, and add the job to the queue again if it has more."""
        job.iteration = 0
        if state is JobState.QUEUED:
            job.todo.remove(task)
            job.done.add(task)
            if job.stop is not None:
                state, error = JobState.CANCELLED, job.stop
            elif not job.todo:
                state = JobState.DONE
        job.error, job.state = error, state
        if state is JobState.QUEUED:
            self._waiting.add(job)
        else:
            job.tracking = None

    def _compute(self, job: Job, task: Task, estimator: FlowEstimator) -> None:
        """Compute the flow of a pair and save it, with that after each refinement if requested."""

        def watch(refinement: Refinement) -> None:
            # Saved first: clients request an iteration as soon as the status reports it.
            if job.request.every_iteration and refinement.number < refinement.total:
                save_iteration(job, task, refinement)
            self._check_time(job)
            with self._changed:
                job.iteration = job.request.iters * refinement.number // refinement.total
                for wake in job.listeners:
                    wake()

        view, estimator = ResultView(job, task), estimator.with_iters(job.request.iters)
        frames = view.frame(0), view.frame(1)
        if job.request.bidirectional:
            scale = job.footage.size.width / job.footage.original.width
            save_result(job, task, estimator.bidirectional(*frames, watch=watch, scale=scale))
        else:
            save_result(job, task, estimator(*frames, watch=watch))

    def _track(self, job: Job, estimator: FlowEstimator) -> None:
        """Track every pixel of the reference into the next frame and save where they are."""
        if job.tracking is None:
            names = [frame_name(number) for number in range(job.footage.frames)]
            job.tracking = estimator.with_iters(job.request.iters).track(
                StoredArrays(job.footage.folder, names),
                reference=job.request.reference or 0,
                watch=lambda _: self._check_time(job),
            )
        tracked = next(job.tracking)
        save_tracks(job, tracked)
        job.in_tiles = job.in_tiles or tracked.in_tiles

    def _check_time(self, job: Job) -> None:
        """Stop the current task if its job was stopped or abandoned, or its time is over."""
        with self._changed:
            now = time.monotonic()
            if self._is_abandoned(job, now):
                job.stop = ABANDONED
            if job.stop is not None:
                raise StoppedError
            if now > job.deadline:
                raise JobTimeoutError

    def _is_abandoned(self, job: Job, now: float) -> bool:
        return not job.listeners and now - job.last_seen > self.limits.unseen_seconds

    def _sweep(self) -> None:
        """Cancel abandoned jobs, and delete results that expired or exceed the limits."""
        now = time.monotonic()
        with self._changed:
            for job in self._waiting.order():
                if self._is_abandoned(job, now):
                    self._stop(job, ABANDONED)
            expired = self._expired(now)
        for job in expired:
            self.delete(job)

    def _expired(self, now: float) -> list[Job]:
        late = now - 60 * self.limits.keep_minutes
        over = sorted(
            (job for job in self._jobs.values() if job.state.over), key=lambda j: j.last_seen
        )
        used = sum(job.footage.folder.bytes for job in self._jobs.values())
        expired: list[Job] = []
        for job in over:
            too_many = len(over) - len(expired) > self.limits.keep_results
            # The most recently used job is kept even if it is too large by itself.
            too_large = used > self.limits.keep_bytes and job is not over[-1]
            if job.last_seen < late or too_many or too_large:
                expired.append(job)
                used -= job.footage.folder.bytes
        return expired


def remove_leftovers() -> None:
    """Remove the results of servers that were killed. Running servers have locked theirs."""
    if not hasattr(os, "getuid"):
        return  # Windows cannot lock folders: nothing tells which are left over
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        try:
            state = folder.stat(follow_symlinks=False)
            # A server that has just started may not have locked its folder yet.
            is_new = time.time() - state.st_mtime < NEW_SECONDS
            if is_new or state.st_uid != os.getuid() or is_locked_here(folder):
                continue
            lock_folder(folder)
        except (OSError, FlowError):
            continue
        if is_locked_here(folder):  # not where folders cannot be locked
            shutil.rmtree(folder, ignore_errors=True)
            unlock_folder(folder)


def save_iteration(job: Job, task: Task, refinement: Refinement) -> None:
    """Save the flow after a refinement. Half precision is enough for pictures."""
    flow = refinement.flow()
    if flow is None:
        job.in_parts = True
    else:
        name = task.name(iteration_name(refinement.number))
        job.footage.folder.save(name, flow.astype(np.float16))


def save_result(job: Job, task: Task, result: Flow | BidirectionalFlow) -> None:
    """Save the final flow of a pair, and occlusion and confidence if they were computed."""
    folder = job.footage.folder
    if isinstance(result, BidirectionalFlow):
        code = result.occluded_in + 2 * result.occluded_out.astype(np.uint8)
        folder.save(task.name("occlusion"), code)
        folder.save(task.name("confidence"), result.confidence.astype(np.float16))
        result = result.forward
    folder.save(task.name("flow"), result.array)
    job.in_tiles = job.in_tiles or result.in_tiles
    job.max_flow = max(job.max_flow, largest_length(result.array))
