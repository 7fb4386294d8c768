"""The training loop: one page."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gmaflow.errors import TrainingError, say
from gmaflow.runtime.memory import is_out_of_memory
from gmaflow.training import reporting
from gmaflow.training.checkpoints import TrainState, random_states
from gmaflow.training.config import TrainConfig
from gmaflow.training.distributed import World, joined_world
from gmaflow.training.meter import Meter
from gmaflow.training.preparing import Job, RunOptions, is_recorded, prepare
from gmaflow.training.reporting import Reporter
from gmaflow.training.schedule import plan_at
from gmaflow.training.stopping import StopRequest
from gmaflow.viz import Series, save_plot


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """How a run ended."""

    folder: Path
    steps: int
    """Steps done, those of earlier starts included."""
    stopped: str
    """Why it ended before its last step; empty if it did not."""
    skipped: int
    """Steps whose loss or gradient was not finite."""
    last: dict[str, float]
    """The last line of the log."""
    best: float | None
    """The lowest validation error."""

    def told(self) -> str:
        """Return the summary as a person would say it."""
        figures = reporting.describe(self.last)
        skipped = f", {self.skipped} steps skipped as not finite" if self.skipped else ""
        best = "" if self.best is None else f", best validation error {self.best:.3f} px"
        ended = f"stopped ({self.stopped})" if self.stopped else "done"
        more = "; add --resume to go on" if self.stopped else ""
        return (
            f"{ended} after {self.steps} steps: {figures or 'nothing was left to do'}{best}"
            f"{skipped}; see {self.folder}{more}"
        )


def train(config: TrainConfig, options: RunOptions) -> RunSummary:
    """Train a network, or go on training it.

    Raises:
        FlowError: Something is missing or does not fit, or the run cannot go on.
    """
    if not config.data:
        raise TrainingError(
            "nothing to learn from is named; give a folder of frames, each with a flow file of the "
            "same stem beside it (--data folder:my/frames, in Python data=), or scenes:mix"
        )
    with joined_world(options.device) as (world, device):
        if world.is_first and not options.quiet:
            recorded = is_recorded(options, world, device)
            say(reporting.introduce(config, device, compiling=recorded))
        with explaining_shortage(config):
            job = prepare(config, options, world, device)
        with StopRequest(after=options.stop_after or None) as stop:
            return run(job, config, stop, world, show=not options.quiet)


def run(
    job: Job, config: TrainConfig, stop: StopRequest, world: World, *, show: bool
) -> RunSummary:
    """Do the steps that are left."""
    first, device = world.is_first, job.step.device
    meter = Meter(device, world)
    done, last = job.start, {}
    with Reporter(job.folder, config, start=done, show=show and first, record=first) as reporter:
        batches = job.source.batches(done)
        for step in range(done, config.steps):
            with explaining_shortage(config):
                result = job.learn(next(batches), plan_at(step, config))
            meter.add(result, config.batch)
            done = step + 1
            reporter.advance(done)
            ending = done == config.steps or stop.agreed(done, world, device)
            if ending or done % config.log_every == 0:
                refuse_to_drift(job, config, done)
                last = meter.read() | {"lr": float(job.step.lr), "skipped": float(job.step.skipped)}
                reporter.log(done, last)
            if config.validate_every and (ending or done % config.validate_every == 0):
                with losing_nothing(job, config, done, world):
                    validate(job, done, reporter)
            if ending or done % config.save_every == 0:
                save(job, config, done, world, last=ending)
            if ending:
                break
    if first:
        draw(job, config)
    reason = "" if done == config.steps else stop.reason or "another process stopped"
    skipped = int(job.step.skipped)
    return RunSummary(
        folder=job.folder.path, steps=done, stopped=reason, skipped=skipped, last=last,
        best=job.best,
    )  # fmt: skip


def validate(job: Job, step: int, reporter: Reporter) -> None:
    """Measure the errors on the validation sets, and keep the weights if they are the best."""
    with job.step.evaluating() as network:
        found = job.validation.errors(network)
    for name, errors in found.items():
        reporter.log(step, errors, name=name)
    error = next(iter(found.values())).get("epe")
    if error is not None and (job.best is None or error < job.best):
        job.best = error
        if reporter.record:
            job.folder.save_best(state_of(job, reporter.config, step), job.step.weights())


@contextmanager
def losing_nothing(job: Job, config: TrainConfig, step: int, world: World) -> Iterator[None]:
    """Write down what was learned if something fails that has nothing to do with it.

    Raises:
        TrainingError: Memory does not suffice.
    """
    try:
        yield
    except Exception as err:
        if world.is_first:
            job.folder.save(state_of(job, config, step), job.step.weights(), last=True)
        if is_out_of_memory(err):
            raise TrainingError(
                f"a pair of {', '.join(config.validate_on)} does not fit into memory; validate on "
                f"smaller frames, then resume: step {step} is kept"
            ) from err
        raise


def save(job: Job, config: TrainConfig, step: int, world: World, *, last: bool) -> None:
    """Write down all that is needed to go on."""
    if world.is_first:
        job.folder.save(state_of(job, config, step), job.step.weights(), last=last)
    world.barrier()


def state_of(job: Job, config: TrainConfig, step: int) -> TrainState:
    """Return the run as it is now."""
    return TrainState(
        config=config, step=step, tensors=job.step.state(), best=job.best, random=random_states()
    )


def refuse_to_drift(job: Job, config: TrainConfig, step: int) -> None:
    """Stop a run whose steps have long come to nothing."""
    in_row = int(job.step.skipped_in_row)
    if in_row >= config.max_skipped:
        raise TrainingError(
            f"the last {in_row} steps up to {step} had a loss or gradient that was not finite, and "
            "changed nothing; resume from the last checkpoint with a lower lr in a new run, or "
            "train in fp32"
        )


def draw(job: Job, config: TrainConfig) -> None:
    """Draw the log as curves."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for line in job.folder.read_log():
        if math.isfinite(line.get("epe", math.nan)):
            name = f"EPE on {line['set']}" if "set" in line else "EPE in training"
            curves.setdefault(name, []).append((float(line["step"]), line["epe"]))
    title = f"{config.model} on {config.data}: end-point error in pixels"
    series = [Series(name, *np.array(p).T) for name, p in curves.items() if len(p) > 1]
    if series:
        path = job.folder.path / "curve.png"
        save_plot(path, series, title=title, x_label="step", y_label="pixels")


@contextmanager
def explaining_shortage(config: TrainConfig) -> Iterator[None]:
    """Say what would help where memory does not suffice.

    Raises:
        TrainingError: It does not.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as err:
        if not is_out_of_memory(err):
            raise
        parts, unit, less = 2 * config.accumulate, config.accumulate * config.ways, []
        if config.batch % (2 * unit) == 0:
            less.append(f"accumulate={parts} (the same batch in {parts} parts)")
        if config.batch > unit:
            less.append(f"batch={max(unit, config.batch // 2 // unit * unit)}")
        less += ["a smaller crop", "fewer iters"]
        height, width = config.crop
        raise TrainingError(
            f"a batch of {config.batch} at {height}x{width} with {config.iters} iterations of "
            f"{config.model} does not fit into memory; try {', '.join(less)}"
        ) from err
