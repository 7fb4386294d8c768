"""Measures the speed of exported files on the CPU, in turn with gmaflow itself.

gmaflow export -o gma.onnx && gmaflow export -o gma.pt2
PYTHONPATH=src python benchmarks/exporting.py gma.onnx gma.pt2 --size 440 1024 --iters 12

On a busy machine, CPU time on one core is more reliable:

PYTHONPATH=src OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/exporting.py ... --cpu-time
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from gmaflow.export.exporting import example_batch
from gmaflow.export.formats import FORMATS, Inputs
from gmaflow.inference import FlowEstimator

Estimate = Callable[[Inputs], object]


def by_gmaflow(weights: str, iters: int) -> Estimate:
    """Return an estimate by gmaflow itself."""
    estimator = FlowEstimator(weights, iters=iters, device="cpu")
    return lambda inputs: estimator(*(image[0].transpose(1, 2, 0) for image in inputs))


def main() -> None:
    """Measure, and print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--weights", default="gma", help="the weights of the files")
    parser.add_argument("--iters", type=int, default=12)
    parser.add_argument("--size", type=int, nargs=2, default=(440, 1024), metavar=("H", "W"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine, on one core")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter

    ways: dict[str, Estimate] = {"gmaflow": by_gmaflow(options.weights, options.iters)}
    ways |= {str(path): FORMATS[path.suffix].load(path) for path in options.files}
    images = example_batch(1, tuple(options.size))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.rounds + 1):
        for name, estimate in ways.items():
            begin = clock()
            estimate(images)
            if turn:  # the first round is a warm-up
                seconds[name].append(clock() - begin)
    for name, measured in seconds.items():
        print(f"{name}: median {statistics.median(measured):.2f} s, best {min(measured):.2f} s")


if __name__ == "__main__":
    main()
