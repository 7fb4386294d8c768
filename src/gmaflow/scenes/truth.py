"""Flow, occlusion and validity: every pixel's point of its sheet, followed into the other frame."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gmaflow.scenes.follow import NEAR, Points, bend, of_pixels, project, unbend
from gmaflow.scenes.scene import Scenes
from gmaflow.scenes.visibility import hidden

FARTHEST = 2000.0
"""A motion of more pixels than this is no flow that anyone could estimate; it is not valid."""


class Truth(NamedTuple):
    """What is known of a frame's pixels in the other frame."""

    flow: Float[Tensor, "b 2 h w"]
    occluded_in: Bool[Tensor, "b h w"]
    occluded_out: Bool[Tensor, "b h w"]
    valid: Bool[Tensor, "b h w"]


class Surface(NamedTuple):
    """The points of the sheets that a frame's pixels show: on the unbent sheet, on the canvas."""

    layer: Int[Tensor, "b h w"]
    sheet: Points
    canvas: Points


def find_surface(
    scenes: Scenes, frame: int, pixels: Points, layer: Int[Tensor, "b h w"]
) -> Surface:
    """Where on the given layers' sheets the pixels of a frame look."""
    sheet = project(of_pixels(scenes.to_canvas[:, frame], layer), pixels)
    wave, push = of_pixels(scenes.wave, layer), of_pixels(scenes.push[:, frame], layer)
    return Surface(layer, sheet, unbend(wave, push, sheet))


def displacement(
    scenes: Scenes, frame: int, pixels: Points, surface: Surface
) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"], Float[Tensor, "b h w"]]:
    """How far the points that a frame's pixels show move to the other frame, and their scale there.

    The motion of the unbent sheet and what bending adds are computed apart, because then a sheet
    that does not move gives exactly zero.
    """
    other, layer = 1 - frame, surface.layer
    rigid = project(of_pixels(scenes.across[:, frame], layer), pixels)
    wave, push = of_pixels(scenes.wave, layer), of_pixels(scenes.push[:, other], layer)
    bent = bend(wave, push, surface.canvas)
    to_frame = of_pixels(scenes.to_frame[:, other], layer)
    before, after = project(to_frame, surface.sheet), project(to_frame, bent)
    dx = (rigid.x - pixels.x) + (after.x - before.x)
    dy = (rigid.y - pixels.y) + (after.y - before.y)
    return dx, dy, torch.minimum(rigid.w, after.w)


def truth(
    scenes: Scenes,
    outlines: Tensor,
    frame: int,
    pixels: Points,
    surface: Surface,
    layers: tuple[int, ...],
) -> Truth:
    """Follow what the pixels of a frame show into the other one."""
    dx, dy, depth = displacement(scenes, frame, pixels, surface)
    height, width = surface.layer.shape[1:]
    valid = (depth > NEAR) & (dx.abs() < FARTHEST) & (dy.abs() < FARTHEST)
    dx, dy = (torch.where(valid, d, 0.0) for d in (dx, dy))
    x, y = pixels.x + dx, pixels.y + dy
    # What has gone behind the camera is as much out of the frame as what went past its edge.
    out = (x < 0) | (x > width - 1) | (y < 0) | (y > height - 1) | ~valid
    target = Points(x, y, torch.ones_like(x))
    covered = hidden(scenes, outlines, 1 - frame, target, surface.layer, layers)
    return Truth(torch.stack([dx, dy], dim=1), covered & ~out, out, valid)
