"""What bfloat16 on a CPU costs in accuracy, on the real pairs.

PYTHONPATH=src python benchmarks/bfloat16.py --material FOLDER

Prints for each pair the error in float32, the ratio of the errors, and how far the two flows are
apart; then the worst of the pairs whose error is below 3 px. Beyond, motion is not found, and where
float32 ends up is chance.
"""

import argparse
from pathlib import Path
from statistics import geometric_mean

import numpy as np
from settled_flow import real_pairs

from gmaflow import FlowEstimator

MOST_ERROR = 3.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--material", type=Path, required=True)
    options = parser.parse_args()
    print(f"{'':<32}{'error':>8}{'ratio':>8}{'mean px apart':>15}{'largest':>9}")
    ratios, apart = [], []
    for padding, example in real_pairs(options.material):
        sample = example.load()
        flows = [
            FlowEstimator("gma", device="cpu", precision=precision, padding=padding)(
                sample.image1, sample.image2
            ).array
            for precision in ("fp32", "bf16")
        ]
        whole, half = (
            np.linalg.norm(flow - sample.flow, axis=2)[sample.valid].mean() for flow in flows
        )
        away = np.linalg.norm(flows[1] - flows[0], axis=2)
        columns = f"{whole:8.3f}{half / whole:8.4f}{away.mean():15.4f}{away.max():9.2f}"
        print(f"{example.title:<32}{columns}", flush=True)
        if whole < MOST_ERROR:
            ratios.append(half / whole)
            apart.append(away.mean())
    print(
        f"{len(apart)} pairs below {MOST_ERROR:g} px: ratio {geometric_mean(ratios):.4f} "
        f"({min(ratios):.4f} to {max(ratios):.4f}), {np.mean(apart):.4f} px apart, "
        f"{max(apart):.4f} at most"
    )


if __name__ == "__main__":
    main()
