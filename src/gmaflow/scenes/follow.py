"""Following points between a frame and the sheets' canvases, in closed form both ways.

Every function takes the parameters either of one layer, as `[b, ..., 1, 1]`, or of each pixel's own
layer, as `[b, ..., h, w]`, and works on grids `[b, h, w]`.

Only products, sums and quotients of single elements are used: their result does not depend on what
else is in the batch, which fused or blocked operations do not promise on the CPU.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

NEAR = 1e-4
"""Where one over the depth is below this, the ray does not meet the sheet before the camera."""


class Points(NamedTuple):
    """Points of a grid, and their scale `w`: one over the depth where they lie on a canvas."""

    x: Float[Tensor, "*#grid"]
    y: Float[Tensor, "*#grid"]
    w: Float[Tensor, "*#grid"]


def pixel_grid(height: int, width: int, device: torch.device) -> Points:
    """The pixels' centres, as a row of x and a column of y."""
    x = torch.arange(width, device=device, dtype=torch.float32)[None, None, :]
    y = torch.arange(height, device=device, dtype=torch.float32)[None, :, None]
    return Points(x, y, torch.ones_like(x))


def of_layer(parameters: Float[Tensor, "b *p l"], layer: int) -> Float[Tensor, "b *p 1 1"]:
    """One layer's parameters, ready to be combined with a grid."""
    return parameters[..., layer, None, None]


def of_pixels(
    parameters: Float[Tensor, "b *p l"], layer: Int[Tensor, "b h w"]
) -> Float[Tensor, "b *p h w"]:
    """The parameters of the layer that each pixel shows."""
    columns = parameters.reshape(len(parameters), -1, parameters.shape[-1])
    index = layer.flatten(1)[:, None].expand(-1, columns.shape[1], -1)
    return columns.gather(2, index).view(*parameters.shape[:-1], *layer.shape[1:])


def project(matrix: Float[Tensor, "b 9 ..."], points: Points) -> Points:
    """Apply a homography; points that it sends behind the camera get a scale of at most zero."""
    a, b, c, d, e, f, g, h, i = matrix.unbind(1)
    x, y = points.x, points.y
    w = g * x + (h * y + i)
    safe = w.clamp_min(NEAR)
    return Points((a * x + (b * y + c)) / safe, (d * x + (e * y + f)) / safe, w)


def bend(
    wave: Float[Tensor, "b 2 3 ..."], push: Float[Tensor, "b 2 2 ..."], points: Points
) -> Points:
    """Deform a sheet: every bend slides it along its wave's crests, by a sine of the place across.

    A slide does not change the place across the crests, so it is undone by sliding back.
    """
    x, y = points.x, points.y
    for k in (0, 1):
        dx, dy = _slide(wave[:, k], push[:, k], x, y)
        x, y = x + dx, y + dy
    return Points(x, y, points.w)


def unbend(
    wave: Float[Tensor, "b 2 3 ..."], push: Float[Tensor, "b 2 2 ..."], points: Points
) -> Points:
    """The inverse of `bend`: the last slide is undone first."""
    x, y = points.x, points.y
    for k in (1, 0):
        dx, dy = _slide(wave[:, k], push[:, k], x, y)
        x, y = x - dx, y - dy
    return Points(x, y, points.w)


def _slide(
    wave: Float[Tensor, "b 3 ..."], push: Float[Tensor, "b 2 ..."], x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """How far one bend moves what lies at a place, to the right and down."""
    kx, ky, phase = wave.unbind(1)
    sine = torch.sin(kx * x + (ky * y + phase))
    return push[:, 0] * sine, push[:, 1] * sine
