"""The flow of a video: frame after frame, shot after shot."""

from collections.abc import Iterable, Iterator, Mapping
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
    """To the next frame; None before a cut, where there is none, and where it was done before."""
    both: BidirectionalFlow | None = None
    """Flow both ways, where that was asked for."""
    cut: bool = False
    """Whether the next frame is of another shot."""


def estimate_video(
    estimator: FlowEstimator,
    frames: Iterable[TimedFrame],
    *,
    backward: bool = False,
    warm_start: bool = False,
    cut_threshold: float | None = CUT_THRESHOLD,
    done: Mapping[int, Flow | None] | None = None,
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
        done: Steps by number that were estimated before and are not again. With their flow, where
            that is known, a warm start goes on as if it had never stopped.
    """
    done = done or {}
    last, encoded, previous = None, None, None
    for number, frame in enumerate(frames, start=-1):
        if last is not None:
            flow, both, now = None, None, None
            cut = cut_threshold is not None and cut_score(last.image, frame.image) > cut_threshold
            if not cut and number not in done:
                encoded = encoded or estimator.encode(last.image)
                now = estimator.encode(frame.image)
                if backward:
                    both = estimator.bidirectional(encoded, now, previous=previous)
                flow = both.forward if both else estimator(encoded, now, previous=previous)
            yield VideoStep(number, last.image, last.time, frame.time - last.time, flow, both, cut)
            previous = (flow or done.get(number)) if warm_start and not cut else None
            encoded = now
        last = frame
