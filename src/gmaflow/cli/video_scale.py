"""One scale for the colours of a whole video, known before its first frame is drawn."""

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from gmaflow.cli.progress import progress_bar
from gmaflow.errors import ImageError
from gmaflow.io import VideoReader

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.inference import FlowEstimator

FEWEST_PAIRS, MOST_PAIRS = 3, 8
SHORTEST = 1.0
"""Pixels: where nothing moves, the noise of the estimate is not blown up to full colour."""
QUANTILE, HEADROOM = 0.99, 1.25
"""Some room above what the few pairs show: what exceeds the scale is darker, and would flicker."""
LARGE = 256
"""Frames whose sides are at least that long are looked at in half size: it is a rough figure."""


def choose_scale(
    estimator: "FlowEstimator",
    reader: VideoReader,
    *,
    cut_threshold: float | None,
    quiet: bool = False,
) -> float:
    """Return a length in pixels that nearly all motions of a video stay below.

    It is a little more than the largest 99th percentile of a few pairs, spread evenly over it.
    """
    import numpy as np

    from gmaflow.inference import cut_score

    pairs = (reader.num_frames or 0) // 8
    count = max(FEWEST_PAIRS, min(pairs, MOST_PAIRS))
    shrink = 0.5 if reader.scale * min(reader.info.height, reader.info.width) >= LARGE else 1.0
    glimpses = reader.glimpses(count, shrink=shrink)
    longest = SHORTEST
    with progress_bar("colour scale", quiet=quiet) as show_progress:
        for number, glimpse in enumerate(glimpses):
            show_progress(number, len(glimpses))
            images = first_two(glimpse)
            if len(images) < 2 or (cut_threshold and cut_score(*images) > cut_threshold):
                continue
            length = float(np.quantile(estimator(*images).length, QUANTILE)) / shrink
            longest = max(longest, HEADROOM * length)
    return longest


def first_two(reader: VideoReader) -> "list[np.ndarray]":
    """Read two frames; fewer where the video ends or is damaged, which is told later."""
    with closing(iter(reader)) as frames:
        try:
            return [frame.image for frame in islice(frames, 2)]
        except ImageError:
            return []
