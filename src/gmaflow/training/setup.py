"""The setup of a run: everything is checked before a file is written."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from gmaflow.data import Batch
from gmaflow.errors import TrainingError, WeightsError, counted
from gmaflow.model import MIN_SIDE, STRIDE, FlowNetwork
from gmaflow.runtime.device import (
    as_precision,
    free_memory,
    has_kernels,
    memory_budget,
    memory_text,
    pick_dtype,
)
from gmaflow.training.config import StepPlan, TrainConfig, check_extension
from gmaflow.training.distributed import World
from gmaflow.training.recorded import RecordedStep
from gmaflow.training.run_folder import RunFolder, restore_random
from gmaflow.training.sources import Source, load_textures, open_source
from gmaflow.training.step import StepResult, TrainStep
from gmaflow.training.validation import Validation
from gmaflow.weights import describe, find_checkpoint
from gmaflow.weights.checkpoint import fit_to


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
    train_step: Callable[[Batch, StepPlan], StepResult]
    """The step itself, or a CUDA graph of it."""
    source: Source
    validation: Validation | None
    """None if the config has no validation."""
    start: int
    """Number of steps already done."""
    best: float | None
    """The lowest validation error so far."""
    notes: list[str]
    """What the user should know about the setup."""


def prepare(
    config: TrainConfig, options: RunOptions, world: World, device: torch.device
) -> TrainingRun:
    """Check and build everything, then open the run's folder."""
    folder = RunFolder(options.output)
    folder.check(config, resume=options.resume, overwrite=options.overwrite)
    state = None
    if options.resume and folder.checkpoints.paths():
        state = folder.checkpoints.newest()
    notes: list[str] = []
    if state is not None:
        config = replace(config, accumulate=config.accumulate or state.config.parts)
        if config.steps > state.config.steps:
            notes.append(check_extension(state.step, state.config, config))
    else:
        config, notes = fit_into_memory(config, world, device)
        if options.resume:
            notes.append("the run has no checkpoint yet and starts from the beginning")
    network = make_network(config)
    recorded = is_recorded(options, device)
    try:
        # Validation first: it finds a missing folder sooner.
        validation = Validation(config, device, world) if config.validate_every else None
        source = open_source(config, device, world, compiled=recorded)
    finally:
        load_textures.cache_clear()  # the renderers hold them now
    step = TrainStep(network.to(device), config, world=world)
    if state is not None:
        try:
            step.load_state(state.tensors)
        except TrainingError as err:
            raise TrainingError(
                f"{folder.path}: cannot resume from its checkpoint, {err}"
            ) from None
        restore_random(state.random)
    world.copy_from_first(step.state().values())
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
        train_step=RecordedStep(step) if recorded else step,
        source=source,
        validation=validation,
        start=config.start_step if state is None else state.step,
        best=None if state is None else state.best,
        notes=notes,
    )


# Peak memory of a float32 step on a CPU: bytes for each pixel of a pair, the same for each
# iteration, and bytes for each pair of cells. Fitted to the peaks of gma from 128x160 to 368x768
# with 1 or 2 pairs and 4 to 12 iterations, which it meets within 3 %. raft takes up to 10 % less.
PIXEL_BYTES, ITERATION_BYTES, CELL_BYTES = 4800.0, 500.0, 5.0
SMALL_SHARE = 0.45
"""A step of raft-small takes this share of gma's memory; measured 0.39 to 0.45."""
CUDA_SHARE = 0.84
"""A step on a GPU takes this share of the memory; measured 13.7 GB for 16 pairs of 368x496 in half
precision."""
RENDERING_BYTES = 230.0
"""Peak memory of rendering, for each pixel of a batch."""
FIXED_BYTES = 2e8
"""The network, its optimizer and torch's kernels."""


