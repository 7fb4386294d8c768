"""Compiling ahead: other processes compile while this one does, and fill the compiler's cache.

Most of compiling is Python on one core, part after part. Here every part has a process that runs a
step in which that part alone is compiled, and ends; the longest is compiled by the training itself
meanwhile. What they compiled stays in torch's cache on the disk, where the training finds it. The
training waits for them, so that its first step has the device to itself, but does not depend on
them: what none of them compiled, it compiles. A mark in the cache says that a run's parts are all
there, and no process is started.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import torch

from gmaflow.model import FlowNetwork
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.steps import Steps
from gmaflow.scenes.textures import DRAWN_SIZE, LOADED_SIZE
from gmaflow.training.batch import Batch
from gmaflow.training.config import TrainConfig
from gmaflow.training.overrides import from_json, to_json
from gmaflow.training.places import Place
from gmaflow.training.recorded import PARTS, CompiledParts, RecordedStep
from gmaflow.training.step import TrainStep
from gmaflow.version import __version__

PATIENCE = 120.0
"""Seconds after which a process is given up."""
CORES_EACH = 2
"""Cores that a process keeps busy: it hands kernels to others to compile."""
DEVICE_SHARE = 0.5
"""Of the device's memory, for all of them together; the rest is for the training."""

OWN_PART = PARTS[0]
"""What the training compiles itself: it takes longest, and need not be loaded again then."""

_COMMAND = "from gmaflow.training.compiling_ahead import main; main()"


def compiled_step(
    step: TrainStep, *, meanwhile: Callable[[], object] = lambda: None
) -> RecordedStep:
    """Return a step to be recorded, all of whose parts have been compiled.

    Args:
        step: Of which nothing is changed.
        meanwhile: Called while others may still compile; what it raises ends them.
    """
    recorded = RecordedStep(step)
    batch = Batch.blank(step.config.batch, step.config.crop, step.device)
    with compiling_ahead(step.config, step.device):
        with suppress(torch.OutOfMemoryError):  # there is more room once the others are done
            recorded.compile(batch, [OWN_PART])
        meanwhile()
    recorded.compile(batch)
    if step.device.type == "cuda":
        torch.cuda.empty_cache()  # recordings have memory of their own
    return recorded


@contextmanager
def compiling_ahead(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Compile what a run needs while the block runs; at its end wait, after an error do not."""
    mark = mark_of(config, device)
    if mark.exists():
        yield
        return
    shares = divide(names_for(config), processes=(os.cpu_count() or 1) // CORES_EACH)
    helpers: list[subprocess.Popen[bytes]] = []
    deadline = time.monotonic() + PATIENCE
    try:
        with suppress(OSError):  # a machine that is short of something compiles one by one
            for names in shares:
                helpers.append(start(config, device, names, 1 / len(shares)))
        yield
        done = [ends_well(helper, deadline) for helper in helpers]
        if all(done) and len(done) == len(shares):
            with suppress(OSError):  # a mark is a convenience
                mark.touch()
    finally:
        for helper in helpers:
            helper.kill()
            helper.communicate()


def mark_of(config: TrainConfig, device: torch.device) -> Path:
    """Return the file in the compiler's cache that is there when all was compiled before."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    what = (to_json(config), name, torch.__version__, __version__)
    return Path(cache_dir()) / f"gmaflow-{sha256(repr(what).encode()).hexdigest()[:16]}"


def names_for(config: TrainConfig) -> list[str]:
    """List what others are to compile for a run, those first that take longest."""
    parts = [name for name in PARTS if name != OWN_PART]
    if Place.parse(config.data).kind != "scenes":
        return parts
    long, short = ["compose", "shutter", "focus", "develop"], ["follow", "covers", "look"]
    return [*long, *parts, *short, "illuminate"]


def divide(names: list[str], processes: int) -> list[list[str]]:
    """Share work among at most so many processes, one at least, the long work evenly."""
    count = max(1, min(processes, len(names)))
    return [names[first::count] for first in range(count)]


def start(
    config: TrainConfig, device: torch.device, names: list[str], share: float
) -> "subprocess.Popen[bytes]":
    """Start a process that compiles some of what a run needs."""
    threads = str(max(1, round((os.cpu_count() or 1) * share)))
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, to_json(config), str(device), str(share), *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": threads},
        start_new_session=True,  # Ctrl-C is for the run, which then ends this one
    )


def ends_well(helper: "subprocess.Popen[bytes]", deadline: float) -> bool:
    """Wait for a process, but not for ever; tell whether it has done its work."""
    try:
        return helper.wait(max(0.0, deadline - time.monotonic())) == 0
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    """Be one of the processes, as the command line says."""
    text, place, share, *names = sys.argv[1:]
    device = torch.device(place)
    threading.Thread(target=end_with_parent, daemon=True).start()
    if device.type == "cuda":
        index = device.index or 0
        torch.cuda.set_per_process_memory_fraction(DEVICE_SHARE * float(share), index)
    compile_parts(from_json(text), device, names)


def end_with_parent() -> None:
    """End when the process at the other end of the input does, however that ended."""
    # Not by sys.stdin: its lock, still held here, would make an abort of this process's own end.
    os.read(0, 1)
    os._exit(1)


def compile_parts(
    config: TrainConfig, device: torch.device, names: Collection[str], backend: str = "inductor"
) -> None:
    """Render a batch and do a step, with the named parts of both compiled."""
    if set(names) & set(Steps._fields):
        bank = TextureBank.blank(LOADED_SIZE if config.textures else DRAWN_SIZE)
        place = Place.parse(config.data)
        renderer = SceneRenderer(place.name, config.crop, config.seed, bank, device, compiled=True)
        renderer.compile_ahead(config.batch, names)
    if set(names) & set(PARTS):
        step = TrainStep(FlowNetwork(config.network).to(device), config)
        with CompiledParts(step.computing, backend=backend).used(names):
            # Two refinements, as in `RecordedStep.compile`.
            step.run(Batch.blank(config.batch, config.crop, device), 2)
