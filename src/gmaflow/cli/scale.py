"""One scale for the colours of a whole video or folder, known before its first frame is drawn."""

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
"""Pixels: where nothing moves, the noise of the estimate is not blown up to full colour."""
QUANTILE, HEADROOM = 0.99, 1.25
"""Some room above what the few pairs show: what exceeds the scale is darker, and would flicker."""
LARGE = 256
"""Frames whose sides are at least that long are looked at in half size: it is a rough figure."""

Look: TypeAlias = "Callable[[], Sequence[np.ndarray]]"
"""Reads the two frames of a pair; fewer where they cannot be had, which is told later."""


def choose_scale(
    estimator: "FlowEstimator",
    looks: Sequence[Look],
    *,
    cut_threshold: float | None = None,
    quiet: bool = False,
) -> float:
    """Return a length in pixels that nearly all motions stay below.

    It is a little more than the largest 99th percentile of a few pairs.

    Args:
        estimator: What estimates.
        looks: The pairs, as `looks_at_video` or `looks_at_frames` spreads them.
        cut_threshold: How unlike the frames of a pair are that does not count; None counts all.
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
            except ImageError:  # as it will be told when the turn of this pair comes
                continue
    return longest


def long_motion(estimator: "FlowEstimator", image1: "np.ndarray", image2: "np.ndarray") -> float:
    """Return the length of the longest motions of a pair, but for a few."""
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
    """Return pairs at moments spread evenly over a video."""
    return [
        partial(first_two, glimpse) for glimpse in reader.glimpses(how_many(reader.num_frames or 0))
    ]


def first_two(reader: VideoReader) -> "list[np.ndarray]":
    """Read two frames; fewer where the video ends or is damaged."""
    with closing(iter(reader)) as frames:
        try:
            return [frame.image for frame in islice(frames, 2)]
        except ImageError:
            return []


def looks_at_frames(frames: Sequence[Path]) -> list[Look]:
    """Return pairs spread evenly over the frames of a folder, of which some may be unusable."""
    pairs = list(pairwise(frames))
    count = min(how_many(len(frames)), len(pairs))
    bounds = [len(pairs) * number // count for number in range(count + 1)]
    return [partial(first_usable, pairs[begin:end]) for begin, end in pairwise(bounds)]


def first_usable(pairs: Sequence[tuple[Path, Path]]) -> "Sequence[np.ndarray]":
    """Read the first pair that can be read, and whose frames are of one size."""
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
    """Return at how many pairs to look."""
    return max(FEWEST_PAIRS, min(num_frames // 8, MOST_PAIRS))
