"""Silhouettes as signed distances, and colours carried on beyond a silhouette's edge.

A shape is stored as the distance to its outline, positive inside. Unlike an alpha channel it can be
enlarged, shrunk and tilted and still gives an edge of one pixel, and the question whether a point
lies inside has one exact answer, the same in both frames.
"""

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

REACH = 8.0
"""Distances are kept up to this many texels; beyond, only inside or outside is known."""

_STEPS_PER_TEXEL = 127.0 / REACH


def outline_texels(mask: Bool[Tensor, "n twice twice"]) -> UInt8[Tensor, "n size size"]:
    """Turn masks of twice the size into distances, one byte each, 128 on the outline."""
    limit = int(2 * REACH)
    inside = distance_to(~mask, limit)
    outside = distance_to(mask, limit)
    # Distances run between texel centres; the outline lies half a texel before the first one.
    signed = torch.where(mask, _less_half(inside), -_less_half(outside))
    halved = torch.nn.functional.avg_pool2d(signed[:, None], 2)[:, 0] / 2
    texels = (halved * _STEPS_PER_TEXEL + 128).round().clamp(1, 255).to(torch.uint8)
    # Whoever looks beyond the square is told what its rim says: that this is far outside.
    texels[:, [0, -1]] = 1
    texels[:, :, [0, -1]] = 1
    return texels


def _less_half(distance: Float[Tensor, "n h w"]) -> Float[Tensor, "n h w"]:
    return torch.where(distance < 2 * REACH, distance - 0.5, distance)


def outline_distance(texels: UInt8[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """What the bytes of `outline_texels` mean: texels to the outline, positive inside."""
    return (texels.float() - 128) * (1 / _STEPS_PER_TEXEL)


def distance_to(mask: Bool[Tensor, "n h w"], limit: int) -> Float[Tensor, "n h w"]:
    """Distance of every cell to the nearest true one, at most `limit` (which is at most 128)."""
    along_row = torch.where(mask, 0, limit).to(torch.int16)
    # Looking 1, 2, 4, 8, ... cells far in turn covers the whole way to the limit.
    reach = 1
    while reach < limit:
        further = along_row + reach
        nearer = along_row.clone()
        torch.minimum(nearer[..., reach:], further[..., :-reach], out=nearer[..., reach:])
        torch.minimum(nearer[..., :-reach], further[..., reach:], out=nearer[..., :-reach])
        along_row = nearer
        reach *= 2
    squared = along_row * along_row
    nearest = squared.clone()
    height = mask.shape[-2]
    for step in range(1, min(limit, height)):
        further = squared + step * step
        torch.minimum(nearest[:, step:], further[:, :-step], out=nearest[:, step:])
        torch.minimum(nearest[:, :-step], further[:, step:], out=nearest[:, :-step])
    return nearest.clamp_max(limit * limit).float().sqrt()


def spread_colours(
    colours: Float[Tensor, "3 h w"], alpha: Float[Tensor, "h w"]
) -> Float[Tensor, "3 h w"]:
    """Fill what is transparent with the colours nearby, so that an edge never shows a halo."""
    weight = (alpha > 0.9).float()[None, None]
    weighted = colours[None] * weight
    levels = [(weighted, weight)]
    while min(levels[-1][0].shape[-2:]) > 1:
        colour, share = levels[-1]
        levels.append(
            (
                torch.nn.functional.avg_pool2d(colour, 2, ceil_mode=True),
                torch.nn.functional.avg_pool2d(share, 2, ceil_mode=True),
            )
        )
    colour, share = levels[-1]
    filled = colour / share.clamp_min(1e-6)
    for colour, share in reversed(levels[:-1]):
        coarse = torch.nn.functional.interpolate(
            filled, size=colour.shape[-2:], mode="bilinear", align_corners=False
        )
        filled = colour + coarse * (1 - share)
    return filled[0].clamp(0, 1)
