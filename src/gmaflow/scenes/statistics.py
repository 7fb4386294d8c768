"""How far things move and how much is hidden: numbers to compare scenes with real truth by.

Pixels are counted one by one into fine bins, so that any number of pairs takes the same memory.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64

from gmaflow.errors import FlowError
from gmaflow.geometry import leaves_frame
from gmaflow.scenes.arrays import pair_arrays
from gmaflow.scenes.outline import distance_to
from gmaflow.scenes.renderer import SceneRenderer

LOWEST = 2.0**-6
"""Motion shorter than this, in pixels, counts as none."""
_OCTAVES = 17
_BINS_AN_OCTAVE = 32
_CURVE_BINS = 16  # bins that make one point of a curve: half an octave
_PAIRS_AT_ONCE = 8
CELL = 8
"""Pixels along a cell of the grid that networks match on."""
_DEEPEST = 128  # pixels when counted, cells when kept; deeper ones count as this deep
_DEPTH_BINS = 16  # for each cell
_EDGES = LOWEST * 2.0 ** (np.arange(_OCTAVES * _BINS_AN_OCTAVE + 1) / _BINS_AN_OCTAVE)


@dataclass(frozen=True, eq=False)
class MotionStatistics:
    """What is known of the motion in a number of pairs, all their known pixels pooled.

    Attributes:
        name: what was counted.
        pairs: how many pairs.
        mean: mean motion in pixels.
        median: half of the pixels move farther.
        p90: one in ten moves farther.
        p99: one in a hundred does.
        p999: one in a thousand does.
        largest: the longest motion.
        still: share of pixels that do not move.
        occluded_in: share of pixels hidden behind something; None where that is not known.
        occluded_out: share of pixels whose target lies outside the second frame.
        hole_depth: mean distance of a pixel in `occluded_in` to the nearest visible pixel, in cells
            of 8 pixels; None if there are no such pixels.
        hole_depth_p90: one in ten of these pixels is farther from a visible one, in cells.
        holes_over_1: share of these pixels that are more than 1 cell from a visible one.
        holes_over_3: share of these pixels that are more than 3 cells from a visible one.
        curve: share of pixels in each half octave of motion from 1/64 pixel on.
    """

    name: str
    pairs: int
    mean: float
    median: float
    p90: float
    p99: float
    p999: float
    largest: float
    still: float
    occluded_in: float | None
    occluded_out: float
    hole_depth: float | None
    hole_depth_p90: float | None
    holes_over_1: float | None
    holes_over_3: float | None
    curve: Float[np.ndarray, " points"]

    @staticmethod
    def curve_places() -> Float[np.ndarray, " points"]:
        """The motions in the middle of each half octave of `curve`, in pixels."""
        half = 2.0 ** (_CURVE_BINS / _BINS_AN_OCTAVE / 2)
        return _EDGES[:-1:_CURVE_BINS] * half

    def as_json(self) -> dict[str, object]:
        """The same as plain values; the curve with its places."""
        curve = zip(self.curve_places().tolist(), self.curve.tolist(), strict=True)
        points = [[round(place, 4), round(share, 6)] for place, share in curve]
        return asdict(self) | {"curve": points}


class MotionTally:
    """Counts pixels, pair by pair."""

    def __init__(self) -> None:
        self.pairs = 0
        self._counts: Int64[np.ndarray, " bins"] = np.zeros(len(_EDGES) + 1, np.int64)
        self._sum = 0.0
        self._largest = 0.0
        self._out = 0
        self._in = 0
        self._pixels_with_in = 0
        self._depths: Int64[np.ndarray, " depths"] = np.zeros(_DEPTH_BINS * _DEEPEST, np.int64)
        self._depth_sum = 0.0

    def add(
        self,
        flow: Float32[np.ndarray, "h w 2"],
        valid: Bool[np.ndarray, "h w"],
        occluded: Bool[np.ndarray, "h w"] | None = None,
        *,
        scale: float = 1.0,
    ) -> None:
        """Count one pair.

        Args:
            flow: its true flow.
            valid: where that is known.
            occluded: what is hidden in the second frame; None if nobody knows.
            scale: the motion is multiplied by this, as if the frame were that much larger.
        """
        lengths = np.linalg.norm(flow[valid].astype(np.float64), axis=1) * scale
        leaves = leaves_frame(flow)
        out = leaves[valid]
        self.pairs += 1
        self._counts += np.bincount(
            np.searchsorted(_EDGES, lengths, side="right"), minlength=len(self._counts)
        )
        self._sum += float(lengths.sum())
        self._largest = max(self._largest, float(lengths.max(initial=0)))
        self._out += int(out.sum())
        if occluded is not None:
            self._in += int((occluded[valid] & ~out).sum())
            self._pixels_with_in += len(lengths)
            known = valid & ~leaves
            self._add_holes(known & occluded, known & ~occluded, scale)

    def _add_holes(
        self, hidden: Bool[np.ndarray, "h w"], visible: Bool[np.ndarray, "h w"], scale: float
    ) -> None:
        distance = distance_to(torch.from_numpy(visible)[None], _DEEPEST)[0].numpy()
        cells = np.minimum(distance[hidden] * (scale / CELL), _DEEPEST)
        self._depth_sum += float(cells.sum())
        # Bin k holds the depths above k and up to k + 1 steps.
        bins = np.ceil(cells * _DEPTH_BINS).astype(np.int64) - 1
        self._depths += np.bincount(bins, minlength=len(self._depths))

    def statistics(self, name: str) -> MotionStatistics:
        """Sum up.

        Raises:
            FlowError: not a single pixel was counted.
        """
        pixels = int(self._counts.sum())
        if pixels == 0:
            raise FlowError(f"{name}: no pixel has a known flow, so there is nothing to count")
        known_in = self._pixels_with_in
        in_holes = int(self._depths.sum())
        deeper = in_holes - np.cumsum(self._depths)  # than the upper end of each bin
        return MotionStatistics(
            name=name,
            pairs=self.pairs,
            mean=self._sum / pixels,
            median=self._exceeded_by(0.5),
            p90=self._exceeded_by(0.1),
            p99=self._exceeded_by(0.01),
            p999=self._exceeded_by(0.001),
            largest=self._largest,
            still=int(self._counts[0]) / pixels,
            occluded_in=self._in / known_in if known_in else None,
            occluded_out=self._out / pixels,
            hole_depth=self._depth_sum / in_holes if in_holes else None,
            hole_depth_p90=(
                (int(np.argmax(deeper <= 0.1 * in_holes)) + 1) / _DEPTH_BINS if in_holes else None
            ),
            holes_over_1=float(deeper[_DEPTH_BINS - 1]) / in_holes if in_holes else None,
            holes_over_3=float(deeper[3 * _DEPTH_BINS - 1]) / in_holes if in_holes else None,
            curve=self._counts[1:-1].reshape(-1, _CURVE_BINS).sum(axis=1) / pixels,
        )

    def _exceeded_by(self, share: float) -> float:
        """The motion that a share of the pixels exceeds, to about a hundredth of itself."""
        below = np.concatenate([[0], np.cumsum(self._counts)])
        wanted = (1 - share) * below[-1]
        number = int(np.searchsorted(below, wanted, side="left")) - 1
        if number < 1:
            return 0.0
        if number > len(_EDGES) - 1:
            return self._largest
        inside = (wanted - below[number]) / self._counts[number]
        place = float(_EDGES[number - 1] * (_EDGES[number] / _EDGES[number - 1]) ** inside)
        return min(place, self._largest)


def rendered_statistics(
    renderer: SceneRenderer,
    *,
    start: int = 0,
    count: int,
    scale: float = 1.0,
    progress: Callable[[int], None] = lambda done: None,
) -> MotionStatistics:
    """Count rendered pairs; the preset's name becomes the statistics' name.

    Args:
        renderer: renders them.
        start: number of the first pair.
        count: how many pairs.
        scale: the motion is multiplied by this: scenes keep their looks at any size, so that small
            frames tell of large ones.
        progress: called with the number of pairs that are counted.
    """
    tally = MotionTally()
    for begin in range(start, start + count, _PAIRS_AT_ONCE):
        batch = renderer.render(begin, min(_PAIRS_AT_ONCE, start + count - begin))
        for pair in pair_arrays(batch):
            hidden = pair.occluded_in | pair.occluded_out
            tally.add(pair.flow, pair.valid, hidden, scale=scale)
        progress(tally.pairs)
    return tally.statistics(renderer.preset)
