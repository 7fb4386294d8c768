"""Where jobs are done: one at a time, in a thread of its own beside the event loop."""

import logging
import tempfile
import time
from collections import deque
from pathlib import Path
from threading import Condition, Thread

from gmaflow.errors import FlowError, OutputError
from gmaflow.runtime.memory import give_back_freed
from gmaflow.serving.attending import AttentionCache
from gmaflow.serving.jobs import Footage, Job, JobStatus, State, Task, Wish
from gmaflow.serving.limits import Limits
from gmaflow.serving.refusals import RefusedError, gone, own_failure, too_busy
from gmaflow.serving.results import ResultFolder
from gmaflow.serving.shelf import ModelShelf
from gmaflow.serving.tasks import StoppedError, TookTooLongError, run_task
from gmaflow.serving.turns import Turns

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
UNSEEN = "nobody asked about it any more"
REMEMBERED = 10_000
"""Names of deleted jobs, for which the answer is 410 rather than 404."""


class Workshop:
    """Queue, worker and results of a server.

    Args:
        shelf: The models.
        limits: What may be asked for, and how long results are kept.
    """

    def __init__(self, shelf: ModelShelf, limits: Limits) -> None:
        self.shelf = shelf
        self.limits = limits
        self.attention = AttentionCache()
        self.closing = False
        self._jobs: dict[str, Job] = {}
        self._turns = Turns()
        self._gone: deque[str] = deque(maxlen=REMEMBERED)
        # One lock for everything: whoever holds it only moves a few references.
        self._changed = Condition()
        self._folder = tempfile.TemporaryDirectory(prefix="gmaflow-serve-")
        self._made = 0
        self._thread = Thread(target=self._work, name="gmaflow-worker", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def close(self) -> None:
        """Cancel everything and take nothing more; the worker stops at its next refinement."""
        with self._changed:
            self.closing = True
            for job in self._jobs.values():
                self._stop(job, "the server is shutting down")
            self._changed.notify_all()

    def wait_closed(self) -> None:
        """Wait for the worker, and delete all results."""
        self.close()
        self._thread.join()
        self._folder.cleanup()

    def new_folder(self) -> ResultFolder:
        """Return an empty place for a job's frames and results."""
        with self._changed:
            self._made += 1
            return ResultFolder(Path(self._folder.name) / f"{self._made:08d}")

    def admit(self, client: str) -> None:
        """Refuse a client whose next job would not be taken, before its upload is read.

        Raises:
            RefusedError: There is no room, or the server shuts down.
        """
        with self._changed:
            if self.closing:
                raise RefusedError(503, "the server is shutting down")
            waiting = [job for job in self._jobs.values() if not job.state.over]
            own = sum(job.client == client for job in waiting)
            if own >= self.limits.queue:
                raise too_busy(f"you have {own} unfinished jobs, as many as may be; try later")
            if len(waiting) >= self.limits.queue_of_all:
                raise too_busy("the server has as many jobs as it takes; try later")
            if sum(job.footage.folder.bytes for job in waiting) > self.limits.keep_bytes:
                raise too_busy("the server's disk is full of unfinished jobs; try later")

    def submit(self, client: str, footage: Footage, wish: Wish) -> Job:
        """Put a job into the queue.

        Raises:
            RefusedError: There is no room, or the server shuts down.
        """
        with self._changed:
            self.admit(client)
            job = Job(client, footage, wish)
            self._jobs[job.id] = job
            self._turns.add(job)
            self._changed.notify_all()
            return job

    def find(self, job_id: str) -> Job:
        """Return a job, and note that somebody cares for it.

        Raises:
            RefusedError: There is none, or none any more.
        """
        with self._changed:
            job = self._jobs.get(job_id)
            if job is None:
                if job_id in self._gone:
                    raise gone()
                raise RefusedError(404, "there is no such job")
            job.seen = time.monotonic()
            return job

    def status(self, job: Job) -> JobStatus:
        """Return what a client is told of a job."""
        with self._changed:
            waiting = self._turns.order()
            return job.status(waiting.index(job) + 1 if job in waiting else 0)

    def counts(self) -> tuple[int, int]:
        """Return how many jobs wait, and how many there are in all."""
        with self._changed:
            return len(self._turns), len(self._jobs)

    def seek(self, job: Job, pair: int) -> None:
        """Let a clip go on with this pair."""
        with self._changed:
            job.seek(pair)

    def cancel(self, job: Job) -> None:
        """Stop a job that is not over; what it has done can still be looked at."""
        with self._changed:
            self._stop(job, "cancelled")

    def forget(self, job: Job) -> None:
        """Stop a job and delete it with its results."""
        with self._changed:
            self._stop(job, "cancelled")
            if self._jobs.pop(job.id, None) is not None:
                self._gone.append(job.id)
        self.attention.forget(job)
        # What is still computing keeps its folder until it has stopped.
        if job.state.over:
            job.footage.folder.delete()

    def _stop(self, job: Job, why: str) -> None:
        if job.state.over:
            return
        job.stop = why
        if self._turns.remove(job):
            job.state, job.error = State.CANCELLED, why

    def _work(self) -> None:
        while True:
            self._sweep()
            with self._changed:
                job = self._turns.take()
                if job is None:
                    if self.closing:
                        return
                    self._changed.wait(SWEEP_SECONDS)
                    continue
                job.state, job.iteration = State.RUNNING, 0
            self._one_task(job)
            if not len(self._turns):
                give_back_freed()  # a burst may have left gigabytes with the C library

    def _one_task(self, job: Job) -> None:
        """Do a job's next task; whatever goes wrong ends the job, never the worker."""
        task = job.todo[0]
        started = time.monotonic()
        state, error = State.QUEUED, None
        try:
            estimator = self.shelf.estimator(job.wish.models[task.model])
            run_task(
                job,
                task,
                estimator,
                seconds=self.limits.job_seconds,
                supervise=lambda: self._give_up_unseen(job),
            )
            if job.wish.prepare_attention and estimator.config.aggregates:
                self.attention.prepare(job, task, estimator)
        except StoppedError:
            state, error = State.CANCELLED, job.stop
        except TookTooLongError:
            job.timed_out = True
            limit = f"{self.limits.job_seconds:g} s"
            state, error = State.FAILED, f"it took longer than {limit}; send smaller images"
        except Exception as err:
            state, error = State.FAILED, str(err)
            if isinstance(err, OutputError) or not isinstance(err, FlowError):
                log.exception("a job failed")
                error = own_failure(err).detail
        with self._changed:
            job.seconds += time.monotonic() - started
            self._settle(job, task, state, error)
        if job.id not in self._jobs:
            job.footage.folder.delete()

    def _settle(self, job: Job, task: Task, state: State, error: str | None) -> None:
        """Note what became of a task, and let the job wait for its next turn if it has one."""
        job.iteration = 0
        if state is State.QUEUED:
            job.todo.remove(task)
            job.done.add(task)
            if job.stop is not None:
                state, error = State.CANCELLED, job.stop
            elif not job.todo:
                state = State.DONE
        job.error, job.state = error, state
        if state is State.QUEUED:
            self._turns.add(job)

    def _give_up_unseen(self, job: Job) -> None:
        if time.monotonic() - job.seen > self.limits.unseen_seconds:
            job.stop = UNSEEN

    def _sweep(self) -> None:
        """Delete what nobody looked at for long, and what is too much."""
        now = time.monotonic()
        with self._changed:
            for job in self._turns.order():
                if now - job.seen > self.limits.unseen_seconds:
                    self._stop(job, UNSEEN)
            expired = self._expired(now)
        for job in expired:
            self.forget(job)

    def _expired(self, now: float) -> list[Job]:
        """Return the finished jobs whose time is over, or whose room is needed."""
        late = now - 60 * self.limits.keep_minutes
        over = sorted((job for job in self._jobs.values() if job.state.over), key=lambda j: j.seen)
        taken = sum(job.footage.folder.bytes for job in self._jobs.values())
        expired: list[Job] = []
        for job in over:
            many = len(over) - len(expired) > self.limits.keep_results
            # The last one seen stays even where it is too large by itself.
            full = taken > self.limits.keep_bytes and job is not over[-1]
            if job.seen < late or many or full:
                expired.append(job)
                taken -= job.footage.folder.bytes
        return expired
