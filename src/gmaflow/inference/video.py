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
    """To the next frame; None before a cut, where there is none."""
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
        frames: Frames of one size, as from a `VideoReader`. Some may be missing between others:
            there is a step where the next one follows.
        backward: Estimate both ways, for occlusion and confidence.
        warm_start: Begin each pair with the flow of the one before in the shot.
        cut_threshold: How unlike two frames are that belong to two shots (see `cut_score`), between
            which nothing is estimated; None to estimate everywhere.
        done: Steps by number that were estimated before, and are left out. With their flow, where
            that is known, a warm start goes on as if it had never stopped.
    """
    done = done or {}
    last, encoded, previous = None, None, None
    for frame in frames:
        flow, now = None, None
        if last is not None and frame.number == last.number + 1 and last.number not in done:
            both = None
            cut = cut_threshold is not None and cut_score(last.image, frame.image) > cut_threshold
            if not cut:
                before = done.get(last.number - 1, previous) if warm_start else None
                encoded = encoded or estimator.encode(last.image)
                now = estimator.encode(frame.image)
                if backward:
                    both = estimator.bidirectional(encoded, now, previous=before)
                flow = both.forward if both else estimator(encoded, now, previous=before)
            length = frame.time - last.time
            yield VideoStep(last.number, last.image, last.time, length, flow, both, cut)
        last, encoded, previous = frame, now, flow
