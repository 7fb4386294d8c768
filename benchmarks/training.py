"""How long a training step takes, what memory it needs, and how soon it runs at full speed.

PYTHONPATH=src python benchmarks/training.py --textures FOLDER

Prints the table of docs/training.md. Every row is a process of its own, so that no memory and
nothing compiled is left from the row before; all but the last begin with an empty compiler's cache.
The peer of the step alone is the same step kernel by kernel, as `--eager` runs it.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import torch

from gmaflow.model import FlowNetwork
from gmaflow.training import Batch, RunOptions, StepPlan, StepResult, TrainConfig, TrainStep
from gmaflow.training.compiling_ahead import compiled_step
from gmaflow.training.distributed import ALONE
from gmaflow.training.preparing import prepare

STEP_ALONE = "folder:."
"""Of this data nothing is read: one grey batch serves for all steps."""
WARM_UP = 5
"""Steps that do not count."""
EAGER, RECORDED = "the step alone, eager", "the step alone"
ROWS = {
    EAGER: (STEP_ALONE, 8, 12),
    RECORDED: (STEP_ALONE, 8, 12),
    "scenes rendered as it trains": ("scenes:mix", 16, 12),
    "the same, started again": ("scenes:mix", 16, 12),
}

Learn = Callable[[Batch, StepPlan], StepResult]


def begin(
    config: TrainConfig, device: torch.device, *, eager: bool
) -> tuple[Learn, Iterator[Batch]]:
    """Make steps and batches ready, as `gmaflow train` does."""
    if config.data != STEP_ALONE:
        with tempfile.TemporaryDirectory() as folder:
            job = prepare(config, RunOptions(output=Path(folder) / "run"), ALONE, device)
        return job.learn, job.source.batches(0)
    network = FlowNetwork(config.network)
    batches = repeat(Batch.blank(config.batch, config.crop, device))
    if eager or device.type != "cuda":
        return TrainStep(network.to(device), config), batches
    return compiled_step(network, config, device), batches


def measure(
    config: TrainConfig, device: torch.device, repeats: int, *, eager: bool
) -> dict[str, float]:
    """Train for a few steps; return when the first was done, what each took, and the memory."""
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
    """Do some steps and return when the device was done with them, not waiting in between."""
    for _ in range(steps):
        learn(next(batches), plan)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.time()


def print_table(options: argparse.Namespace) -> None:
    """Measure every row in a fresh process."""
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
            found = measure_apart(row, Path(caches, str(used)))
            print(
                f"| {row} | {batch} | {options.crop[0]}x{options.crop[1]} | {iters} "
                f"| {found['step']:.1f} | {found['allocated']:.1f} | {found['reserved']:.1f} "
                f"| {found['first'] - began:.0f} |",
                flush=True,
            )
            took[row] = found["step"]
    print(f"\nThe eager step takes {took[EAGER] / took[RECORDED]:.2f} times as long.")


def measure_apart(row: str, cache: Path) -> dict[str, float]:
    """Measure a row in a process whose compiler keeps its work in a given folder."""
    command = [sys.executable, *sys.argv, "--row", row]
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    done = subprocess.run(
        command, env=os.environ | caches, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the table, or measure one row of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="gma")
    parser.add_argument("--crop", type=int, nargs=2, default=(368, 496), metavar=("H", "W"))
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--textures", default="", help="folder of pictures for the scenes")
    parser.add_argument("--row", choices=ROWS, help="measure this one alone, and print JSON")
    options = parser.parse_args()
    if options.row is None:
        print_table(options)
        return
    data, batch, iters = ROWS[options.row]
    config = TrainConfig(
        model=options.model,
        data=data,
        batch=batch,
        iters=iters,
        crop=tuple(options.crop),
        precision=options.precision,
        textures=options.textures,
    )
    device, eager = torch.device(options.device), options.row == EAGER
    print(json.dumps(measure(config, device, options.repeats, eager=eager)))


if __name__ == "__main__":
    main()