def step_memory(
    config: TrainConfig, pairs: int, parts: int, device: torch.device, size: tuple[int, int]
) -> float:
    """Estimate the peak memory of a step on `pairs` crops of `size` in `parts` parts, in bytes."""
    pixels = size[0] * size[1]
    dtype = pick_dtype(as_precision(config.precision), device)
    share = dtype.itemsize / 4 * (CUDA_SHARE if device.type == "cuda" else 1.0)
    share *= SMALL_SHARE if config.network.small else 1.0
    iters = max(phase.iters for phase in config.growth)
    each = pixels * (PIXEL_BYTES + ITERATION_BYTES * iters) + CELL_BYTES * (pixels / STRIDE**2) ** 2
    rendering = RENDERING_BYTES * pixels * pairs if config.data.startswith("scenes:") else 0.0
    return FIXED_BYTES + max(pairs // parts * share * each, rendering)


def fit_into_memory(
    config: TrainConfig, world: World, device: torch.device
) -> tuple[TrainConfig, list[str]]:
    """Choose `accumulate` so that a step fits into memory, unless it is given.

    Returns:
        The config, and messages for the user: the memory of a step, and how it was reduced.
    """
    pairs = world.share(config.batch, parts=config.parts * config.ways)
    # Too large a step on a GPU fails with advice, so split only what cannot fit there.
    on_gpu = device.type == "cuda"
    budget = free_memory(device) if on_gpu else memory_budget(device) / world.size
    choices = [n for n in range(config.parts, pairs + 1) if pairs % (n * config.ways) == 0]
    fitting = (n for n in choices if step_memory(config, pairs, n, device, config.crop) <= budget)
    needed = torch.tensor(float(next(fitting, pairs + 1)), device=device)
    parts = int(world.any(needed))  # the same in all processes
    total = memory_text(step_memory(config, pairs, config.parts, device, config.crop))
    message = f"a step takes about {total} of memory"
    if parts == config.parts:
        return replace(config, accumulate=parts), [message]
    message += f", more than the {memory_text(budget)} to use on {device}"
    if config.accumulate:
        return config, [
            f"{message}; set accumulate={parts} if it fails" if parts <= pairs else message
        ]
    if parts > pairs:
        raise TrainingError(
            f"{message}, even pair by pair; {smaller_crop(config, device, budget)}use fewer iters, "
            f"or set accumulate={pairs // config.ways} to try anyway"
        )
    part_size = counted(pairs // parts, "pair")
    note = f"{message}; computing it in {parts} parts of {part_size} (accumulate={parts})"
    return replace(config, accumulate=parts), [note]


def smaller_crop(config: TrainConfig, device: torch.device, budget: float) -> str:
    """Advise a crop of the same shape that fits into memory, if there is one."""
    for percent in range(95, 0, -5):
        height, width = (side * percent // 100 // STRIDE * STRIDE for side in config.crop)
        if min(height, width) < MIN_SIDE:
            break
        if step_memory(config, config.ways, 1, device, (height, width)) <= budget:
            return f"use crop={height}x{width}, "
    return ""


def is_recorded(options: RunOptions, device: torch.device) -> bool:
    """Return whether steps are compiled, which needs Triton, and recorded."""
    return has_kernels(device) and not options.eager


def make_network(config: TrainConfig) -> FlowNetwork:
    """Return the network with its initial weights: random by the seed, or those of `init`."""
    torch.manual_seed(config.seed)
    network = FlowNetwork(config.network)
    if config.init:
        checkpoint = fit_to(find_checkpoint(config.init), config.network)
        if checkpoint.origin == "gmaflow" and checkpoint.config != config.network:
            raise WeightsError(
                f"{config.init} contains {describe(checkpoint.config)}, but the run trains "
                f"{describe(config.network)}; choose the model of the weights"
            )
        try:
            network.load_state_dict(checkpoint.tensors)
        except RuntimeError:
            raise WeightsError(
                f"{config.init} holds weights of another network, not of {config.model}"
            ) from None
    return network
