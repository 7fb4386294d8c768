"""What there is to see of a pair, in one picture."""

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from gmaflow.viz.color import flow_to_image, largest_length
from gmaflow.viz.legend import add_legend
from gmaflow.viz.maps import confidence_map
from gmaflow.viz.occlusion import occlusion_overlay
from gmaflow.viz.panels import panel
from gmaflow.viz.warp import warp_back

Occlusion = tuple[Bool[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]
"""Pixels hidden in the second frame, and pixels gone out of it."""


def pair_panel(
    image1: UInt8[np.ndarray, "h w 3"],
    image2: UInt8[np.ndarray, "h w 3"],
    flow: Float32[np.ndarray, "h w 2"],
    *,
    occlusion: Occlusion | None = None,
    confidence: Float32[np.ndarray, "h w"] | None = None,
    error: UInt8[np.ndarray, "h w 3"] | None = None,
    max_length: float | None = None,
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Lay frames, flow, warp and whatever else is known side by side, with captions.

    Args:
        image1: the first frame.
        image2: the second.
        flow: motion from the first to the second, in pixels.
        occlusion: which pixels are hidden, and which are out of frame.
        confidence: how far the flow can be trusted, from 0 to 1.
        error: an `error_map` of the flow.
        max_length: the length drawn in full colour; by default the longest.

    Returns:
        The picture.
    """
    shown = max_length or largest_length(flow)
    colours = flow_to_image(flow, max_length=max_length)
    pictures = {
        "frame 1": image1,
        "frame 2": image2,
        "flow": add_legend(colours, shown) if shown > 0 else colours,
        "frame 2 warped back": warp_back(image2, flow),
    }
    if occlusion is not None:
        pictures["hidden (orange), out of frame (blue)"] = occlusion_overlay(image1, *occlusion)
    if confidence is not None:
        pictures["confidence"] = confidence_map(confidence)
    if error is not None:
        pictures["error"] = error
    return panel(list(pictures.values()), list(pictures), columns=2)
