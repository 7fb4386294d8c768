"""Which pixels of the first frame are visible in the second, from flow in both directions.

Legend: b batch, H W rows and columns.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gmaflow.geometry import outside_frame, warp
from gmaflow.inference.flow import BidirectionalFlow, Flow
from gmaflow.io.images import check_positive
from gmaflow.model import pixel_grid

RELATIVE_TOLERANCE = 0.01
ABSOLUTE_TOLERANCE = 0.5  # square pixels
"""A pixel is occluded where |forward + backward|^2 exceeds 0.01 (|forward|^2 + |backward|^2) + 0.5,
the check of Sundaram et al. (2010) with its usual values."""


class Visibility(NamedTuple):
    """Occlusion and confidence of each pixel of the first frame."""

    occluded_in: Bool[Tensor, "b H W"]
    """Its target is inside the second frame, but something else is visible there."""
    occluded_out: Bool[Tensor, "b H W"]
    """Its target is outside the second frame."""
    confidence: Float[Tensor, "b H W"]
    """1 where both directions agree exactly, 0.5 at the threshold of occlusion, 0 for pixels that
    leave the frame."""


def check_visibility(
    forward: Float[Tensor, "b 2 H W"], backward: Float[Tensor, "b 2 H W"], *, scale: float = 1.0
) -> Visibility:
    """Follow each pixel forward and back; a pixel that does not return is occluded.

    Errors of the flow, above all along the edges of moving objects, are about equally many pixels
    wide in a small image as in a large one, so they cover a larger share of it and would count as
    occlusion. For images that were scaled down by `scale`, the tolerance is larger by 1 / scale.
    """
    check_positive("scale", scale)
    height, width = forward.shape[-2:]
    target_x, target_y = (pixel_grid(forward) + forward).unbind(dim=1)
    # Measured from the corner of the first pixel, not from its centre as for ground truth: an
    # estimate fluctuates around zero where nothing moves, and half of the first row and column of a
    # static picture would count as out of frame.
    out = outside_frame(target_x + 0.5, target_y + 0.5, height=height, width=width)

    back = warp(backward, forward)
    mismatch = (forward + back).square().sum(dim=1)
    lengths = forward.square().sum(dim=1) + back.square().sum(dim=1)
    ratio = mismatch * min(scale, 1.0) / (RELATIVE_TOLERANCE * lengths + ABSOLUTE_TOLERANCE)
    confidence = torch.exp2(-ratio).masked_fill(out, 0)
    return Visibility((ratio > 1) & ~out, out, confidence)


def combine(
    forward: Flow, backward: Flow, visibility: Visibility | None = None
) -> BidirectionalFlow:
    """Combine flow both ways with occlusion and confidence, computed unless given."""
    if visibility is None:
        forward_tensor, backward_tensor = (
            torch.from_numpy(flow.array).permute(2, 0, 1)[None] for flow in (forward, backward)
        )
        visibility = check_visibility(forward_tensor, backward_tensor)
    occluded_in, occluded_out, confidence = (value[0].cpu().numpy() for value in visibility)
    return BidirectionalFlow(
        forward, replace(backward, backward=True), occluded_in, occluded_out, confidence
    )
