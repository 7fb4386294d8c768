"""Errors on the 20 real pairs of docs/fidelity.md, relative to the published RAFT-small.

PYTHONPATH=src:. python benchmarks/real_pairs.py FOLDER gma gma-affine gma-affine@32
PYTHONPATH=src:. python benchmarks/real_pairs.py FOLDER gma --views 4
PYTHONPATH=src:. python benchmarks/real_pairs.py FOLDER gma --shifts

FOLDER holds the pairs in the layouts of their data sets. Networks are given as to judge_scenes.py.
The last column is the geometric mean of the columns over those of RAFT-small. `--pairs` adds the
error of each pair. `--shifts` instead prints the mean error on two of the images and the built-in
example, shifted by whole pixels, more than 32 px from the edges.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, geometric_mean

import numpy as np
from judge_scenes import open_networks

from gmaflow import FlowEstimator
from gmaflow.example import load_example
from gmaflow.io import read_flow_arrays, read_image
from tests.inference.real_pairs import OTHERS, SINTEL, Pair

PAIRS = (*SINTEL, *OTHERS)
COLUMNS = {
    "Middlebury": "middlebury/",
    "Sintel final": "/final/",
    "Sintel clean": "/clean/",
    "KITTI 2015": "kitti2015/",
    "KITTI 2012 noc": "kitti2012/",
    "Chairs": "flyingchairs/",
}
"""What the path of a column's pairs contains."""
SHIFTS = ((1, 0), (7, 5), (12, 9), (15, 4))
SHIFTED = (
    "middlebury/other-data/RubberWhale/frame10.png",
    "sintel/training/final/alley_1/frame_0002.png",
)
MARGIN = 32
"""Pixels at the edges that do not count."""


def errors_of(network: FlowEstimator, folder: Path) -> dict[Pair, float]:
    """Return the mean error of each pair."""
    errors = {}
    for pair in PAIRS:
        flow = network(*(read_image(folder / path) for path in (pair.image1, pair.image2))).array
        truth, valid = read_flow_arrays(folder / pair.truth)[:2]
        errors[pair] = float(np.linalg.norm(flow - truth, axis=2)[valid].mean())
    return errors


def by_column(error_of: Callable[[Pair], float]) -> list[float]:
    """Return the mean error of each column."""
    return [fmean(error_of(p) for p in PAIRS if part in p.image1) for part in COLUMNS.values()]


def print_errors(networks: dict[str, FlowEstimator], folder: Path, *, pairs: bool) -> None:
    """Print a row for each network, and for each pair."""
    print(f"| | {' | '.join(COLUMNS)} | geometric mean of the ratios |\n|{'---|' * 8}")
    published = by_column(lambda pair: pair.error)
    for name, network in networks.items():
        errors = errors_of(network, folder)
        found = by_column(errors.__getitem__)
        ratio = geometric_mean(one / other for one, other in zip(found, published, strict=True))
        print(f"| {name} | {' | '.join(f'{error:.4g}' for error in found)} | {ratio:.4f} |")
        for pair, error in errors.items() if pairs else ():
            print(f"{name}, {pair.image1}: {error:.3f} px (RAFT-small {pair.error:.3f})")


def print_shifts(networks: dict[str, FlowEstimator], folder: Path) -> None:
    """Print the mean error for each shift and image."""
    images = [*(read_image(folder / path) for path in SHIFTED), load_example().image1]
    for name, network in networks.items():
        for x, y in SHIFTS:
            means = []
            for image in images:
                height, width = image.shape[:2]
                flow = network(image[y:, x:], image[: height - y, : width - x]).array
                error = np.linalg.norm(flow - np.array([x, y]), axis=2)
                means.append(error[MARGIN:-MARGIN, MARGIN:-MARGIN].mean())
            print(f"{name}, ({x}, {y}): {', '.join(f'{mean:.3f}' for mean in means)} px")


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--views", type=int, default=1)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--shifts", action="store_true")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    networks = open_networks(options.networks, options.device, options.views)
    if options.shifts:
        print_shifts(networks, options.folder)
    else:
        print_errors(networks, options.folder, pairs=options.pairs)


if __name__ == "__main__":
    main()
