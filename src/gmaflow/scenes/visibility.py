"""Which layer each pixel shows, and whether a point is hidden behind a nearer layer."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from gmaflow.scenes.follow import NEAR, Points, of_layer, project, unbend
from gmaflow.scenes.outline import REACH, outline_distance
from gmaflow.scenes.scene import Scenes

FAINTEST = 1 / 255


class Visible(NamedTuple):
    """The layers seen at each pixel.

    Attributes:
        front: The nearest layer that covers any part of the pixel.
        cover: How much of the pixel it covers.
        behind: The nearest layer behind it that covers the pixel's centre.
        shown: The layer that covers the pixel's centre: the one whose motion is the truth.
    """

    front: Int[Tensor, "b h w"]
    cover: Float[Tensor, "b h w"]
    behind: Int[Tensor, "b h w"]
    shown: Int[Tensor, "b h w"]


def inside_distance(
    scenes: Scenes, outlines: Tensor, frame: int, layer: int, points: Points
) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"]]:
    """How far inside a layer's silhouette points of a frame lie, in texels, and their scale `w`."""
    canvas = project(of_layer(scenes.to_canvas[:, frame], layer), points)
    push = of_layer(scenes.push[:, frame], layer)
    canvas = unbend(of_layer(scenes.wave, layer), push, canvas)
    shapes = outline_distance(outlines[scenes.place[:, 0, layer].long()])[:, None]
    distance = F.grid_sample(
        shapes,
        torch.stack([canvas.x, canvas.y], dim=-1),
        padding_mode="border",
        align_corners=False,
    )[:, 0]
    # Behind the camera, or at a horizon, there is no sheet to be inside of.
    return torch.where(canvas.w > NEAR, distance, -REACH), canvas.w


def see(
    scenes: Scenes, outlines: Tensor, frame: int, pixels: Points, layers: tuple[int, ...]
) -> Visible:
    """Look at the given layers from far to near."""
    shape = (len(scenes.air), pixels.y.shape[1], pixels.x.shape[2])
    front = torch.zeros(shape, dtype=torch.long, device=outlines.device)
    behind, shown = front, front
    cover = torch.ones(shape, device=outlines.device)
    for layer in layers:
        distance, w = inside_distance(scenes, outlines, frame, layer, pixels)
        scale = _pixels_per_texel(scenes, frame, layer, w, outlines.shape[-1])
        softness = scenes.place[:, 3, layer, None, None]
        alpha = (0.5 + distance * (scale / softness)).clamp(0, 1)
        # Beyond their reach the distances say no more than inside or outside.
        alpha = torch.where(distance.abs() < REACH - 0.1, alpha, (distance > 0).float())
        touched = alpha > FAINTEST
        behind = torch.where(touched, shown, behind)
        front = torch.where(touched, layer, front)
        cover = torch.where(touched, alpha, cover)
        shown = torch.where(distance > 0, layer, shown)
    return Visible(front, cover, behind, shown)


def _pixels_per_texel(
    scenes: Scenes, frame: int, layer: int, w: Float[Tensor, "b h w"], size: int
) -> Float[Tensor, "b h w"]:
    """Length of a silhouette's texel in the frame: the root of the map's change of area there."""
    a, b, c, d, e, f, g, h, i = scenes.to_canvas[:, frame, :, layer, None, None].unbind(1)
    area = (a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)).abs()
    depth = 1 / w.clamp_min(NEAR)
    return 2 / size / (area * (depth * depth * depth)).sqrt().clamp_min(1e-9)


def hidden(
    scenes: Scenes,
    outlines: Tensor,
    frame: int,
    points: Points,
    layer: Int[Tensor, "b h w"],
    layers: tuple[int, ...],
) -> Bool[Tensor, "b h w"]:
    """Whether points of a frame that lie on the given layers are covered there by a nearer one."""
    covered = torch.zeros_like(layer, dtype=torch.bool)
    for nearer in layers[1:]:
        distance, _ = inside_distance(scenes, outlines, frame, nearer, points)
        covered = covered | ((distance > 0) & (layer < nearer))
    return covered
