"""The training loop."""

import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch

from gmaflow.errors import INTERRUPTED, OutputError, TrainingError, counted, print_stderr
from gmaflow.runtime.device import is_out_of_memory
from gmaflow.training import reporting
from gmaflow.training.config import TrainConfig, plan_at
from gmaflow.training.distributed import World, joined_world
from gmaflow.training.reporting import Meter, Reporter
from gmaflow.training.run_folder import RunFolder, TrainState, random_states
from gmaflow.training.setup import RunOptions, TrainingRun, is_recorded, prepare
from gmaflow.training.validation import Validation

AGREE_EVERY = 10
"""Steps between two checks for a stop with several processes, since communication takes time."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
REASONS = ("", "time limit reached", "interrupted")
"""Reasons to stop; if processes differ, the one listed last counts."""
GRACE = 2.0
"""Seconds after a second Ctrl-C before the process ends itself."""
PATIENCE = 5.0
"""Seconds that a step may take to finish after the first Ctrl-C."""
SLOW = 1.0
"""Seconds; before a step that may take longer, the state is copied so that it can be saved."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """How a run ended."""

    folder: Path
    steps: int
    """Finished steps, including those before resuming."""
    stopped: str
    """Why it stopped before its last step; empty if it finished."""
    skipped: int
    """Steps skipped because the loss or gradient was not finite."""
    last: dict[str, float]
    """The last line of the log."""
    best: float | None
    """The lowest validation error."""

    def describe(self) -> str:
        figures = reporting.format_values(self.last)
        skipped = f", {counted(self.skipped, 'step')} skipped (not finite)" if self.skipped else ""
        best = "" if self.best is None else f", best validation error {self.best:.3f} px"
        ended = f"stopped ({self.stopped})" if self.stopped else "done"
        more = "; add --resume to continue" if self.stopped else ""
        return (
            f"{ended} after {counted(self.steps, 'step')}: {figures or 'nothing left to do'}{best}"
            f"{skipped}; see {self.folder}{more}"
        )


def train(config: TrainConfig, options: RunOptions) -> RunSummary:
    """Train a network, or resume training it.

    Raises:
        FlowError: something is missing or does not fit, or the run cannot continue.
    """
    if not config.data:
        raise TrainingError(
            "there is no training data; give a folder of frames, each with a flow file of the "
            "same stem (--data folder:my/frames, in Python data=), or scenes:mix"
        )
    options = start_or_resume(options)
    with joined_world(options.device) as (world, device):
        if world.is_first and not options.quiet:
            recorded = is_recorded(options, device)
            print_stderr(reporting.introduce(config, device, compiling=recorded))
        with explaining_out_of_memory(config):
            run = prepare(config, options, world, device)
        if world.is_first and not options.quiet:
            for note in run.notes:
                print_stderr(note)
        with StopRequest(after=options.stop_after or None) as stop:
            return run_steps(run, stop, show=not options.quiet)


def start_or_resume(options: RunOptions) -> RunOptions:
    """Under torchrun, let `--resume` start a run that has no checkpoint yet.

    torchrun repeats the same command after a process or a machine was lost.
    """
    if not options.resume or "TORCHELASTIC_RUN_ID" not in os.environ:
        return options
    folder = RunFolder(options.output)
    if folder.checkpoints.paths():
        return options
    return replace(options, resume=False, overwrite=folder.record.exists())


def run_steps(run: TrainingRun, stop: "StopRequest", *, show: bool) -> RunSummary:
    """Execute the remaining steps."""
    config, first, device = run.config, run.world.is_first, run.step.device
    meter = Meter(device, run.world)
    done, stopped, last, slow = run.start, "", {}, True
    with Reporter(run.folder, config, start=done, show=show and first, record=first) as reporter:
        batches = run.source.batches(done)
        for step in range(done, config.steps):
            begun = time.monotonic()
            with stop.rescuing(run, done, enabled=slow), explaining_out_of_memory(config):
                result = run.train_step(next(batches), plan_at(step, config))
            slow = time.monotonic() - begun > SLOW
            meter.add(result, config.batch)
            done = step + 1
            reporter.advance(done)
            stopped = "" if done == config.steps else stop.agreed(done, run.world, device)
            ending = done == config.steps or bool(stopped)
            if ending or done % config.log_every == 0:
                check_progress(run, done)
                last = meter.read() | run.step.progress()
                reporter.log(done, last)
            due = ending and stopped != "interrupted"  # nobody waits for it after Ctrl-C
            if run.validation and (due or done % config.validate_every == 0):
                with stop.rescuing(run, done), saving_on_error(run, done):
                    validate(run, run.validation, done, reporter)
            if ending or done % config.save_every == 0:
                save(run, done, last=ending)
            if ending:
                break
    if first:
        reporting.draw_curve(run.folder, config)
    return RunSummary(
        folder=run.folder.path,
        steps=done,
        stopped=stopped,
        skipped=int(run.step.skipped),
        last=last,
        best=run.best,
    )


def validate(run: TrainingRun, validation: Validation, step: int, reporter: Reporter) -> None:
    """Measure the errors on the validation sets, and save the weights if they are the best."""
    with run.step.evaluating() as network:
        errors_by_set = validation.errors(network)
    for name, errors in errors_by_set.items():
        reporter.log(step, errors, name=name)
    error = next(iter(errors_by_set.values())).get("epe")
    # Not NaN: no later error would be lower.
    if error is not None and math.isfinite(error) and (run.best is None or error < run.best):
        run.best = error
        if reporter.record:
            run.folder.save_best(state_of(run, step))


def save(run: TrainingRun, step: int, *, last: bool) -> None:
    """Write a checkpoint and the weights."""
    if run.world.is_first:
        run.folder.save(state_of(run, step), last=last)
    run.world.barrier()


def state_of(run: TrainingRun, step: int) -> TrainState:
    return TrainState(
        config=run.config,
        step=step,
        tensors=run.step.state(),
        best=run.best,
        random=random_states(),
    )


def check_progress(run: TrainingRun, step: int) -> None:
    """Stop a run that has skipped too many steps in a row."""
    in_row = int(run.step.skipped_in_row)
    if in_row >= run.config.max_skipped:
        raise TrainingError(
            f"the loss or gradient of the last {in_row} steps up to {step} was not finite; start "
            "a new run from the last weights with a lower lr, or train in fp32"
        )


@contextmanager
def saving_on_error(run: TrainingRun, step: int) -> Iterator[None]:
    """Save a checkpoint if validation fails."""
    try:
        yield
    except Exception as err:
        if run.world.is_first:
            run.folder.save(state_of(run, step), last=True)
        if is_out_of_memory(err):
            raise TrainingError(
                f"a pair of {', '.join(run.config.validate_on)} does not fit into memory; validate "
                f"on smaller frames, then resume: step {step} is saved"
            ) from err
        raise


@contextmanager
def explaining_out_of_memory(config: TrainConfig) -> Iterator[None]:
    """Turn an out-of-memory error into advice."""
    try:
        yield
    except (MemoryError, RuntimeError) as err:
        if not is_out_of_memory(err):
            raise
        parts, unit, remedies = 2 * config.parts, config.parts * config.ways, []
        if config.batch % (2 * unit) == 0:
            remedies.append(f"accumulate={parts} (the same batch in {parts} parts)")
        if config.batch > unit:
            remedies.append(f"batch={max(unit, config.batch // 2 // unit * unit)}")
        remedies += ["a smaller crop", "fewer iters"]
        height, width = config.crop
        raise TrainingError(
            f"a batch of {config.batch} at {height}x{width} with "
            f"{counted(config.iters, 'iteration')} of "
            f"{config.model} does not fit into memory; try {', '.join(remedies)}"
        ) from err


class StopRequest:
    """Stops a run between two steps: on Ctrl-C, SIGTERM, or after a time limit.

    A step or a validation that takes too long to finish is abandoned: the state before it is saved,
    and the process ends. A second Ctrl-C stops it immediately. Python runs signal handlers only
    between two calls of torch, which may take minutes, so a thread reads the signals as they come.
    """

    def __init__(self, *, after: float | None) -> None:
        self.deadline = None if after is None else time.monotonic() + after
        self.signalled = False
        self._previous: dict[int, object] = {}
        self._left = threading.Event()
        self._rescue: tuple[TrainingRun, TrainState] | None = None
        self._ending = threading.Lock()

    def __enter__(self) -> "StopRequest":
        # Only the main thread may set signal handlers.
        if threading.current_thread() is threading.main_thread():
            self._received, self._sent = socket.socketpair()
            self._sent.setblocking(False)
            self._listener = threading.Thread(target=self._listen, daemon=True)
            self._listener.start()
            self._previous_fd = signal.set_wakeup_fd(self._sent.fileno())
            for number in STOP_SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_error: object) -> None:
        self._left.set()
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if self._previous:
            signal.set_wakeup_fd(self._previous_fd)
            self._sent.close()  # ends the thread
            self._listener.join()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signalled:
            raise KeyboardInterrupt("the last checkpoint is kept; add --resume to continue")
        self.signalled = True

    @contextmanager
    def rescuing(self, run: TrainingRun, done: int, *, enabled: bool = True) -> Iterator[None]:
        """Let an interrupt save the current state if the body takes too long.

        Several processes cannot stop in the middle of a step.
        """
        if enabled and run.world.size == 1:
            state = state_of(run, done)
            tensors = {name: value.detach().clone() for name, value in state.tensors.items()}
            self._rescue = run, replace(state, tensors=tensors)
        try:
            yield
        finally:
            with self._ending:  # waits forever if the process is about to end
                self._rescue = None

    def _listen(self) -> None:
        """Answer the first signal, and end the process if torch does not return."""
        answered = False
        with self._received:
            while True:
                try:
                    number = self._received.recv(1)
                except TimeoutError:
                    self._give_up()
                    self._received.settimeout(0.5)
                    continue
                if not number:
                    return
                if number[0] not in STOP_SIGNALS:
                    continue
                if not answered:
                    print_stderr("finishing this step; press Ctrl-C again to stop now")
                    answered = True
                    self._received.settimeout(PATIENCE)
                elif not self._left.wait(GRACE):
                    end_process("gmaflow: interrupted; the last checkpoint is kept; add --resume")

    def _give_up(self) -> None:
        """Save the state before the current step, and end the process."""
        with self._ending:
            if self._rescue is None:
                return
            run, state = self._rescue
            if state.step > run.start:
                try:
                    run.folder.save(state, last=True)
                except OutputError as err:
                    end_process(f"gmaflow: {err}")
            end_process(
                f"stopped (interrupted) after {counted(state.step, 'step')}, since the next takes "
                f"long; see {run.folder.path}; add --resume to continue"
            )

    @property
    def reason(self) -> str:
        """Why to stop; empty if there is no reason."""
        if self.signalled:
            return "interrupted"
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return "time limit reached"
        return ""

    def agreed(self, step: int, world: World, device: torch.device) -> str:
        """Return why to stop after this step, or ""; all processes get the same answer."""
        if world.size == 1:
            return self.reason
        if step % AGREE_EVERY:
            return ""
        reason = torch.tensor(float(REASONS.index(self.reason)), device=device)
        return REASONS[int(world.any(reason))]


def end_process(message: str) -> NoReturn:
    """End the process from a thread, while torch computes in another."""
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # the bar hides the cursor
    print_stderr(f"{show_cursor}{message}")
    os._exit(INTERRUPTED)
