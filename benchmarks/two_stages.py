"""Train the weights that ship for some more minutes: small crops, then large frames, by the clock.

PYTHONPATH=src python benchmarks/two_stages.py runs/chunk --textures FOLDER --minutes 12.3 5.5

Two processes compile at the same time. The first trains gma and ends after its minutes; the second
waits for its weights and trains gma-affine. The learning rate falls linearly from --peak to 0 over
both. With 0 minutes for the first stage, only the second runs. Writes small.safetensors and
large.safetensors to the folder (newest weights every minute, with --keep also as
small-01.safetensors and so on), and a log of each stage. docs/training-log.md has the settings and
what came of them.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from gmaflow.cli.settings import override
from gmaflow.data import Batch
from gmaflow.training.config import AHEAD_UNIT, StepPlan, preset
from gmaflow.training.distributed import ALONE
from gmaflow.training.reporting import Meter
from gmaflow.training.setup import RunOptions, TrainingRun, prepare
from gmaflow.training.step import weights_in
from gmaflow.weights import Checkpoint, load_checkpoint, save_checkpoint

WARM_UP = 200
SAVE_EVERY = 60.0
COMMON = {
    "init": "gma-affine", "batch": "16", "both_ways": "true",
    "weight_decay": "1e-5", "disturbed": "0.15", "validate_every": "0",
}  # fmt: skip
STAGES = {
    "small": ("scenes-pretrain", 12, {
        "model": "gma", "data": "scenes:slow-mix-2", "crop": "320x448", "iters": "4",
        "exposure": "0.25", "erase": "0.1",
    }),
    "large": ("scenes-finetune", 18, {
        "model": "gma-affine", "data": "scenes:wide-mix-3", "crop": "368x768", "iters": "6",
        "exposure": "0.5", "erase": "0.25", "continued": "0.5",
    }),
}  # fmt: skip
"""Preset, iterations that may run ahead, and settings."""


def train_stage(name: str, options: argparse.Namespace) -> None:
    """Train one stage; the second begins with the weights of the first."""
    start, ahead, settings = STAGES[name]
    overrides = {
        "textures": str(options.textures or ""),
        "seed": str(options.seed),
        "ema": str(options.ema),
        "robust": str(options.robust),
    }
    if options.tiny:
        overrides |= {"batch": "2", "crop": "64x96"}
    config = override(preset(start), COMMON | settings | overrides)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    place = RunOptions(output=options.folder / f"run-{name}", overwrite=True)
    run = prepare(config, place, ALONE, device)
    before = {key: value.clone() for key, value in run.step.state().items()}
    aheads = range(0, ahead + 1, AHEAD_UNIT)
    batches = run.source.batches(0)
    first = next(batches)
    for count in aheads:  # compiles and records
        run.train_step(first, StepPlan(lr=0.0, iters=config.iters, occluded=True, ahead=count))
    clock = options.folder / "begun"
    if name == "large" and options.minutes[0]:
        before |= wait_for(options.folder, device, before)
    else:
        clock.write_text(str(time.time()))
    run.step.load_state(before)
    seconds = [60 * minutes for minutes in options.minutes]
    begun = float(clock.read_text())
    end = begun + (seconds[0] if name == "small" else sum(seconds))
    times = (begun, sum(seconds), end)
    follow_clock(run, batches, aheads, options, times, options.folder / name)
    if name == "small":
        (options.folder / "small.done").write_text("")


def wait_for(
    folder: Path, device: torch.device, state: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Wait for the first stage, and return its weights as a part of the state."""
    while not (folder / "small.done").exists():
        time.sleep(0.5)
    found = load_checkpoint(folder / "small.safetensors").tensors
    return {
        f"{kind}.{name}": value.float().to(device)
        for name, value in found.items()
        for kind in ("network", "average")
        if f"{kind}.{name}" in state
    }


def follow_clock(
    run: TrainingRun,
    batches: Iterator[Batch],
    aheads: range,
    options: argparse.Namespace,
    times: tuple[float, float, float],
    place: Path,
) -> None:
    """Train until the end; `times` are the begin, the seconds of the schedule and the end."""
    begun, whole, end = times
    rng = np.random.default_rng(run.config.seed)
    meter, saved, count, kept = Meter(run.step.device, ALONE), time.time(), 0, 0
    with place.with_suffix(".jsonl").open("w") as log:
        while (now := time.time()) < end:
            rate = options.peak * (1 - (now - begun) / whole) * min(1.0, (count + 1) / WARM_UP)
            ahead = int(rng.choice(aheads))
            plan = StepPlan(lr=rate, iters=run.config.iters, occluded=True, ahead=ahead)
            meter.add(run.train_step(next(batches), plan), run.config.batch)
            count += 1
            if count % run.config.log_every == 0:
                line = {"step": count} | meter.read() | run.step.progress()
                print(json.dumps(line), file=log, flush=True)
            if now - saved > SAVE_EVERY:
                saved, kept = now, kept + 1
                save(run, place)
                if options.keep:
                    save(run, place.with_name(f"{place.name}-{kept:02}"))
    save(run, place)
    print(f"{place.name}: {count} steps", flush=True)


def save(run: TrainingRun, place: Path) -> None:
    """Write the averaged weights."""
    checkpoint = Checkpoint(config=run.config.network, tensors=weights_in(run.step.state()))
    save_checkpoint(place.with_suffix(".safetensors"), checkpoint, half=True)


def main() -> None:
    """Start both stages, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--textures", type=Path)
    parser.add_argument("--minutes", type=float, nargs=2, default=(12.3, 5.5))
    parser.add_argument("--peak", type=float, default=2e-4, help="the learning rate at the start")
    parser.add_argument("--ema", type=float, default=0.998, help="of the weights that are saved")
    parser.add_argument("--robust", type=float, default=0.0, help="of the loss, in pixels")
    parser.add_argument("--keep", action="store_true", help="the weights of each minute, too")
    parser.add_argument("--seed", type=int, default=5001)
    parser.add_argument("--tiny", action="store_true", help="to try the program on a CPU")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        train_stage(options.stage, options)
        return
    options.folder.mkdir(parents=True)
    stages = [stage for stage in STAGES if stage == "large" or options.minutes[0]]
    programs = [subprocess.Popen([sys.executable, *sys.argv, "--stage", stage]) for stage in stages]
    *small, large = programs
    if any(program.wait() for program in small):
        large.kill()  # it would wait forever
    sys.exit(int(any(program.wait() for program in programs)))


if __name__ == "__main__":
    main()
