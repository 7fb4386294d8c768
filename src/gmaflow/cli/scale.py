"""One scale for the colours of a whole video or folder, chosen before the first frame is drawn."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gmaflow.cli.progress import progress_bar
from gmaflow.errors import ImageError
from gmaflow.io import FlowArrays, VideoReader, scale_image

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.inference import FlowEstimator

FEWEST_PAIRS, MOST_PAIRS = 3, 8
SHORTEST = 1.0
"""Pixels: if nothing moves, noise is not scaled up to full colour."""
QUANTILE, HEADROOM = 0.99, 1.25
"""Room above the few sampled pairs: motions beyond the scale are darker and would flicker."""
LARGE = 256
"""Frames with longer sides are sampled at half size; the scale is only approximate."""

Look: TypeAlias = "Callable[[], Sequence[np.ndarray]]"
"""Reads the two frames of a pair; fewer if they cannot be read, which is reported later."""


def choose_scale(
    estimator: "FlowEstimator",
    looks: Sequence[Look],
    *,
    cut_threshold: float | None = None,
    quiet: bool = False,
) -> float:
    """Return a length in pixels that nearly all motions stay below.

    It is a little more than the largest 99th percentile over a few pairs.

    Args:
        estimator: The estimator.
        looks: The pairs, from `looks_at_video` or `looks_at_frames`.
        cut_threshold: Pairs that differ more are ignored; None uses all.
        quiet: Show no progress.
    """
    from gmaflow.inference import cut_score

    longest = SHORTEST
    with progress_bar("colour scale", quiet=quiet) as show_progress:
        for number, look in enumerate(looks):
            show_progress(number, len(looks))
            images = look()
            if len(images) < 2 or (cut_threshold and cut_score(*images) > cut_threshold):
                continue
            try:
                longest = max(longest, HEADROOM * long_motion(estimator, *images))
            except ImageError:  # reported when this pair is estimated
                continue
    return longest


def long_motion(estimator: "FlowEstimator", image1: "np.ndarray", image2: "np.ndarray") -> float:
    """Return the 99th percentile of the lengths of a pair's motions."""
    import numpy as np

    shrink = 0.5 if min(image1.shape[:2]) >= LARGE else 1.0
    flow = estimator(scale_image(image1, shrink), scale_image(image2, shrink))
    return float(np.quantile(flow.length, QUANTILE)) / shrink


def scale_of(flows: "Iterable[FlowArrays]") -> float:
    """Return a length in pixels that nearly all motions of some flows stay below."""
    import numpy as np

    longest = SHORTEST
    for flow in flows:
        if flow.valid.any():
            lengths = np.linalg.norm(flow.array[flow.valid], axis=1)
            longest = max(longest, HEADROOM * float(np.quantile(lengths, QUANTILE)))
    return longest


def looks_at_video(reader: VideoReader) -> list[Look]:
    """Return pairs spread evenly over a video."""
    return [
        partial(first_two, glimpse) for glimpse in reader.glimpses(how_many(reader.num_frames or 0))
    ]


def first_two(reader: VideoReader) -> "list[np.ndarray]":
    """Read two frames; fewer if the video ends or is damaged."""
    with closing(iter(reader)) as frames:
        try:
            return [frame.image for frame in islice(frames, 2)]
        except ImageError:
            return []


def looks_at_frames(frames: Sequence[Path]) -> list[Look]:
    """Return pairs spread evenly over the frames of a folder; some may be unusable."""
    pairs = list(pairwise(frames))
    count = min(how_many(len(frames)), len(pairs))
    bounds = [*spread(len(pairs), count), len(pairs)]
    return [partial(first_usable, pairs[begin:end]) for begin, end in pairwise(bounds)]


def first_usable(pairs: Sequence[tuple[Path, Path]]) -> "Sequence[np.ndarray]":
    """Read the first pair that is readable and whose frames have one size."""
    from gmaflow.inference import load_image

    for first, second in pairs:
        try:
            images = load_image(first), load_image(second)
        except ImageError:
            continue
        if images[0].shape == images[1].shape:
            return images
    return []


def how_many(num_frames: int) -> int:
    """Return how many pairs to sample."""
    return max(FEWEST_PAIRS, min(num_frames // 8, MOST_PAIRS))


def spread(total: int, count: int) -> list[int]:
    """Return `count` indices below `total`, spread evenly from the first on."""
    return [total * number // count for number in range(count)]
