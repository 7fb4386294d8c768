"""How long a training step takes, how much memory it needs, and how soon it runs at full speed.

PYTHONPATH=src python benchmarks/training.py --batch 8 --iters 12
PYTHONPATH=src python benchmarks/training.py --batch 16 --scenes --textures FOLDER
"""

import argparse
import statistics
import time
from collections.abc import Iterator

import torch

from gmaflow.model import FlowNetwork
from gmaflow.training.batch import Batch
from gmaflow.training.config import TrainConfig
from gmaflow.training.recorded import RecordedStep
from gmaflow.training.schedule import StepPlan
from gmaflow.training.sources import open_source
from gmaflow.training.step import TrainStep


def random_batches(config: TrainConfig, device: torch.device) -> Iterator[Batch]:
    """Repeat one random batch: the step alone, without the making of data."""
    height, width = config.crop
    batch = Batch(
        torch.rand(config.batch, 3, height, width, device=device),
        torch.rand(config.batch, 3, height, width, device=device),
        5 * torch.randn(config.batch, 2, height, width, device=device),
        torch.ones(config.batch, height, width, dtype=torch.bool, device=device),
        torch.zeros(config.batch, height, width, dtype=torch.bool, device=device),
    )
    while True:
        yield batch


def wait(device: torch.device) -> None:
    """Let the device finish."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure one setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="gma")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, nargs=2, default=(368, 496), metavar=("H", "W"))
    parser.add_argument("--iters", type=int, default=12)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--scenes", action="store_true", help="render a new batch for every step")
    parser.add_argument("--textures", default="", help="folder of pictures for the scenes")
    parser.add_argument("--eager", action="store_true", help="neither compile nor record")
    options = parser.parse_args()

    begin = time.perf_counter()
    device = torch.device(options.device)
    config = TrainConfig(
        model=options.model,
        batch=options.batch,
        crop=tuple(options.size),
        iters=options.iters,
        precision=options.precision,
        textures=options.textures,
    )
    fast = device.type == "cuda" and not options.eager
    step = TrainStep(FlowNetwork(config.network).to(device), config)
    learn = RecordedStep(step) if fast else step
    if options.scenes:
        batches = open_source(config, device, compiled=fast).batches(0)
    else:
        batches = random_batches(config, device)
    plan = StepPlan(lr=1e-5, iters=config.iters, occluded=True)
    learn(next(batches), plan)
    wait(device)
    started = time.perf_counter() - begin
    seconds = []
    for _ in range(options.repeats):
        begin = time.perf_counter()
        learn(next(batches), plan)
        wait(device)
        seconds.append(time.perf_counter() - begin)
    used = torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else float("nan")
    print(
        f"{options.model}, batch {options.batch} at {config.crop[0]}x{config.crop[1]}, "
        f"{options.iters} iterations, {step.dtype}, {'recorded' if fast else 'eager'}"
        f"{', scenes rendered' if options.scenes else ''}: median "
        f"{1000 * statistics.median(seconds):.1f} ms, worst {1000 * max(seconds):.1f} ms, peak "
        f"{used:.1f} GB, {started:.0f} s to the first step; torch {torch.__version__}"
    )


if __name__ == "__main__":
    main()
