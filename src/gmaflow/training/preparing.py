"""Making ready: everything is checked before a file is touched."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from gmaflow.errors import TrainingError, WeightsError
from gmaflow.model import FlowNetwork
from gmaflow.training.batch import Batch
from gmaflow.training.checkpoints import TrainState, restore_random
from gmaflow.training.compiling_ahead import compiled_step
from gmaflow.training.config import TrainConfig
from gmaflow.training.distributed import World
from gmaflow.training.run_folder import RunFolder
from gmaflow.training.schedule import StepPlan
from gmaflow.training.sources import Source, load_textures, open_source
from gmaflow.training.step import StepResult, TrainStep
from gmaflow.training.validation import Validation
from gmaflow.weights import find_checkpoint

AT_ONCE = 0.5
"""Seconds within which a folder that is missing is noticed; reading textures takes longer."""

Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where and how long a run runs; none of it changes what is learned."""

    output: Path = Path("run")
    """The folder for everything about the run."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps."""
    resume: bool = False
    """Go on with the run in that folder."""
    overwrite: bool = False
    """Replace the run in that folder."""
    stop_after: float = 0.0
    """Seconds after which to stop, with a checkpoint to resume from; 0: when it is done."""
    quiet: bool = False
    """Show no progress."""
    eager: bool = False
    """On a GPU, run every step kernel by kernel: slower, but without compiling at the start."""


@dataclass
class Job:
    """A run that is ready to go on."""

    folder: RunFolder
    step: TrainStep
    learn: Callable[[Batch, StepPlan], StepResult]
    """Does the step: itself, or a recording of it."""
    source: Source
    validation: Validation
    start: int
    """Steps done before."""
    best: float | None


def prepare(config: TrainConfig, options: RunOptions, world: World, device: torch.device) -> Job:
    """Check everything, build everything, and open the run's folder.

    Raises:
        FlowError: Something is missing, or does not fit; nothing has been written then.
    """
    folder = RunFolder(options.output)
    folder.check(config, resume=options.resume, overwrite=options.overwrite)
    state = folder.checkpoints.newest() if options.resume else None
    network = make_network(config)
    fast = is_recorded(options, world, device)
    opening = partial(open_data, config, device, world, compiled=fast)
    learn: Callable[[Batch, StepPlan], StepResult]
    if fast:
        with done_beside(opening) as opened:
            learn = compiled_step(network, config, device, meanwhile=partial(make_ready, opened))
        step = learn.step
        source, validation = opened.result()
    else:
        learn = step = TrainStep(network.to(device), config, world=world)
        source, validation = opening()
    if state is not None:
        take_up(step, state, folder)
    start = config.start_step if state is None else state.step
    world.barrier()
    if world.is_first:
        if state is None:
            folder.begin(config)
        else:
            folder.write_config(config)
            folder.rewind(state.step)
    best = None if state is None else state.best
    return Job(folder, step, learn, source, validation, start, best)


def is_recorded(options: RunOptions, world: World, device: torch.device) -> bool:
    """Tell whether a run's steps are compiled and recorded."""
    return device.type == "cuda" and world.size == 1 and not options.eager


def open_data(
    config: TrainConfig, device: torch.device, world: World, *, compiled: bool
) -> tuple[Source, Validation]:
    """Open what a run learns from and what it validates on."""
    try:
        # Validation first: a folder that is missing is told sooner.
        validation = Validation(config, device, world)
        return open_source(config, device, world, compiled=compiled), validation
    finally:
        load_textures.cache_clear()  # they are with those who need them


def make_ready(opened: "Future[tuple[Source, Validation]]") -> None:
    """Wait for the data, and do ahead what only the first batch takes."""
    source, _ = opened.result()
    with suppress(torch.OutOfMemoryError):  # others compile; there is more room once they are done
        source.make_ready()


@contextmanager
def done_beside(work: Callable[[], Made]) -> "Iterator[Future[Made]]":
    """Do some work in a thread while the block runs; what it refuses at once is raised at once."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="gmaflow-beside") as thread:
        made = thread.submit(work)
        wait([made], timeout=AT_ONCE)
        if made.done():
            made.result()
        yield made


def make_network(config: TrainConfig) -> FlowNetwork:
    """Return the network with its first weights: random by the seed, or those of `init`.

    Raises:
        WeightsError: The weights are missing, broken or of another network.
    """
    torch.manual_seed(config.seed)
    network = FlowNetwork(config.network)
    if config.init:
        checkpoint = find_checkpoint(config.init)
        if checkpoint.origin == "gmaflow" and checkpoint.config != config.network:
            from gmaflow.weights import describe

            raise WeightsError(
                f"{config.init} holds {describe(checkpoint.config)}, but the run trains "
                f"{describe(config.network)}; choose the model that the weights are for"
            )
        try:
            network.load_state_dict(checkpoint.tensors)
        except RuntimeError:
            raise WeightsError(
                f"{config.init} holds weights of another network than {config.model}"
            ) from None
    return network


def take_up(step: TrainStep, state: TrainState, folder: RunFolder) -> None:
    """Put a run back to where a checkpoint left it."""
    try:
        step.load_state(state.tensors)
    except TrainingError as err:
        raise TrainingError(f"{folder.path}: its checkpoint cannot be resumed, {err}") from None
    restore_random(state.random)
