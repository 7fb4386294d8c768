"""Measures a pair on the CPU while other processes are busy, with several settings of threads.

PYTHONPATH=src python benchmarks/busy_machine.py

Each setting runs in a process of its own: OpenMP reads its variables once. Prints the median of the
rounds in milliseconds; run it on an otherwise idle machine.
"""

import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

from gmaflow.cli.app import IDLE_SPINS, WAIT_POLICY

SIZES = ((96, 128), (256, 320))
SETTINGS = {
    "default": {},
    "ours if idle": WAIT_POLICY | {"GOMP_SPINCOUNT": IDLE_SPINS},
    "ours if busy": WAIT_POLICY,
    "one thread": {"OMP_NUM_THREADS": "1"},
}
NEIGHBOURS = (0, 1, 2)
ROUNDS = 3
OURS = {*WAIT_POLICY, "OMP_NUM_THREADS"}
SPIN = "while True: pass"


def measure() -> None:
    """Print the seconds of each size, in this process."""
    import numpy as np

    from gmaflow import FlowEstimator

    estimator = FlowEstimator(device="cpu")
    for height, width in SIZES:
        pair = np.random.default_rng(0).integers(0, 256, (2, height, width, 3), np.uint8)
        times = []
        for _ in range(1 + ROUNDS):
            begun = time.perf_counter()
            estimator(*pair)
            times.append(time.perf_counter() - begun)
        print(statistics.median(times[1:]))


def main() -> None:
    """Print a table of settings and numbers of busy neighbours."""
    sizes = " ".join(f"{f'{height}x{width}':>9}" for height, width in SIZES)
    print(f"{'neighbours':<12}{'setting':<12}{sizes}")
    clean = {name: value for name, value in os.environ.items() if name not in OURS}
    for count in NEIGHBOURS:
        with ExitStack() as stack:
            for _ in range(count):
                busy = subprocess.Popen([sys.executable, "-c", SPIN])
                stack.callback(busy.kill)
            for name, variables in SETTINGS.items():
                done = subprocess.run(
                    [sys.executable, __file__, "--measure"],
                    env=clean | variables,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                times = " ".join(f"{1000 * float(line):9.0f}" for line in done.stdout.split())
                print(f"{count:<12}{name:<12}{times}", flush=True)


if __name__ == "__main__":
    measure() if "--measure" in sys.argv else main()
