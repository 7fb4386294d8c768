"""Pictures of scenes: contact sheets of pairs, and charts of their motion."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from gmaflow.errors import FlowError
from gmaflow.scenes.motion_statistics import MotionStatistics
from gmaflow.scenes.renderer import PairArrays
from gmaflow.viz import (
    Series,
    add_legend,
    flow_to_image,
    largest_length,
    line_plot,
    occlusion_overlay,
    panel,
)
from gmaflow.viz.flow_colors import format_length

_ONE_PAIR_A_ROW = 4  # with more pairs, two go into each row
_WIDE = 1.8  # unless frames are wider than this aspect ratio
_FASTEST = 0.02  # share of pixels drawn as if slower, so that the others have visible colours


def contact_sheet(pairs: Sequence[PairArrays], names: Sequence[str]) -> UInt8[np.ndarray, "_ _ 3"]:
    """Lay out pairs: both frames, the flow as colour, and the occluded pixels."""
    if not pairs:
        raise FlowError("no pairs for the contact sheet; give at least one")
    pictures, captions = [], []
    for pair, name in zip(pairs, names, strict=True):
        longest = largest_length(pair.flow, valid=pair.valid)
        colours, scale = _colours(pair, longest)
        hidden_in, hidden_out = (m.mean() for m in (pair.occluded_in, pair.occluded_out))
        pictures += [
            pair.final1,
            pair.final2,
            add_legend(colours, scale) if longest else colours,
            occlusion_overlay(pair.clean1, pair.occluded_in, pair.occluded_out),
        ]
        captions += [
            f"{name}, frame 1",
            "frame 2",
            f"flow, {1 - _FASTEST:.0%} below {format_length(scale)} px" if longest else "no motion",
            f"hidden {hidden_in:.0%}, out {hidden_out:.0%}",
        ]
    height, width = pairs[0].flow.shape[:2]
    narrow = len(pairs) <= _ONE_PAIR_A_ROW or width > _WIDE * height
    return panel(pictures, captions, columns=4 if narrow else 8)


def _colours(pair: PairArrays, longest: float) -> tuple[UInt8[np.ndarray, "_ _ 3"], float]:
    """Draw the flow; also return the motion that is drawn in full colour."""
    lengths = np.linalg.norm(pair.flow, axis=2)
    valid_lengths = lengths[pair.valid]
    scale = float(np.quantile(valid_lengths, 1 - _FASTEST)) if valid_lengths.size else 0.0
    scale = scale or longest or 1.0
    # Clipped: darkening longer motions as usual would look like an edge.
    shorter = np.float32(scale) / np.maximum(lengths, np.float32(scale))
    flow = pair.flow * shorter[..., None]
    return flow_to_image(flow, max_length=scale, valid=pair.valid), scale


def motion_chart(
    rendered: Sequence[MotionStatistics], real: Sequence[MotionStatistics] = ()
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Draw distributions of motion: rendered pairs as solid curves, real ones dashed."""
    places = MotionStatistics.curve_places()
    series = [
        Series(f"{one.name} ({one.pairs})", places, 100 * one.curve, dashed=number >= len(rendered))
        for number, one in enumerate([*rendered, *real])
    ]
    return line_plot(
        series,
        x_label="motion in pixels",
        y_label="pixels in each half octave, %",
        title="Motion" + (": rendered (solid) and real (dashed)" if real else " of rendered pairs"),
        log_x=True,
    )
