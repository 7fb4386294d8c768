"""Measure the time of a training step, its memory, and the time of the start.

PYTHONPATH=src python benchmarks/training.py --textures FOLDER

Prints the table of docs/training.md. Every row runs in a separate process, so that it inherits no
memory or compiled code; all but the last start with an empty compiler cache.
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import torch
import torch.distributed as dist

from gmaflow.model import FlowNetwork
from gmaflow.training import Batch, RunOptions, StepPlan, StepResult, TrainConfig, TrainStep
from gmaflow.training.distributed import ALONE, World
from gmaflow.training.recorded import RecordedStep
from gmaflow.training.setup import prepare

STEP_ALONE = "folder:."
"""No data is read: all steps use one grey batch."""
WARM_UP = 5
"""Steps that are not measured."""
EAGER, RECORDED = "the step alone, eager", "the step alone"
ROWS = {
    EAGER: (STEP_ALONE, 8, 12),
    RECORDED: (STEP_ALONE, 8, 12),
    "scenes rendered as it trains": ("scenes:mix", 16, 12),
    "the same, started again": ("scenes:mix", 16, 12),
}

Learn = Callable[[Batch, StepPlan], StepResult]


def begin(
    config: TrainConfig, device: torch.device, *, eager: bool, world: World = ALONE
) -> tuple[Learn, Iterator[Batch]]:
    """Return a step and its batches, as `gmaflow train` would use them."""
    if config.data != STEP_ALONE:
        with tempfile.TemporaryDirectory() as folder:
            run = prepare(config, RunOptions(output=Path(folder) / "run"), ALONE, device)
        return run.train_step, run.source.batches(0)
    step = TrainStep(FlowNetwork(config.network).to(device), config, world=world)
    image = torch.full((config.batch, 3, *config.crop), 0.5, device=device)
    valid = torch.ones(config.batch, *config.crop, dtype=torch.bool, device=device)
    batches = repeat(Batch(image, image, torch.zeros_like(image[:, :2]), valid, ~valid))
    return step if eager or device.type != "cuda" else RecordedStep(step), batches


def measure_exchange(config: TrainConfig, device: torch.device, repeats: int) -> None:
    """Compare a step with one that exchanges gradients as several processes do, by turns."""
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    steps = [begin(config, device, eager=False, world=w) for w in (ALONE, World(grouped=True))]
    plan = StepPlan(lr=1e-5, iters=config.iters, occluded=True)
    took: list[list[float]] = [[], []]
    for number in range(WARM_UP + repeats):
        for seconds, (learn, batches) in zip(took, steps, strict=True):
            started = time.time()
            ended = finish(learn, batches, plan, device, steps=1)
            if number >= WARM_UP:
                seconds.append(ended - started)
    dist.destroy_process_group()
    plain, exchanged = (1000 * statistics.median(seconds) for seconds in took)
    print(f"{plain:.2f} ms a step, {exchanged:.2f} ms with exchange: {exchanged / plain - 1:+.2%}")
    both = sorted(b / a - 1 for a, b in zip(*took, strict=True))
    low, high = both[len(both) // 4], both[-len(both) // 4]
    print(f"pair by pair, median {statistics.median(both):+.2%}, quartiles {low:+.2%} {high:+.2%}")


def measure(
    config: TrainConfig, device: torch.device, repeats: int, *, eager: bool
) -> dict[str, float]:
    """Train for a few steps; return the time of the first, the time per step, and the memory."""
    learn, batches = begin(config, device, eager=eager)
    plan = StepPlan(lr=1e-5, iters=config.iters, occluded=True)
    first = finish(learn, batches, plan, device, steps=1)
    begun = finish(learn, batches, plan, device, steps=WARM_UP)
    ended = finish(learn, batches, plan, device, steps=repeats)
    cuda = torch.cuda if device.type == "cuda" else None
    return {
        "first": first,
        "step": 1000 * (ended - begun) / repeats,
        "allocated": cuda.max_memory_allocated(device) / 1e9 if cuda else float("nan"),
        "reserved": cuda.max_memory_reserved(device) / 1e9 if cuda else float("nan"),
    }


def finish(
    learn: Learn, batches: Iterator[Batch], plan: StepPlan, device: torch.device, *, steps: int
) -> float:
    """Execute some steps without waiting in between; return the time when they are finished."""
    for _ in range(steps):
        learn(next(batches), plan)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.time()


def print_table(options: argparse.Namespace) -> None:
    """Measure every row in a separate process."""
    device = torch.device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    print(f"{name}, {os.cpu_count()} CPU cores, torch {torch.__version__},")
    print(f"Python {platform.python_version()}: `python {shlex.join(sys.argv)}`\n")
    print("| | batch | crop | iterations | step, ms | allocated, GB | reserved | start, s |")
    print("|---|---|---|---|---|---|---|---|")
    took = {}
    with tempfile.TemporaryDirectory() as caches:
        for number, (row, (_, batch, iters)) in enumerate(ROWS.items()):
            used = number - 1 if row.endswith("again") else number
            began = time.time()
            times = measure_in_process(row, Path(caches, str(used)))
            print(
                f"| {row} | {batch} | {options.crop[0]}x{options.crop[1]} | {iters} "
                f"| {times['step']:.1f} | {times['allocated']:.1f} | {times['reserved']:.1f} "
                f"| {times['first'] - began:.0f} |",
                flush=True,
            )
            took[row] = times["step"]
    print(f"\nThe eager step takes {took[EAGER] / took[RECORDED]:.2f} times as long.")


def measure_in_process(row: str, cache: Path) -> dict[str, float]:
    """Measure a row in a process with the given compiler cache."""
    command = [sys.executable, *sys.argv, "--row", row]
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    done = subprocess.run(
        command, env=os.environ | caches, check=True, stdout=subprocess.PIPE, text=True
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> None:
    """Print the table, or measure one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="gma")
    parser.add_argument("--crop", type=int, nargs=2, default=(368, 496), metavar=("H", "W"))
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--textures", default="", help="folder of pictures for the scenes")
    parser.add_argument("--batch", type=int, help="instead of that of the table")
    parser.add_argument("--iters", type=int, help="instead of that of the table")
    parser.add_argument(
        "--exchange", action="store_true", help="measure what exchanging gradients costs"
    )
    parser.add_argument("--row", choices=ROWS, help="measure only this row, and print JSON")
    options = parser.parse_args()
    if options.row is None and not options.exchange:
        print_table(options)
        return
    data, batch, iters = ROWS[options.row or RECORDED]
    config = TrainConfig(
        model=options.model,
        data=data,
        batch=options.batch or batch,
        iters=options.iters or iters,
        crop=tuple(options.crop),
        precision=options.precision,
        textures=options.textures,
    )
    device, eager = torch.device(options.device), options.row == EAGER
    if options.exchange:
        measure_exchange(config, device, options.repeats)
        return
    print(json.dumps(measure(config, device, options.repeats, eager=eager)))


if __name__ == "__main__":
    main()
