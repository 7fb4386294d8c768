"""One pair with one model, computed under supervision."""

import time
from collections.abc import Callable

from gmaflow.inference import BidirectionalFlow, FlowEstimator, Refinement
from gmaflow.serving.jobs import Job, Task
from gmaflow.viz import largest_length


class StoppedError(Exception):
    """The job is to stop."""


class TookTooLongError(Exception):
    """The task's time is over."""


def run_task(
    job: Job, task: Task, estimator: FlowEstimator, *, seconds: float, supervise: Callable[[], None]
) -> None:
    """Estimate a pair and keep the results.

    Args:
        job: The job; how far it is is written into it.
        task: Which pair, which model.
        estimator: Of that model.
        seconds: How long it may take.
        supervise: Called between refinements; may ask the job to stop.

    Raises:
        StoppedError: The job was asked to stop.
        TookTooLongError: It took longer than it may.
        FlowError: The pair cannot be estimated.
    """
    started = time.monotonic()
    folder = job.footage.folder

    def watch(refinement: Refinement) -> None:
        supervise()
        if job.stop is not None:
            raise StoppedError
        if time.monotonic() - started > seconds:
            raise TookTooLongError
        if job.wish.every_iteration and refinement.number < refinement.total:
            keep(refinement)
        job.iteration = job.wish.iters * refinement.number // refinement.total

    def keep(refinement: Refinement) -> None:
        flow = refinement.flow()
        if flow is None:
            job.in_parts = True
        else:
            folder.save_iteration(task.pair, task.model, refinement.number, flow)

    estimator = estimator.with_iters(job.wish.iters)
    images = folder.frame(task.pair), folder.frame(task.pair + 1)
    estimate = estimator.bidirectional if job.wish.bidirectional else estimator
    found = estimate(*images, watch=watch)
    flow = found.forward if isinstance(found, BidirectionalFlow) else found
    job.in_tiles = job.in_tiles or flow.in_tiles
    folder.save(task.pair, task.model, found)
    job.max_flow = max(job.max_flow, largest_length(flow.array))
