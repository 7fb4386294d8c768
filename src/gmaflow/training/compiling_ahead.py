"""Compiling ahead: other processes compile while this one does, and fill the compiler's cache.

Most of compiling is Python on one core, part after part. Here every part has a process that runs a
step in which that part alone is compiled, and ends; the longest is compiled by the training itself
meanwhile. What they compiled stays in torch's cache on the disk, where the training finds it. It
waits first for what renders, so that the first batch can be rendered while the rest is compiled,
then for all, so that its first step has the device to itself. It does not depend on them: what none
of them compiled, it compiles. A mark in the cache says that a run's parts are all there, and no
process is started.
"""

import getpass
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import torch

from gmaflow.model import FlowNetwork
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.render_steps import Steps
from gmaflow.scenes.texture_bank import DRAWN_SIZE, LOADED_SIZE
from gmaflow.training.batch import Batch
from gmaflow.training.child import Child, end_with_parent, start_child, usable_cores
from gmaflow.training.config import TrainConfig
from gmaflow.training.overrides import from_json, to_json
from gmaflow.training.places import Place
from gmaflow.training.recorded import PARTS, CompiledParts, RecordedStep
from gmaflow.training.step import TrainStep
from gmaflow.version import __version__

log = logging.getLogger(__name__)

PATIENCE = 120.0
"""Seconds after which a process is given up."""
CORES_EACH = 2
"""Cores that a process keeps busy: it hands kernels to others to compile."""
DEVICE_SHARE = 0.5
"""Of the device's memory, for those of them that do a step; the rest is for the training."""

OWN_PART = PARTS[0]
"""What the training compiles itself: it takes longest, and need not be loaded again then."""

STEP_GROUPS = (("features", "loss"), ("recurrence", "motion", "upsampling"))
"""What one process compiles of the step: few, as each of them needs the memory of a whole step."""
SCENE_GROUPS = (
    ("compose", "follow"),
    ("shutter", "covers"),
    ("focus", "look"),
    ("develop", "illuminate"),
)
"""What one process compiles of the renderer, something long and something short."""

_COMMAND = "from gmaflow.training.compiling_ahead import main; main()"


def compiled_step(
    network: FlowNetwork,
    config: TrainConfig,
    device: torch.device,
    *,
    meanwhile: Callable[[], object] = lambda: None,
) -> RecordedStep:
    """Return a step to be recorded, all of whose parts have been compiled.

    Args:
        network: What is to learn; it is moved to the device.
        config: Of the run.
        device: Where it is to learn.
        meanwhile: Called when what renders has been compiled, and others may still be at the step;
            what it raises ends them.
    """
    batch = Batch.blank(config.batch, config.crop, device)
    with compiling_ahead(config, device) as others:
        # These import the compiler: seconds in which others begin.
        recorded = RecordedStep(TrainStep(network.to(device), config))
        with suppress(torch.OutOfMemoryError):  # there is more room once the others are done
            recorded.compile(batch, [OWN_PART])
        others.finish(Steps._fields)
        meanwhile()
    recorded.compile(batch)
    if device.type == "cuda":
        torch.cuda.empty_cache()  # recordings have memory of their own
    return recorded


