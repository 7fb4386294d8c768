"""Projection between pixels and sheets: which layer a pixel shows, its flow, and its occlusion.

Functions take the parameters of one layer, as `[b, ..., 1, 1]`, or of the layer that each pixel
shows, as `[b, ..., h, w]`, and work on grids `[b, h, w]`.

Only elementwise products, sums and quotients are used: on the CPU their results do not depend on
the rest of the batch, unlike those of fused or blocked operations.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from gmaflow.geometry import outside_frame
from gmaflow.scenes.scene_params import Scenes
from gmaflow.scenes.signed_distance import REACH, outline_distance

MIN_INVERSE_DEPTH = 1e-4
"""Smallest inverse depth at which a ray still hits a sheet in front of the camera."""
MIN_COVER = 1 / 255
"""Smallest share of a pixel that a layer must cover to be visible."""
MAX_MOTION = 2000.0
"""Longer motions, in pixels, are marked as not valid."""


class HomogeneousPoints(NamedTuple):
    """Points of a grid and their homogeneous scale `w`: on a canvas, the inverse depth."""

    x: Float[Tensor, "*#grid"]
    y: Float[Tensor, "*#grid"]
    w: Float[Tensor, "*#grid"]


def pixel_grid(height: int, width: int, device: torch.device) -> HomogeneousPoints:
    """The centres of all pixels, as a row of x and a column of y."""
    x = torch.arange(width, device=device, dtype=torch.float32)[None, None, :]
    y = torch.arange(height, device=device, dtype=torch.float32)[None, :, None]
    return HomogeneousPoints(x, y, torch.ones_like(x))


def of_layer(parameters: Float[Tensor, "b *p l"], layer: int) -> Float[Tensor, "b *p 1 1"]:
    """The parameters of one layer, to be combined with a grid."""
    return parameters[..., layer, None, None]


def of_pixels(
    parameters: Float[Tensor, "b *p l"], layer: Int[Tensor, "b h w"]
) -> Float[Tensor, "b *p h w"]:
    """The parameters of the layer that each pixel shows."""
    columns = parameters.reshape(len(parameters), -1, parameters.shape[-1])
    index = layer.flatten(1)[:, None].expand(-1, columns.shape[1], -1)
    return columns.gather(2, index).view(*parameters.shape[:-1], *layer.shape[1:])


def project(matrix: Float[Tensor, "b 9 ..."], points: HomogeneousPoints) -> HomogeneousPoints:
    """Apply a homography; points behind the camera get a scale of at most zero."""
    a, b, c, d, e, f, g, h, i = matrix.unbind(1)
    x, y = points.x, points.y
    w = g * x + (h * y + i)
    safe = w.clamp_min(MIN_INVERSE_DEPTH)
    return HomogeneousPoints((a * x + (b * y + c)) / safe, (d * x + (e * y + f)) / safe, w)


def bend(
    wave: Float[Tensor, "b 2 3 ..."], push: Float[Tensor, "b 2 2 ..."], points: HomogeneousPoints
) -> HomogeneousPoints:
    """Deform a sheet: each bend shifts points along the crests of a sine wave.

    The shift does not change the position across the crests, so shifting back inverts it.
    """
    x, y = points.x, points.y
    for k in (0, 1):
        dx, dy = _slide(wave[:, k], push[:, k], x, y)
        x, y = x + dx, y + dy
    return HomogeneousPoints(x, y, points.w)


def unbend(
    wave: Float[Tensor, "b 2 3 ..."], push: Float[Tensor, "b 2 2 ..."], points: HomogeneousPoints
) -> HomogeneousPoints:
    """The inverse of `bend`."""
    x, y = points.x, points.y
    for k in (1, 0):
        dx, dy = _slide(wave[:, k], push[:, k], x, y)
        x, y = x - dx, y - dy
    return HomogeneousPoints(x, y, points.w)


def _slide(
    wave: Float[Tensor, "b 3 ..."], push: Float[Tensor, "b 2 ..."], x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """The shift of points by one bend."""
    kx, ky, phase = wave.unbind(1)
    sine = torch.sin(kx * x + (ky * y + phase))
    return push[:, 0] * sine, push[:, 1] * sine


class VisibleLayers(NamedTuple):
    """The layers visible at each pixel."""

    front: Int[Tensor, "b h w"]  # the nearest layer that covers any part of the pixel
    cover: Float[Tensor, "b h w"]  # how much of the pixel it covers
    behind: Int[Tensor, "b h w"]  # the nearest layer behind it that covers the pixel's centre
    shown: Int[Tensor, "b h w"]  # covers the pixel's centre: its motion is the truth


class Sheet(NamedTuple):
    """One layer of a batch of scenes in the first frame."""

    number: Int[Tensor, ""]
    to_canvas: Float[Tensor, "b 9 1 1"]
    wave: Float[Tensor, "b 2 3 1 1"]
    push: Float[Tensor, "b 2 2 1 1"]
    edge_width: Float[Tensor, "b 1 1"]
    outline: Float[Tensor, "b 1 s s"]


def make_sheets(scenes: Scenes, outlines: Tensor, layers: tuple[int, ...]) -> list[Sheet]:
    """Return the sheets of the given layers, from far to near."""
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
    sheet: Sheet, points: HomogeneousPoints
) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"]]:
    """How far inside the silhouette of a sheet points lie, in texels, and their scale `w`."""
    canvas = unbend(sheet.wave, sheet.push, project(sheet.to_canvas, points))
    distance = F.grid_sample(
        sheet.outline,
        torch.stack([canvas.x, canvas.y], dim=-1),
        padding_mode="border",
        align_corners=False,
    )[:, 0]
    # Behind the camera and beyond the horizon there is no sheet.
    return torch.where(canvas.w > MIN_INVERSE_DEPTH, distance, -REACH), canvas.w


def initial_layers(scenes: Scenes, pixels: HomogeneousPoints) -> VisibleLayers:
    """The visible layers before any sheet is added: the farthest layer everywhere."""
    shape = (len(scenes.number), pixels.y.shape[1], pixels.x.shape[2])
    device = pixels.x.device
    # Three tensors: the compiler would treat one tensor given three times as a special case.
    front, behind, shown = torch.zeros((3, *shape), dtype=torch.long, device=device).unbind(0)
    return VisibleLayers(front, torch.ones(shape, device=device), behind, shown)


def add_sheet(sheet: Sheet, pixels: HomogeneousPoints, visible: VisibleLayers) -> VisibleLayers:
    """Add a sheet in front of the layers that are visible so far."""
    distance, w = inside_distance(sheet, pixels)
    alpha = (0.5 + distance * (_pixels_per_texel(sheet, w) / sheet.edge_width)).clamp(0, 1)
    # Distances are clipped: at the limit, only inside or outside is known.
    alpha = torch.where(distance.abs() < REACH - 0.1, alpha, (distance > 0).float())
    touched = alpha > MIN_COVER
    return VisibleLayers(
        front=torch.where(touched, sheet.number, visible.front),
        cover=torch.where(touched, alpha, visible.cover),
        behind=torch.where(touched, visible.shown, visible.behind),
        shown=torch.where(distance > 0, sheet.number, visible.shown),
    )


def _pixels_per_texel(sheet: Sheet, w: Float[Tensor, "b h w"]) -> Float[Tensor, "b h w"]:
    """Size of a texel of the silhouette in the frame: the root of the change of area."""
    a, b, c, d, e, f, g, h, i = sheet.to_canvas.unbind(1)
    area = (a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)).abs()
    depth = 1 / w.clamp_min(MIN_INVERSE_DEPTH)
    return 2 / sheet.outline.shape[-1] / (area * (depth * depth * depth)).sqrt().clamp_min(1e-9)


def covers(
    sheet: Sheet,
    points: HomogeneousPoints,
    layer: Int[Tensor, "b h w"],
    covered: Bool[Tensor, "b h w"],
) -> Bool[Tensor, "b h w"]:
    """Add to `covered` the points on farther layers that the sheet covers."""
    distance, _ = inside_distance(sheet, points)
    return covered | ((distance > 0) & (layer < sheet.number))


class Truth(NamedTuple):
    """Ground truth for the pixels of the first frame."""

    flow: Float[Tensor, "b 2 h w"]
    occluded_in: Bool[Tensor, "b h w"]
    occluded_out: Bool[Tensor, "b h w"]
    valid: Bool[Tensor, "b h w"]


class Surface(NamedTuple):
    """The surface point at each pixel: on the unbent sheet and on the canvas."""

    layer: Int[Tensor, "b h w"]
    sheet: HomogeneousPoints
    canvas: HomogeneousPoints


def find_surface(scenes: Scenes, pixels: HomogeneousPoints, layer: Int[Tensor, "b h w"]) -> Surface:
    """Project pixels onto the sheets of the given layers."""
    sheet = project(of_pixels(scenes.to_canvas[:, 0], layer), pixels)
    wave, push = of_pixels(scenes.wave, layer), of_pixels(scenes.push[:, 0], layer)
    return Surface(layer, sheet, unbend(wave, push, sheet))


def displacement(
    scenes: Scenes, pixels: HomogeneousPoints, surface: Surface
) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"], Float[Tensor, "b h w"]]:
    """The motion of the surface at each pixel, and its scale in the other frame.

    The motion of the unbent sheet and the effect of bending are computed separately, so that a
    sheet that does not move gives exactly zero.
    """
    layer = surface.layer
    rigid = project(of_pixels(scenes.across[:, 0], layer), pixels)
    wave, push = of_pixels(scenes.wave, layer), of_pixels(scenes.push[:, 1], layer)
    bent = bend(wave, push, surface.canvas)
    to_frame = of_pixels(scenes.to_frame[:, 1], layer)
    before, after = project(to_frame, surface.sheet), project(to_frame, bent)
    dx = (rigid.x - pixels.x) + (after.x - before.x)
    dy = (rigid.y - pixels.y) + (after.y - before.y)
    return dx, dy, torch.minimum(rigid.w, after.w)


def follow(
    scenes: Scenes, pixels: HomogeneousPoints, layer: Int[Tensor, "b h w"]
) -> tuple[Surface, Truth]:
    """Follow the surface at each pixel into the other frame, without occlusion by other layers."""
    surface = find_surface(scenes, pixels, layer)
    dx, dy, depth = displacement(scenes, pixels, surface)
    height, width = layer.shape[1:]
    valid = (depth > MIN_INVERSE_DEPTH) & (dx.abs() < MAX_MOTION) & (dy.abs() < MAX_MOTION)
    dx, dy = (torch.where(valid, d, 0.0) for d in (dx, dy))
    x, y = pixels.x + dx, pixels.y + dy
    # What is behind the camera is out of the frame.
    out = outside_frame(x, y, height=height, width=width) | ~valid
    return surface, Truth(torch.stack([dx, dy], dim=1), torch.zeros_like(out), out, valid)
