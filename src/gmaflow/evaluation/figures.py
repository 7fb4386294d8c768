"""The pictures of a report: a pair, its estimates and errors, and its attention maps."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image

from gmaflow import viz
from gmaflow.data import FlowSample
from gmaflow.errors import FlowFileError
from gmaflow.evaluation.pair_evaluator import is_reproducible
from gmaflow.geometry import hole_depths
from gmaflow.inference import FlowEstimator
from gmaflow.io import read_flow_arrays

NUM_QUERIES = 3
"""As in the paper's figure of attention maps."""
Point = tuple[float, float]

_WIDEST = 560
_ATTENTION_WIDTH = 320
# Occluded pixels further than this many pixels from any visible one count as equally deep.
_DEEP = 48
# Regions shallower than this share of the deepest are specks or rims, and are not chosen.
_SPECK = 0.25


@dataclass(frozen=True)
class Figure:
    """A picture with a caption; the picture is inside the page, as base64."""

    caption: str
    width: int
    height: int
    data: str

    @classmethod
    def of(cls, picture: UInt8[np.ndarray, "h w 3"], caption: str) -> "Figure":
        """Shrink a picture for a page and encode it."""
        image = Image.fromarray(picture)
        image.thumbnail((_WIDEST, _WIDEST), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=90, subsampling=0)
        data = base64.b64encode(buffer.getvalue()).decode()
        return cls(caption, image.width, image.height, data)


def pair_figures(
    sample: FlowSample, estimates: dict[str, Float32[np.ndarray, "h w 2"]]
) -> list[Figure]:
    """Show a pair: frames, ground truth, each estimate and its error, and occlusion."""
    assert sample.flow is not None
    assert sample.valid is not None
    scale = viz.largest_length(sample.flow, valid=sample.valid) or 1.0
    errors = [
        viz.largest_length(flow - sample.flow, valid=sample.valid) for flow in estimates.values()
    ]
    most = max(1.0, *errors)
    truth = viz.flow_to_image(sample.flow, max_length=scale, valid=sample.valid)
    figures = [
        Figure.of(sample.image1, "first frame"),
        Figure.of(sample.image2, "second frame"),
        Figure.of(viz.add_legend(truth, scale), "true flow"),
    ]
    hidden = _occlusion_figures(sample)
    if len(estimates) > 1:  # next to the truth, so that estimates and errors share a row
        figures += hidden
    figures += [
        Figure.of(viz.flow_to_image(flow, max_length=scale), name or "estimate")
        for name, flow in estimates.items()
    ]
    for name, flow in estimates.items():
        error = viz.error_map(flow, sample.flow, valid=sample.valid, max_error=most)
        of = f" of {name}" if name else ""
        figures.append(Figure.of(error, f"error{of}, dark 0 to light {most:.3g} px"))
    return figures if len(estimates) > 1 else figures + hidden


def _occlusion_figures(sample: FlowSample) -> list[Figure]:
    if sample.occluded_out is None:
        return []
    inside = sample.occluded_in
    known = np.zeros_like(sample.occluded_out) if inside is None else inside
    picture = viz.occlusion_overlay(sample.image1, known, sample.occluded_out)
    caption = "occluded (orange), out of frame (blue)"
    return [Figure.of(picture, caption if inside is not None else "out of frame (blue)")]


def shown_flow(
    path: Path, sample: FlowSample, estimator: FlowEstimator
) -> Float32[np.ndarray, "h w 2"]:
    """Read an estimate that was saved for the report, or estimate and save it."""
    try:
        return read_flow_arrays(path).array
    except FlowFileError:
        flow = estimator(sample.image1, sample.image2)
        if is_reproducible(flow, estimator):
            flow.save(path)
        return flow.array


def choose_queries(sample: FlowSample, count: int = NUM_QUERIES) -> tuple[Point, ...]:
    """Return query points (x, y) whose attention is interesting.

    Occluded pixels are: their motion cannot be matched and has to be aggregated from elsewhere. The
    deepest is chosen first, then points that are deep and far from those already chosen. If there
    are too few, evenly spaced points are added.
    """
    height, width = sample.image1.shape[:2]
    hidden = sample.occluded
    found = [] if hidden is None else _deep_and_apart(hidden, count)
    spaced = [(float(width * i // (count + 1)), float(height // 2)) for i in range(1, count + 1)]
    return (*found, *spaced[len(found) :])


def attention_figures(
    estimator: FlowEstimator,
    sample: FlowSample,
    flow: Float32[np.ndarray, "h w 2"],
    queries: Sequence[Point],
    *,
    name: str = "",
) -> list[Figure]:
    """Show the frame with its query points, their attention maps and the flow.

    Networks without attention have no such figures.
    """
    if not estimator.config.aggregates:
        return []
    maps = list(estimator.attention(sample.image1, queries))
    # Drawn at the size they are shown, so that the rings around the points stay visible.
    small, shrunk = _shrink(sample.image1, queries)
    frame, overlays = viz.attention_pictures(small, maps, shrunk)
    of = f" of {name}" if name else ""
    return [
        Figure.of(frame, f"query points{of}"),
        *(Figure.of(overlay, f"attention map {i}") for i, overlay in enumerate(overlays, 1)),
        Figure.of(viz.flow_to_image(flow), f"flow{of}"),
    ]


def _shrink(
    image: UInt8[np.ndarray, "h w 3"], points: Sequence[Point]
) -> tuple[UInt8[np.ndarray, "_ _ 3"], list[Point]]:
    picture = Image.fromarray(image)
    picture.thumbnail((_ATTENTION_WIDTH, _ATTENTION_WIDTH), Image.Resampling.LANCZOS)
    across, down = picture.width / image.shape[1], picture.height / image.shape[0]
    moved = [
        (min(x * across, picture.width - 1), min(y * down, picture.height - 1)) for x, y in points
    ]
    return np.asarray(picture), moved


def _deep_and_apart(hidden: Bool[np.ndarray, "h w"], count: int) -> list[Point]:
    """Pick occluded pixels one by one, each deep in its region and far from the earlier ones."""
    height, width = hidden.shape
    # The frame's edge counts as visible, so that no point is cut off by it.
    depth = hole_depths(~np.pad(hidden, 1), limit=_DEEP)[1:-1, 1:-1].copy()
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
