"""Consecutive frames: one loop over their pairs, for sequences, folders, videos, benchmarks.

Two other loops exist to keep a GPU busier: `estimate_pairs_in_batches`, and that of
`FlowEstimator.sequence_on_device`.

Every frame is encoded once, though it is part of two pairs. With a warm start each pair starts from
the flow of the previous pair. No flow is estimated across a cut between two shots.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float32, UInt8

from gmaflow.errors import FlowError, ImageError
from gmaflow.inference.flow import BidirectionalFlow, Flow
from gmaflow.inference.images import Frame, FrameLike
from gmaflow.io import TimedFrame

if TYPE_CHECKING:
    from gmaflow.inference.estimator import FlowEstimator

CUT_THRESHOLD = 0.4
"""Of 22 pairs from fast films, drives and rendered scenes none scores above 0.37; of 228 pairs of
frames from two scenes one scores below 0.4."""

_SIDE = 32  # of the small images that are compared
_MAX_SHIFT = 4  # the largest shift between them, in their pixels
_NOISE = 2.0  # grey values: smaller differences count as equal


FrameOrError: TypeAlias = "FrameLike | ImageError"
"""An image, or why it cannot be read."""


@dataclass(frozen=True, eq=False)
class SequenceFrame:
    """An image and its position in a sequence; a missing number is a gap."""

    number: int
    image: FrameOrError
    name: str = ""
    """What it is called in messages."""
    scale: float = 1.0
    """By how much it was made smaller."""


FrameT = TypeVar("FrameT", SequenceFrame, TimedFrame)


@dataclass(frozen=True, eq=False)
class PairEstimate(Generic[FrameT]):
    """Two consecutive frames, and the flow from the first to the second."""

    first: FrameT
    second: FrameT
    flow: Flow | None = None
    """None at a cut, or if the pair cannot be used."""
    both: BidirectionalFlow | None = None
    """Flow in both directions, if requested."""
    attention: Float32[np.ndarray, "k h w"] | None = None
    """Attention maps of the requested points."""
    cut: bool = False
    """Whether the second frame belongs to another shot."""
    error: ImageError | None = None
    """Why the pair cannot be used."""

    @property
    def number(self) -> int:
        """The number of the first frame, from 0."""
        return self.first.number

    @property
    def image(self: "PairEstimate[TimedFrame]") -> UInt8[np.ndarray, "h w 3"]:
        """The first frame."""
        return self.first.image

    @property
    def time(self: "PairEstimate[TimedFrame]") -> Fraction:
        """When the first frame appears, in seconds."""
        return self.first.time

    @property
    def seconds(self: "PairEstimate[TimedFrame]") -> Fraction:
        """How long the first frame is shown."""
        return self.second.time - self.first.time


VideoStep = PairEstimate[TimedFrame]
"""A frame of a video, and its motion to the next frame."""


def estimate_pairs(
    estimator: "FlowEstimator",
    frames: Iterable[FrameT],
    *,
    backward: bool = False,
    warm_start: bool = False,
    points: Sequence[tuple[float, float]] = (),
    cut_threshold: float | None = None,
    done: Mapping[int, Flow | None] | None = None,
    skip_unusable: bool = False,
) -> Iterator[PairEstimate[FrameT]]:
    """Estimate the flow between consecutive frames. At most two encoded frames are kept.

    Args:
        estimator: The estimator.
        frames: Frames in order. Where a number is missing there is no pair. A `Frame` is used as it
            is, encoded or not.
        backward: Estimate both directions.
        warm_start: Start each pair from the flow of the previous pair of the shot.
        points: Points (x, y) of the first frames to compute attention maps for.
        cut_threshold: No flow is estimated between frames that differ more (see `cut_score`); None
            estimates every pair.
        done: Pairs, by the number of their first frame, that were estimated before and are left
            out; with their flow, if known, a warm start continues as if never interrupted.
        skip_unusable: For images that cannot be used, yield the pair with an `error` instead of
            raising it.
    """
    check_cut_threshold(cut_threshold)
    done = done or {}
    last: FrameT | None = None
    encoded: Frame | None = None
    previous: Flow | None = None
    for frame in frames:
        flow, encoded_second = None, None
        if last is not None and frame.number == last.number + 1 and last.number not in done:
            both, maps, cut, error = None, None, False, None
            start = done.get(last.number - 1, previous) if warm_start else None
            try:
                first, second = _usable(last.image), _usable(frame.image)
                cut = is_cut(first, second, cut_threshold)
                if not cut:
                    encoded = encoded or _encode(estimator, first)
                    encoded_second = _encode(estimator, second)
                    maps = estimator.attention(encoded, points) if points else None
                    if backward:
                        both = estimator.bidirectional(
                            encoded, encoded_second, previous=start, scale=last.scale
                        )
                    flow = (
                        both.forward if both else estimator(encoded, encoded_second, previous=start)
                    )
            except ImageError as err:
                if not skip_unusable:
                    raise
                error = err
            yield PairEstimate(last, frame, flow, both, maps, cut, error)
        last, encoded, previous = frame, encoded_second, flow


def estimate_pairs_in_batches(
    estimator: "FlowEstimator",
    frames: Iterable[TimedFrame],
    *,
    batch: Callable[[int, int], int],
    cut_threshold: float | None = None,
) -> Iterator[PairEstimate[TimedFrame]]:
    """Estimate the flow between consecutive frames, several pairs at a time.

    Small frames do not keep a GPU busy one by one. This is a loop of its own because
    `estimate_pairs` needs the result of a pair before it goes on to the next. All batches of a clip
    have one size, since calls of few sizes can be recorded: the last one is filled up with its last
    frame. A clip shorter than a batch is filled up to a power of two.

    Args:
        estimator: The estimator.
        frames: Frames in order, without gaps.
        batch: How many pairs to estimate at a time, from the height and width of the frames; at
            least 1.
        cut_threshold: As for `estimate_pairs`. Pairs at cuts are estimated too, and left out.
    """
    pending: list[TimedFrame] = []
    size, filled = 1, False
    for frame in frames:
        if not pending:
            size = max(1, batch(*frame.image.shape[:2]))
        pending.append(frame)
        if len(pending) > size:
            yield from _estimate_batch(estimator, pending, size, cut_threshold)
            filled = True
            del pending[:-1]
    if len(pending) > 1:
        padded_size = 2 ** math.ceil(math.log2(len(pending) - 1))
        yield from _estimate_batch(
            estimator, pending, size if filled else min(size, padded_size), cut_threshold
        )


def _estimate_batch(
    estimator: "FlowEstimator",
    frames: Sequence[TimedFrame],
    size: int,
    cut_threshold: float | None,
) -> Iterator[PairEstimate[TimedFrame]]:
    images = [frame.image for frame in frames]
    filled = images + images[-1:] * (size + 1 - len(images))
    flows = estimator.consecutive(filled)
    for first, second, flow in zip(frames, frames[1:], flows, strict=False):
        cut = is_cut(first.image, second.image, cut_threshold)
        yield PairEstimate(first, second, None if cut else flow, cut=cut)


def estimate_video(
    estimator: "FlowEstimator",
    frames: Iterable[TimedFrame],
    *,
    backward: bool = False,
    warm_start: bool = False,
    cut_threshold: float | None = CUT_THRESHOLD,
    done: Mapping[int, Flow | None] | None = None,
) -> Iterator[VideoStep]:
    """Estimate the flow of a video: a step for each frame but the last.

    `frames` are of one size, as from a `VideoReader`; some may be missing. The options are those of
    `estimate_pairs`, which does not look for cuts by default.
    """
    return estimate_pairs(
        estimator,
        frames,
        backward=backward,
        warm_start=warm_start,
        cut_threshold=cut_threshold,
        done=done,
    )


def check_cut_threshold(threshold: object) -> None:
    """Refuse a threshold that is neither a number nor None."""
    if threshold is not None and not (isinstance(threshold, Real) and not math.isnan(threshold)):
        raise FlowError(f"cut_threshold is {threshold!r}; use a number such as 0.4, or None")


def cut_score(image1: UInt8[np.ndarray, "h w 3"], image2: UInt8[np.ndarray, "h w 3"]) -> float:
    """Return how much two frames differ: 0 if they show the same, about 1 if they are unrelated.

    It is 1 minus the correlation of the two, made small and shifted to where they agree best, so
    neither motion nor a change of light makes a cut.
    """
    return _score(_shrink(image1), _shrink(image2))


def is_cut(image1: FrameLike, image2: FrameLike, threshold: float | None) -> bool:
    """Whether two frames differ by more than a threshold, see `cut_score`; never if it is None."""
    if threshold is None:
        return False
    if not (isinstance(image1, np.ndarray) and isinstance(image2, np.ndarray)):
        raise TypeError("cuts are found between arrays")
    small1, small2 = _shrink(image1), _shrink(image2)
    # Most frames agree without a shift; then the others need not be tried.
    if 1 - _correlation(small1, small2, 0, 0) <= threshold:
        return False
    return _score(small1, small2) > threshold


def _score(small1: Float32[np.ndarray, "s s 3"], small2: Float32[np.ndarray, "s s 3"]) -> float:
    shifts = range(-_MAX_SHIFT, _MAX_SHIFT + 1)
    return 1 - max(_correlation(small1, small2, x, y) for y in shifts for x in shifts)


def _usable(image: FrameOrError) -> FrameLike:
    if isinstance(image, ImageError):
        raise image
    return image


def _encode(estimator: "FlowEstimator", image: FrameLike) -> Frame:
    return image if isinstance(image, Frame) else estimator.encode(image)


def _shrink(image: UInt8[np.ndarray, "h w 3"]) -> Float32[np.ndarray, "s s 3"]:
    from PIL import Image

    small = Image.fromarray(image).resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return np.asarray(small, np.float32)


def _correlation(
    small1: Float32[np.ndarray, "s s 3"], small2: Float32[np.ndarray, "s s 3"], x: int, y: int
) -> float:
    part1, part2 = _overlap(small1, x, y), _overlap(small2, -x, -y)
    part1, part2 = (part - part.mean(axis=(0, 1)) for part in (part1, part2))
    # Flat images have no correlation but are alike; the noise term makes them correlate.
    noise = part1.size * _NOISE**2
    product, square1, square2 = (
        float((one * other).sum()) + noise
        for one, other in ((part1, part2), (part1, part1), (part2, part2))
    )
    return product / math.sqrt(square1 * square2)


def _overlap(small: Float32[np.ndarray, "s s 3"], x: int, y: int) -> Float32[np.ndarray, "v u 3"]:
    return small[max(y, 0) : _SIDE + min(y, 0), max(x, 0) : _SIDE + min(x, 0)]
