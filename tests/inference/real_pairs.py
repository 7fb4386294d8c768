"""The published RAFT-small checkpoint, from the authors' file to its known errors on real pairs.

The expected figures are the published code's: 24 iterations, images padded to multiples
of 8 by replication on both sides.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gmaflow.inference import FlowEstimator
from gmaflow.io import read_flow_arrays, read_image

WITHIN = 0.01


@dataclass(frozen=True)
class Pair:
    """A pair with truth, and the end-point error that the published code has on it."""

    image1: str
    image2: str
    truth: str
    error: float
    outliers: float | None = None  # KITTI's Fl, in percent


def middlebury(name: str, error: float) -> Pair:
    frames, truth = f"middlebury/other-data/{name}", f"middlebury/other-gt-flow/{name}/flow10.flo"
    return Pair(f"{frames}/frame10.png", f"{frames}/frame11.png", truth, error)


def sintel(passes: str, scene: str, frame: int, error: float) -> Pair:
    folder, flow = f"sintel/training/{passes}/{scene}", f"sintel/training/flow/{scene}"
    first, second = (f"{folder}/frame_{number:04d}.png" for number in (frame, frame + 1))
    return Pair(first, second, f"{flow}/frame_{frame:04d}.flo", error)


def chairs(name: str, error: float) -> Pair:
    stem = f"flyingchairs/data/{name}"
    return Pair(f"{stem}_img1.ppm", f"{stem}_img2.ppm", f"{stem}_flow.flo", error)


def kitti(folder: str, images: str, truth: str, name: str, error: float, outliers: float) -> Pair:
    first, second = (f"{folder}/training/{images}/{name}_{number}.png" for number in (10, 11))
    return Pair(first, second, f"{folder}/training/{truth}/{name}_10.png", error, outliers)


SINTEL = (
    sintel("final", "alley_1", 2, 0.271),
    sintel("final", "market_5", 2, 4.204),
    sintel("final", "cave_2", 2, 1.339),
    sintel("final", "bandage_1", 35, 0.372),
    sintel("final", "ambush_4", 4, 68.035),
    sintel("clean", "alley_1", 2, 0.271),
    sintel("clean", "market_5", 2, 3.771),
    sintel("clean", "cave_2", 2, 1.183),
)
OTHERS = (
    middlebury("Dimetrodon", 0.246),
    middlebury("Grove2", 0.349),
    middlebury("Hydrangea", 0.326),
    middlebury("RubberWhale", 0.323),
    kitti("kitti2015", "image_2", "flow_occ", "000000", 7.559, 33.9),
    kitti("kitti2012", "colored_0", "flow_noc", "000045", 0.769, 3.99),
    chairs("00001", 1.133),
    chairs("00002", 0.549),
    chairs("00003", 1.492),
    chairs("90000", 2.731),
    chairs("90001", 0.967),
    chairs("90002", 1.172),
)


class RaftSmall:
    """Estimates each pair once, however many tests ask."""

    def __init__(self, folder: Path, weights: Path) -> None:
        self.folder = folder
        self.estimator = FlowEstimator(weights, iters=24, device="cpu", precision="fp32")
        self.errors = cache(self._errors)

    def _errors(self, pair: Pair) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return end-point errors, the truth and where it is known."""
        flow = self.estimator(self.folder / pair.image1, self.folder / pair.image2).array
        truth, valid, _ = read_flow_arrays(self.folder / pair.truth)
        return np.linalg.norm(flow - truth, axis=2), truth, valid


@pytest.fixture(scope="module")
def raft_small(material: Path, raft_small_file: Path) -> RaftSmall:
    return RaftSmall(material / "realflow", raft_small_file)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pair", [*SINTEL, *OTHERS], ids=lambda pair: pair.truth + pair.image1[15:23]
)
def test_each_pair_has_its_published_error(pair: Pair, raft_small: RaftSmall) -> None:
    errors, truth, valid = raft_small.errors(pair)
    assert errors[valid].mean() == pytest.approx(pair.error, rel=WITHIN)
    if pair.outliers is not None:
        outlier = (errors > 3) & (errors > 0.05 * np.linalg.norm(truth, axis=2))
        assert 100 * outlier[valid].mean() == pytest.approx(pair.outliers, rel=WITHIN)


@pytest.mark.slow
def test_sintel_errors_by_region(raft_small: RaftSmall) -> None:
    sums = {"noc": [], "occ": [], "occ-in": [], "occ-out": []}  # type: dict[str, list[np.ndarray]]
    for pair in SINTEL:
        errors, truth, _ = raft_small.errors(pair)
        mask = pair.truth.replace("/flow/", "/occlusions/").replace(".flo", ".png")
        marked = read_image(raft_small.folder / mask)[..., 0] > 127
        height, width = errors.shape
        y, x = np.mgrid[:height, :width]
        target_x, target_y = x + truth[..., 0], y + truth[..., 1]
        out = (target_x < 0) | (target_x > width) | (target_y < 0) | (target_y > height)
        occluded = marked | out
        for region, where in {
            "noc": ~occluded,
            "occ": occluded,
            "occ-in": occluded & ~out,
            "occ-out": out,
        }.items():
            sums[region].append(errors[where])
    expected = {"noc": 9.21, "occ": 16.0, "occ-in": 12.2, "occ-out": 40.5}
    for region, parts in sums.items():
        assert np.concatenate(parts).mean() == pytest.approx(expected[region], rel=WITHIN), region
