"""Pictures to judge scenes by: a contact sheet, and curves of their motion."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from gmaflow.errors import FlowError
from gmaflow.scenes.arrays import PairArrays
from gmaflow.scenes.statistics import MotionStatistics
from gmaflow.viz import (
    Series,
    add_legend,
    flow_to_image,
    largest_length,
    line_plot,
    occlusion_overlay,
    panel,
)

_ONE_PAIR_A_ROW = 4  # up to so many pairs; of more, two stand side by side


def contact_sheet(pairs: Sequence[PairArrays], names: Sequence[str]) -> UInt8[np.ndarray, "_ _ 3"]:
    """Lay out pairs: both frames, the flow as colour, and what is occluded.

    Args:
        pairs: one or more.
        names: one for each, for the captions.
    """
    if not pairs:
        raise FlowError("got no pairs for the sheet; give at least one")
    pictures, captions = [], []
    for pair, name in zip(pairs, names, strict=True):
        longest = largest_length(pair.flow, valid=pair.valid)
        colours = flow_to_image(pair.flow, max_length=longest or 1.0, valid=pair.valid)
        hidden_in, hidden_out = (m.mean() for m in (pair.occluded_in, pair.occluded_out))
        pictures += [
            pair.final1,
            pair.final2,
            add_legend(colours, longest) if longest else colours,
            occlusion_overlay(pair.clean1, pair.occluded_in, pair.occluded_out),
        ]
        captions += [
            f"{name}, frame 1",
            "frame 2",
            f"flow, up to {longest:.0f} px" if longest else "no motion",
            f"hidden {hidden_in:.0%}, out {hidden_out:.0%}",
        ]
    columns = 4 if len(pairs) <= _ONE_PAIR_A_ROW else 8
    return panel(pictures, captions, columns=columns)


def motion_chart(
    rendered: Sequence[MotionStatistics], real: Sequence[MotionStatistics] = ()
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Draw how motion is distributed: rendered pairs as solid curves, real ones dashed."""
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
