"""Real pairs, and the errors of the published RAFT-small checkpoint on them.

The figures are the published code's: 24 iterations, images padded to multiples of 8 by replication
on both sides.
"""

from dataclasses import dataclass


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
