"""What the network borrows motion from, as in the paper's figure of attention maps."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image

from gmaflow import viz
from gmaflow.data import FlowSample
from gmaflow.evaluation import html
from gmaflow.evaluation.distance import distance_to
from gmaflow.inference import FlowEstimator

NUM_QUERIES = 3
"""As many as in the paper's figure."""
Point = tuple[float, float]
EXPLAINED = (
    "The row of attention maps shows what points borrow motion from, bright where much; the points "
    "are hidden pixels where the truth tells of any."
)
"""What a page says of them."""

_SHOWN_WIDTH = 320
# A hidden pixel that is farther than this from anything visible is as deep as any.
_DEEP = 48
# What is this much shallower than the deepest is a speck or a rim, however far away it lies.
_SPECK = 0.25


def choose_queries(sample: FlowSample, count: int = NUM_QUERIES) -> tuple[Point, ...]:
    """Return points, x and y, whose attention is worth a look.

    Hidden pixels are: their motion cannot be matched and has to be borrowed. The deepest is taken
    first, then those that are deep and far from the ones before. Where the truth tells of none, or
    of fewer, points spread over the frame take their place.
    """
    height, width = sample.image1.shape[:2]
    hidden = sample.occluded
    found = [] if hidden is None else _deep_and_apart(hidden, count)
    spread = [(float(width * i // (count + 1)), float(height // 2)) for i in range(1, count + 1)]
    return (*found, *spread[len(found) :])


def attention_figures(
    estimator: FlowEstimator,
    sample: FlowSample,
    flow: Float32[np.ndarray, "h w 2"],
    queries: Sequence[Point],
    *,
    name: str = "",
) -> list[str]:
    """Draw the frame with its query points, their maps and the flow; nothing without attention."""
    if not estimator.config.aggregates:
        return []
    maps = list(estimator.attention(sample.image1, queries))
    # As small as they are shown, so that the rings around the points are not lost.
    small, shrunk = _shrink(sample.image1, queries)
    frame, overlays = viz.attention_pictures(small, maps, shrunk)
    of = f" of {name}" if name else ""
    return [
        html.figure(frame, f"query points{of}"),
        *(html.figure(overlay, f"attention map {i}") for i, overlay in enumerate(overlays, 1)),
        html.figure(viz.flow_to_image(flow), f"flow{of}"),
    ]


def _shrink(
    image: UInt8[np.ndarray, "h w 3"], points: Sequence[Point]
) -> tuple[UInt8[np.ndarray, "_ _ 3"], list[Point]]:
    picture = Image.fromarray(image)
    picture.thumbnail((_SHOWN_WIDTH, _SHOWN_WIDTH), Image.Resampling.LANCZOS)
    across, down = picture.width / image.shape[1], picture.height / image.shape[0]
    moved = [
        (min(x * across, picture.width - 1), min(y * down, picture.height - 1)) for x, y in points
    ]
    return np.asarray(picture), moved


def _deep_and_apart(hidden: Bool[np.ndarray, "h w"], count: int) -> list[Point]:
    """Pick hidden pixels one by one, each deep in its region and far from those before."""
    height, width = hidden.shape
    # The edge of the frame counts as visible: a point on it would be half a point.
    framed = distance_to(~np.pad(hidden, 1), limit=_DEEP)[1:-1, 1:-1]
    depth = np.minimum(framed, _DEEP)
    depth[depth < depth.max() * _SPECK] = 0
    score = depth.copy()
    y, x = np.mgrid[:height, :width]
    nearest = np.full(hidden.shape, np.inf)
    points: list[Point] = []
    while len(points) < count and score.max() > 0:
        row, column = np.unravel_index(int(score.argmax()), score.shape)
        points.append((float(column), float(row)))
        nearest = np.minimum(nearest, np.hypot(x - column, y - row))
        score = depth * nearest
    return points
