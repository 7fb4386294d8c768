"""The flow of a video: frame after frame, shot after shot."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import UInt8

from gmaflow.inference.estimator import FlowEstimator
from gmaflow.inference.flow import BidirectionalFlow, Flow
from gmaflow.inference.shot_cuts import CUT_THRESHOLD, cut_score
from gmaflow.io import TimedFrame


@dataclass(frozen=True, eq=False)
class VideoStep:
    """A frame of a video, and what happens until the next one."""

    number: int
    """Which frame it is, from 0."""
    image: UInt8[np.ndarray, "h w 3"]
    time: Fraction
    """When it appears, in seconds."""
    seconds: Fraction
    """How long it is shown."""
    flow: Flow | None
    """To the next frame; None before a cut, where there is none."""
    both: BidirectionalFlow | None = None
    """Flow both ways, where that was asked for."""


def estimate_video(
    estimator: FlowEstimator,
    frames: Iterable[TimedFrame],
    *,
    backward: bool = False,
    warm_start: bool = False,
    cut_threshold: float | None = CUT_THRESHOLD,
) -> Iterator[VideoStep]:
    """Estimate the flow from each frame to the next, one step for each frame but the last.

    Every frame is encoded once, and no more than two of them are held.

    Args:
        estimator: What estimates.
        frames: Frames of one size, as from a `VideoReader`.
        backward: Estimate both ways, for occlusion and confidence.
        warm_start: Begin each pair with the flow of the one before in the shot.
        cut_threshold: How unlike two frames are that belong to two shots (see `cut_score`), between
            which nothing is estimated; None to estimate everywhere.
    """
    last, encoded, previous = None, None, None
    for number, frame in enumerate(frames):
        now = estimator.encode(frame.image)
        if last is not None and encoded is not None:
            flow, both = None, None
            cut = cut_threshold is not None and cut_score(last.image, frame.image) > cut_threshold
            if backward and not cut:
                both = estimator.bidirectional(encoded, now, previous=previous)
                flow = both.forward
            elif not cut:
                flow = estimator(encoded, now, previous=previous)
            yield VideoStep(number - 1, last.image, last.time, frame.time - last.time, flow, both)
            previous = flow if warm_start else None
        last, encoded = frame, now
