"""Silhouettes as signed distances to their outline, positive inside.

Unlike an alpha channel, a distance can be scaled and tilted and still gives an edge of one pixel,
and whether a point lies inside has one exact answer in both frames.
"""

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from gmaflow.geometry import distance_to

REACH = 8.0
"""Largest stored distance, in texels; beyond it, only inside or outside is known."""

_STEPS_PER_TEXEL = 127.0 / REACH


def outline_texels(mask: Bool[Tensor, "n twice twice"]) -> UInt8[Tensor, "n size size"]:
    """Turn masks of twice the size into distances of one byte each; 128 is the outline."""
    limit = int(2 * REACH)
    inside = distance_to(~mask, limit)
    outside = distance_to(mask, limit)
    # Distances are between texel centres; the outline is half a texel before the first one.
    signed = torch.where(mask, _less_half(inside), -_less_half(outside))
    halved = torch.nn.functional.avg_pool2d(signed[:, None], 2)[:, 0] / 2
    texels = (halved * _STEPS_PER_TEXEL + 128).round().clamp(1, 255).to(torch.uint8)
    # Lookups beyond the square return its border, which must mean "far outside".
    texels[:, [0, -1]] = 1
    texels[:, :, [0, -1]] = 1
    return texels


def _less_half(distance: Float[Tensor, "n h w"]) -> Float[Tensor, "n h w"]:
    return torch.where(distance < 2 * REACH, distance - 0.5, distance)


def outline_distance(texels: UInt8[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Decode the bytes of `outline_texels`: texels to the outline, positive inside."""
    return (texels.float() - 128) * (1 / _STEPS_PER_TEXEL)
