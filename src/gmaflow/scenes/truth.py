"""Flow, occlusion and validity: every pixel's point of its sheet, followed into the other frame."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gmaflow.geometry import outside_frame
from gmaflow.scenes.follow import NEAR, Points, bend, of_pixels, project, unbend
from gmaflow.scenes.scene import Scenes

FARTHEST = 2000.0
"""A motion of more pixels than this is no flow that anyone could estimate; it is not valid."""


class Truth(NamedTuple):
    """What is known of the first frame's pixels in the second."""

    flow: Float[Tensor, "b 2 h w"]
    occluded_in: Bool[Tensor, "b h w"]
    occluded_out: Bool[Tensor, "b h w"]
    valid: Bool[Tensor, "b h w"]


class Surface(NamedTuple):
    """The points of the sheets that a frame's pixels show: on the unbent sheet, on the canvas."""

    layer: Int[Tensor, "b h w"]
    sheet: Points
    canvas: Points


def find_surface(scenes: Scenes, pixels: Points, layer: Int[Tensor, "b h w"]) -> Surface:
    """Where on the given layers' sheets the pixels of a frame look."""
    sheet = project(of_pixels(scenes.to_canvas[:, 0], layer), pixels)
    wave, push = of_pixels(scenes.wave, layer), of_pixels(scenes.push[:, 0], layer)
    return Surface(layer, sheet, unbend(wave, push, sheet))


def displacement(
    scenes: Scenes, pixels: Points, surface: Surface
) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"], Float[Tensor, "b h w"]]:
    """How far what the pixels show moves to the other frame, and its scale there.

    The motion of the unbent sheet and what bending adds are computed apart, because then a sheet
    that does not move gives exactly zero.
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


def follow(scenes: Scenes, pixels: Points, layer: Int[Tensor, "b h w"]) -> tuple[Surface, Truth]:
    """Follow what the pixels show into the other frame, not yet asking what is before it there."""
    surface = find_surface(scenes, pixels, layer)
    dx, dy, depth = displacement(scenes, pixels, surface)
    height, width = layer.shape[1:]
    valid = (depth > NEAR) & (dx.abs() < FARTHEST) & (dy.abs() < FARTHEST)
    dx, dy = (torch.where(valid, d, 0.0) for d in (dx, dy))
    x, y = pixels.x + dx, pixels.y + dy
    # What has gone behind the camera is as much out of the frame as what went past its edge.
    out = outside_frame(x, y, height=height, width=width) | ~valid
    return surface, Truth(torch.stack([dx, dy], dim=1), torch.zeros_like(out), out, valid)
