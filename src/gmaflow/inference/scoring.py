"""How much moves in a clip, as a few numbers: the motion score that video curation uses."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt32

from gmaflow.errors import FlowError
from gmaflow.inference.flow import BidirectionalFlow, Flow, known_pixels

STILL = 0.5
"""Pixels that move less than this, in pixels, are still."""


@dataclass(frozen=True, kw_only=True)
class MotionScore:
    """The motion of a clip: lengths in pixels between two frames, over all pixels of all pairs."""

    pairs: int
    """Pairs of frames with flow."""
    cuts: int
    """Pairs without flow, because the second frame belongs to another shot."""
    height: int
    width: int
    mean: float
    median: float
    p95: float
    """The length that 95 % of the pixels do not exceed."""
    still: float
    """Share of pixels that move less than half a pixel."""
    camera: float
    """Mean length of the camera's motion."""
    residual: float
    """Mean length of the residual motion."""
    moving: float
    """Share of the frame that moves by itself."""


class LengthHistogram:
    """Counts lengths for their quantiles; memory does not grow with their number.

    The upper half of a positive float32 is the number of its bin: lengths in a bin differ by less
    than 0.8 %, and powers of two are edges.
    """

    _SHIFT = 16
    _BINS = 1 << (32 - _SHIFT - 1)

    def __init__(self) -> None:
        self._counts = np.zeros(self._BINS, np.int64)

    def add(self, lengths: Float[np.ndarray, " lengths"]) -> None:
        self._counts += np.bincount(self._bin(lengths), minlength=self._BINS)

    def below(self, lengths: Float[np.ndarray, " lengths"]) -> Int64[np.ndarray, " lengths"]:
        """Return how many counted lengths are below each of these, rounded down to edges."""
        return (np.cumsum(self._counts) - self._counts)[self._bin(lengths)]

    def quantile(self, share: float) -> float:
        """Return the length that a share of the counted ones does not exceed."""
        total = np.cumsum(self._counts)
        index = int(np.searchsorted(total, share * total[-1]))
        # The middle of the bin.
        low, high = (np.array([index + i], np.uint32) << self._SHIFT for i in (0, 1))
        return float((low.view(np.float32)[0] + high.view(np.float32)[0]) / 2)

    @classmethod
    def _bin(cls, lengths: Float[np.ndarray, " lengths"]) -> UInt32[np.ndarray, " lengths"]:
        return lengths.astype(np.float32).view(np.uint32) >> cls._SHIFT


class MotionScorer:
    """Adds up the motion of a clip, pair by pair; memory does not grow with the clip."""

    def __init__(self) -> None:
        self._pairs = self._cuts = self._pixels = 0
        self._size = (0, 0)
        self._sums = np.zeros(5)
        self._lengths = LengthHistogram()

    def add(
        self,
        flow: Flow | BidirectionalFlow | None,
        *,
        ignore: Bool[np.ndarray, "h w"] | None = None,
    ) -> None:
        """Add the flow of a pair, or None for a cut.

        Args:
            flow: The flow; in both directions its confidence helps to find the camera's motion.
            ignore: Pixels of the first frame that do not count.

        Raises:
            FlowError: The mask has another size, or leaves too few pixels.
        """
        if flow is None:
            self._cuts += 1
            return
        camera = flow.camera(ignore=ignore)
        forward = flow.forward if isinstance(flow, BidirectionalFlow) else flow
        valid = known_pixels(forward)
        valid = valid if ignore is None else valid & ~ignore
        length, camera_length, residual_length = (
            np.hypot(vectors[valid, 0], vectors[valid, 1])
            for vectors in (forward.array, camera.motion, camera.residual)
        )
        self._pairs += 1
        self._pixels += len(length)
        self._size = forward.shape[:2]
        self._sums += [
            values.sum(dtype=np.float64)
            for values in (
                length,
                length < STILL,
                camera_length,
                residual_length,
                camera.moving[valid],
            )
        ]
        self._lengths.add(length)

    def result(self) -> MotionScore:
        """Return the score of the pairs that were added.

        Raises:
            FlowError: No pair has flow.
        """
        if not self._pairs:
            reason = "every pair of frames is a cut" if self._cuts else "there is one frame"
            raise FlowError(f"{reason}; a score needs at least two frames of a shot")
        mean, still, camera, residual, moving = (float(s) / self._pixels for s in self._sums)
        return MotionScore(
            pairs=self._pairs,
            cuts=self._cuts,
            height=self._size[0],
            width=self._size[1],
            mean=mean,
            median=self._lengths.quantile(0.5),
            p95=self._lengths.quantile(0.95),
            still=still,
            camera=camera,
            residual=residual,
            moving=moving,
        )


def score_motion(flows: Iterable[Flow | BidirectionalFlow | None]) -> MotionScore:
    """Score the motion of a clip in one pass.

    Args:
        flows: The flow of each pair of frames, None for a cut.

    Raises:
        FlowError: There is no flow.
    """
    scorer = MotionScorer()
    for flow in flows:
        scorer.add(flow)
    return scorer.result()
