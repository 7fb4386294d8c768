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


class Sheet(NamedTuple):
    """One layer of a batch of scenes in the first frame, ready to be looked at."""

    number: Int[Tensor, ""]
    to_canvas: Float[Tensor, "b 9 1 1"]
    wave: Float[Tensor, "b 2 3 1 1"]
    push: Float[Tensor, "b 2 2 1 1"]
    edge_width: Float[Tensor, "b 1 1"]
    outline: Float[Tensor, "b 1 s s"]


def take_sheets(scenes: Scenes, outlines: Tensor, layers: tuple[int, ...]) -> list[Sheet]:
    """The given layers, from far to near."""
    silhouettes = scenes.silhouette.long()
    return [
        Sheet(
            number=torch.full((), layer, device=outlines.device),
            to_canvas=of_layer(scenes.to_canvas[:, 0], layer),
            wave=of_layer(scenes.wave, layer),
            push=of_layer(scenes.push[:, 0], layer),
            edge_width=of_layer(scenes.edge_width, layer),
            outline=outline_distance(outlines[silhouettes[:, layer]])[:, None],
        )
        for layer in layers
    ]


def inside_distance(
    sheet: Sheet, points: Points
) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"]]:
    """How far inside a sheet's silhouette points of a frame lie, in texels, and their scale `w`."""
    canvas = unbend(sheet.wave, sheet.push, project(sheet.to_canvas, points))
    distance = F.grid_sample(
        sheet.outline,
        torch.stack([canvas.x, canvas.y], dim=-1),
        padding_mode="border",
        align_corners=False,
    )[:, 0]
    # Behind the camera, or at a horizon, there is no sheet to be inside of.
    return torch.where(canvas.w > NEAR, distance, -REACH), canvas.w


def nothing(scenes: Scenes, pixels: Points) -> Visible:
    """What is seen before any layer is looked at: the farthest one."""
    shape = (len(scenes.number), pixels.y.shape[1], pixels.x.shape[2])
    device = pixels.x.device
    # Three tensors, not one thrice: a compiled step would be compiled anew for such a case.
    front, behind, shown = torch.zeros((3, *shape), dtype=torch.long, device=device).unbind(0)
    return Visible(front, torch.ones(shape, device=device), behind, shown)


def look(sheet: Sheet, pixels: Points, seen: Visible) -> Visible:
    """Put a sheet before what has been seen so far."""
    distance, w = inside_distance(sheet, pixels)
    alpha = (0.5 + distance * (_pixels_per_texel(sheet, w) / sheet.edge_width)).clamp(0, 1)
    # Beyond their reach the distances say no more than inside or outside.
    alpha = torch.where(distance.abs() < REACH - 0.1, alpha, (distance > 0).float())
    touched = alpha > FAINTEST
    return Visible(
        front=torch.where(touched, sheet.number, seen.front),
        cover=torch.where(touched, alpha, seen.cover),
        behind=torch.where(touched, seen.shown, seen.behind),
        shown=torch.where(distance > 0, sheet.number, seen.shown),
    )


def _pixels_per_texel(sheet: Sheet, w: Float[Tensor, "b h w"]) -> Float[Tensor, "b h w"]:
    """Length of a silhouette's texel in the frame: the root of the map's change of area there."""
    a, b, c, d, e, f, g, h, i = sheet.to_canvas.unbind(1)
    area = (a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)).abs()
    depth = 1 / w.clamp_min(NEAR)
    return 2 / sheet.outline.shape[-1] / (area * (depth * depth * depth)).sqrt().clamp_min(1e-9)


def covers(
    sheet: Sheet, points: Points, layer: Int[Tensor, "b h w"], covered: Bool[Tensor, "b h w"]
) -> Bool[Tensor, "b h w"]:
    """Add the points that lie on farther layers than the sheet, and behind it."""
    distance, _ = inside_distance(sheet, points)
    return covered | ((distance > 0) & (layer < sheet.number))
