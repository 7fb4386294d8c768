"""The setup of a run: everything is checked before a file is written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from gmaflow.data import Batch
from gmaflow.errors import TrainingError, WeightsError
from gmaflow.model import FlowNetwork
from gmaflow.training.config import TrainConfig
from gmaflow.training.distributed import World
from gmaflow.training.recorded import RecordedStep
from gmaflow.training.run_folder import RunFolder, TrainState, restore_random
from gmaflow.training.schedule import StepPlan
from gmaflow.training.sources import Source, load_textures, open_source
from gmaflow.training.step import StepResult, TrainStep
from gmaflow.training.validation import Validation
from gmaflow.weights import find_checkpoint
from gmaflow.weights.checkpoint import with_continuation


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where and how long to run. None of it changes the trained weights."""

    output: Path = Path("run")
    """Folder of the run."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps."""
    resume: bool = False
    """Continue the run in the folder."""
    overwrite: bool = False
    """Replace the run in the folder."""
    stop_after: float = 0.0
    """Stop after this many seconds, with a checkpoint to resume from; 0: no limit."""
    quiet: bool = False
    """Do not show progress."""
    eager: bool = False
    """On a GPU, do not compile and record the steps: slower steps, but an immediate start."""


@dataclass
class TrainingRun:
    """A run that is ready to start or resume."""

    config: TrainConfig
    world: World
    folder: RunFolder
    step: TrainStep
    learn: Callable[[Batch, StepPlan], StepResult]
    """Executes a step: the step itself, or a recording of it."""
    source: Source
    validation: Validation | None
    """None if the config has no validation."""
    start: int
    """Number of steps already done."""
    best: float | None
    """The lowest validation error so far."""


def prepare(
    config: TrainConfig, options: RunOptions, world: World, device: torch.device
) -> TrainingRun:
    """Check and build everything, then open the run's folder.

    Raises:
        FlowError: something is missing or does not fit; no file has been written.
    """
    folder = RunFolder(options.output)
    folder.check(config, resume=options.resume, overwrite=options.overwrite)
    state = folder.checkpoints.newest() if options.resume else None
    network = make_network(config)
    recorded = is_recorded(options, world, device)
    try:
        # Validation first: it finds a missing folder sooner.
        validation = Validation(config, device, world) if config.validate_every else None
        source = open_source(config, device, world, compiled=recorded)
    finally:
        load_textures.cache_clear()  # the renderers hold them now
    step = TrainStep(network.to(device), config, world=world)
    if state is not None:
        restore(step, state, folder)
    world.barrier()
    if world.is_first:
        if state is None:
            folder.begin(config)
        else:
            folder.write_config(config)
            folder.rewind(state.step)
    return TrainingRun(
        config=config,
        world=world,
        folder=folder,
        step=step,
        learn=RecordedStep(step) if recorded else step,
        source=source,
        validation=validation,
        start=config.start_step if state is None else state.step,
        best=None if state is None else state.best,
    )


def is_recorded(options: RunOptions, world: World, device: torch.device) -> bool:
    """Return whether steps are compiled and recorded."""
    return device.type == "cuda" and world.size == 1 and not options.eager


def make_network(config: TrainConfig) -> FlowNetwork:
    """Return the network with its initial weights: random by the seed, or those of `init`.

    Raises:
        WeightsError: the weights are missing, broken or of another network.
    """
    torch.manual_seed(config.seed)
    network = FlowNetwork(config.network)
    if config.init:
        checkpoint = with_continuation(find_checkpoint(config.init), config.network)
        if checkpoint.origin == "gmaflow" and checkpoint.config != config.network:
            from gmaflow.weights import describe

            raise WeightsError(
                f"{config.init} contains {describe(checkpoint.config)}, but the run trains "
                f"{describe(config.network)}; choose the model of the weights"
            )
        try:
            network.load_state_dict(checkpoint.tensors)
        except RuntimeError:
            raise WeightsError(
                f"{config.init} contains weights of another network than {config.model}"
            ) from None
    return network


def restore(step: TrainStep, state: TrainState, folder: RunFolder) -> None:
    """Restore the state of a checkpoint."""
    try:
        step.load_state(state.tensors)
    except TrainingError as err:
        raise TrainingError(f"{folder.path}: cannot resume from its checkpoint, {err}") from None
    restore_random(state.random)