@contextmanager
def compiling_ahead(config: TrainConfig, device: torch.device) -> "Iterator[Helpers]":
    """Compile what a run needs while the block runs; at its end wait, after an error do not."""
    mark = mark_of(config, device)
    helpers = Helpers(time.monotonic() + PATIENCE)
    if mark.exists():
        yield helpers
        return
    shares = divide(groups_for(config), processes=usable_cores() // CORES_EACH)
    try:
        with suppress(OSError):  # a machine that is short of something compiles one by one
            for names in shares:
                helpers.started.append((start(config, device, names, shares=shares), names))
        yield helpers
        if helpers.finish() and len(helpers.started) == len(shares):
            with suppress(OSError):  # a mark is a convenience
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()
    finally:
        helpers.end()


class Helpers:
    """The processes that compile for a run."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.started: list[tuple[Child, list[str]]] = []
        """Each with the names of what it compiles."""

    def finish(self, names: Collection[str] = (*PARTS, *Steps._fields)) -> bool:
        """Wait for those that compile something of this; tell whether all did."""
        concerned = [one for one in self.started if not set(one[1]).isdisjoint(names)]
        failed = [own for helper, own in concerned if not ends_well(helper, self.deadline)]
        for own in failed:
            log.info("the process that compiles %s failed; the run does it", ", ".join(own))
        return not failed

    def end(self) -> None:
        """End those that still run."""
        for helper, _ in self.started:
            helper.kill()
            helper.communicate()


def mark_of(config: TrainConfig, device: torch.device) -> Path:
    """Return the file in the compiler's cache that is there when all was compiled before."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    what = (to_json(config), groups_for(config), name, torch.__version__, __version__)
    return compiler_cache() / f"gmaflow-{sha256(repr(what).encode()).hexdigest()[:16]}"


def compiler_cache() -> Path:
    """Return where torch's compiler keeps its work; to ask it takes seconds of importing it."""
    if chosen := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(chosen)
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):  # one without a name, as in some containers
        user = "unknown_user"
    return Path(tempfile.gettempdir()) / f"torchinductor_{user}"


def groups_for(config: TrainConfig) -> Sequence[tuple[str, ...]]:
    """List what others are to compile for a run, those first that take longest."""
    scenes = Place.parse(config.data).kind == "scenes"
    return (*SCENE_GROUPS, *STEP_GROUPS) if scenes else STEP_GROUPS


def divide(groups: Sequence[tuple[str, ...]], processes: int) -> list[list[str]]:
    """Share work among at most so many processes, one at least."""
    count = max(1, min(processes, len(groups)))
    return [[name for group in groups[first::count] for name in group] for first in range(count)]


def memory_of_each(shares: Sequence[list[str]]) -> float:
    """Return how much of the device's memory a process may take: rendering needs little."""
    doing_steps = sum(not set(PARTS).isdisjoint(names) for names in shares)
    return DEVICE_SHARE / max(1, doing_steps)


def start(
    config: TrainConfig, device: torch.device, names: list[str], *, shares: Sequence[list[str]]
) -> Child:
    """Start a process that compiles some of what a run needs, one of several."""
    words = (to_json(config), str(device), str(memory_of_each(shares)), *names)
    threads = max(1, usable_cores() // len(shares))
    return start_child(
        _COMMAND, *words, environment={"TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
    )


def ends_well(helper: Child, deadline: float) -> bool:
    """Wait for a process, but not for ever; tell whether it has done its work."""
    try:
        return helper.wait(max(0.0, deadline - time.monotonic())) == 0
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    """Be one of the processes, as the command line says."""
    end_with_parent()
    text, place, memory, *names = sys.argv[1:]
    device = torch.device(place)
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(float(memory), device.index or 0)
    compile_parts(from_json(text), device, names)


def compile_parts(
    config: TrainConfig, device: torch.device, names: Collection[str], backend: str = "inductor"
) -> None:
    """Render a batch and do a step, with the named parts of both compiled."""
    if set(names) & set(Steps._fields):
        bank = TextureBank.blank(LOADED_SIZE if config.textures else DRAWN_SIZE)
        place = Place.parse(config.data)
        renderer = SceneRenderer(place.name, config.crop, config.seed, bank, device, compiled=True)
        renderer.compile_ahead(config.batch // config.ways, names)
    if set(names) & set(PARTS):
        step = TrainStep(FlowNetwork(config.network).to(device), config)
        with CompiledParts(step.computing, backend=backend).used(names):
            # Two refinements, as in `RecordedStep.compile`.
            step.run(Batch.blank(config.batch, config.crop, device), 2)
