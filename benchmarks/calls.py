"""Measure calls of an estimator on a GPU, from tensors to tensors, and the start of a process.

PYTHONPATH=src python benchmarks/calls.py                    # all rows of docs/performance.md
PYTHONPATH=src python benchmarks/calls.py --rows call,first

Wall clock of `FlowEstimator.batch` with frames on the GPU, synchronised after each call; shipped
`gma`, float16. `sequence` takes 1080p frames in memory and leaves their flow on the GPU. `first` is
the time to the first flow in a new process, from loading weights on, torch's import left out: with
an empty kernel cache, and with the cache of that process.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gmaflow import FlowEstimator

ROWS = {
    "call": "440x1024, 12 iterations",
    "long": "440x1024, 32 iterations",
    "large": "1088x1920",
    "limited": "1088x1920 within 1.5 GB",
    "batch": "440x1024, batch 8",
    "sequence": "1080p frames, flow left on the GPU",
    "first": "first flow, 440x1024",
}
WARM_UP = 4


def make_images(batch: int, height: int, width: int) -> list[Tensor]:
    """Return two smooth random images with some noise, the second shifted by a few pixels."""
    random = torch.Generator().manual_seed(0)
    coarse = torch.rand(batch, 3, height // 8 + 3, width // 8 + 3, generator=random)
    size = (height + 16, width + 16)
    fine = torch.nn.functional.interpolate(coarse, size, mode="bilinear", align_corners=True)
    fine = 0.95 * fine + 0.05 * torch.rand(fine.shape, generator=random)
    return [fine[..., y : y + height, x : x + width].contiguous() for y, x in ((8, 8), (5, 2))]


def measure_call(
    size: tuple[int, int], device: str, seconds: float, *, batch: int = 1, **options: object
) -> str:
    """Return the median and the 95th percentile of a call in ms."""
    estimator = FlowEstimator(device=device, **options)  # type: ignore[arg-type]
    images = [image.to(device) for image in make_images(batch, *size)]
    took = repeat(lambda: estimator.batch(*images), device, seconds)
    median = statistics.median(took)
    late = sorted(took)[int(0.95 * len(took))]
    more = f", {1000 * batch / median:.0f} pairs/s" if batch > 1 else ""
    return f"{median:.2f} ms, p95 {late:.2f} ({len(took)} calls){more}"


def repeat(call: Callable[[], object], device: str, seconds: float) -> list[float]:
    """Return how many ms each of many calls takes."""
    took: list[float] = []
    end = None
    for number in range(100_000):
        began = time.perf_counter()
        call()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)
        now = time.perf_counter()
        if number >= WARM_UP:
            took.append(1000 * (now - began))
            end = end or now + seconds
        if end is not None and now > end:
            break
    return took


def measure_sequence(device: str, seconds: float) -> str:
    """Return the pairs a second of consecutive frames."""
    estimator = FlowEstimator(device=device, iters=12)
    frames = [
        (255 * image[0].permute(1, 2, 0)).numpy().astype(np.uint8)
        for image in make_images(1, 1080, 1920)
    ]

    def run(count: int) -> float:
        began = time.perf_counter()
        for result in estimator.sequence_on_device(frames[i % 2] for i in range(count + 1)):
            last = result.flow
        last.sum().item()
        return (time.perf_counter() - began) / count

    run(WARM_UP)
    count = max(8, int(seconds / run(8)))
    return f"{1 / run(count):.1f} pairs/s ({count} pairs)"


FIRST = """
import sys, time, torch
device, height, width = sys.argv[1], *map(int, sys.argv[2:])
began = time.perf_counter()
from gmaflow import FlowEstimator
estimator = FlowEstimator(device=device, iters=12)
image = torch.rand(1, 3, height, width, device=device)
estimator.batch(image, image.flip(3)).flow.sum().item()
print(time.perf_counter() - began)
"""


def measure_first(device: str) -> str:
    """Return the seconds to the first flow of two processes that share a kernel cache."""
    with tempfile.TemporaryDirectory() as cache:
        took = [
            float(
                subprocess.run(
                    [sys.executable, "-c", FIRST, device, "440", "1024"],
                    env=os.environ | {"TRITON_CACHE_DIR": cache},
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                ).stdout
            )
            for _ in range(2)
        ]
    return f"{took[0]:.2f} s with an empty kernel cache, {took[1]:.2f} s with a full one"


def main() -> None:
    """Print a table of the rows asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring each row")
    options = parser.parse_args()
    device, seconds = options.device, options.seconds
    cuda = torch.device(device).type == "cuda"
    name = torch.cuda.get_device_name(device) if cuda else platform.machine()
    print(f"{name}, {os.cpu_count()} CPU cores, torch {torch.__version__}\n\n| | |\n|---|---|")
    small, large = (440, 1024), (1088, 1920)
    rows: dict[str, Callable[[], str]] = {
        "call": lambda: measure_call(small, device, seconds, iters=12),
        "long": lambda: measure_call(small, device, seconds, iters=32),
        "large": lambda: measure_call(large, device, seconds, iters=12),
        "limited": lambda: measure_call(large, device, seconds, iters=12, max_memory="1.5GB"),
        "batch": lambda: measure_call(small, device, seconds, iters=12, batch=8),
        "sequence": lambda: measure_sequence(device, seconds),
        "first": lambda: measure_first(device),
    }
    for row in options.rows.split(","):
        print(f"| {ROWS[row]} | {rows[row]()} |", flush=True)


if __name__ == "__main__":
    main()
