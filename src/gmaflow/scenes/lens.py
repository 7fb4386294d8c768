"""Blur by the lens and by motion."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from gmaflow.scenes.follow import Points
from gmaflow.scenes.scene import Scenes
from gmaflow.scenes.truth import Surface

Image = Float[Tensor, "b 3 h w"]

TAPS = 9
"""Samples along a motion."""
LONGEST = 0.16
"""Longest streak of motion blur, as a share of the rows."""


def defocus(scenes: Scenes, surface: Surface, image: Image) -> Image:
    """Blur what is out of focus, and the whole frame by the lens's own blur."""
    focus, aperture, lens_blur = (
        parameter[:, None, None] for parameter in (scenes.focus, scenes.aperture, scenes.lens_blur)
    )
    radius = (surface.sheet.w - focus).abs() * aperture + lens_blur
    # Smoothing with ever wider spacing: standard deviations 0.7, 1.6 and 3.2 pixels in all. Every
    # pixel goes as far along this row of ever blurrier frames as its radius wants.
    blurred, reached = image, 0.0
    result = image
    for spacing, deviation in ((1, 0.7), (2, 1.6), (4, 3.2)):
        blurred = _smooth(_smooth(blurred, spacing, 2), spacing, 3)
        share = ((radius - reached) / (deviation - reached)).clamp(0, 1)[:, None]
        result = result + (blurred - result) * share
        reached = deviation
    return result


def _smooth(image: Image, spacing: int, axis: int) -> Image:
    """A quarter, a half and a quarter of the neighbours along an axis."""
    length = image.shape[axis]
    edges = (spacing, spacing, 0, 0) if axis == 3 else (0, 0, spacing, spacing)
    padded = F.pad(image, edges, mode="replicate")
    before = padded.narrow(axis, 0, length)
    after = padded.narrow(axis, 2 * spacing, length)
    return image * 0.5 + (before + after) * 0.25


def motion_blur(
    scenes: Scenes,
    pixels: Points,
    flow: Float[Tensor, "b 2 h w"],
    layer: Int[Tensor, "b h w"],
    image: Image,
) -> Image:
    """Smear the frame along the true motion, each layer before those behind it.

    Samples are taken along the strongest motion nearby. One of a nearer layer counts if its own
    motion reaches the pixel, one of a farther layer if the pixel's motion uncovers it; samples that
    do not count show the pixel itself (after McGuire et al., 2012, with the layers for depth).
    """
    height, width = layer.shape[1:]
    longest = LONGEST * height / 2
    # The shutter is open around the frame's moment: half of the streak lies to either side.
    half = flow * (0.5 * scenes.shutter[:, None, None, None])
    length = (half[:, 0] * half[:, 0] + half[:, 1] * half[:, 1]).sqrt()
    shrink = longest / length.clamp_min(longest)
    half, reach = half * shrink[:, None], length * shrink
    strongest = _strongest_nearby(half, reach, max(int(longest), 1))
    stretch = (strongest[:, 0] ** 2 + strongest[:, 1] ** 2).sqrt()
    # All that a sample needs side by side, so that one read fetches it.
    channels = torch.cat([image, layer[:, None].float(), reach[:, None]], dim=1).flatten(2)
    jitter = _dither(pixels)
    total = torch.zeros_like(image)
    for tap in range(TAPS):
        along = (tap - (TAPS - 1) / 2 + jitter) * (2 / TAPS)
        x = (pixels.x + along * strongest[:, 0]).round().clamp(0, width - 1)
        y = (pixels.y + along * strongest[:, 1]).round().clamp(0, height - 1)
        index = (y * width + x).long().flatten(1)[:, None].expand(-1, 5, -1)
        there = channels.gather(2, index).view(-1, 5, height, width)
        their_colours, their_layer, their_reach = there[:, :3], there[:, 3], there[:, 4]
        nearer = their_layer - layer
        reaching = torch.where(nearer > 0, their_reach, reach)
        reaching = torch.where(nearer == 0, torch.maximum(their_reach, reach), reaching)
        # 1 where the motion that counts is longer than the way to the sample, with a soft end.
        weight = (reaching - along.abs() * stretch + 0.5).clamp(0, 1)
        total = total + (their_colours - image) * weight[:, None]
    return image + total * (1 / TAPS)


def _dither(pixels: Points) -> Float[Tensor, "1 h w"]:
    """A fixed pattern in -0.5..0.5 that makes steps between few samples look like fine grain."""
    # Jimenez's interleaved gradient noise.
    wave = (pixels.x * 0.06711056 + pixels.y * 0.00583715).remainder(1.0)
    return (wave * 52.9829189).remainder(1.0) - 0.5


def _strongest_nearby(
    half: Float[Tensor, "b 2 h w"], reach: Float[Tensor, "b h w"], tile: int
) -> Float[Tensor, "b 2 h w"]:
    """For each pixel the longest motion in its tile of the frame and the tiles around it."""
    height, width = reach.shape[1:]
    in_tile, where_in_tile = F.max_pool2d(reach[:, None], tile, ceil_mode=True, return_indices=True)
    half = _at(half, where_in_tile)
    _, where_around = F.max_pool2d(in_tile, 3, 1, 1, return_indices=True)
    half = _at(half, where_around)
    columns = torch.arange(width, device=half.device) // tile
    rows = torch.arange(height, device=half.device) // tile
    return half[:, :, rows][:, :, :, columns]


def _at(half: Float[Tensor, "b 2 h w"], index: Int[Tensor, "b 1 y x"]) -> Float[Tensor, "b 2 y x"]:
    """The motions at places that pooling found, which numbers them row by row."""
    rows, columns = index.shape[2:]
    chosen = index.flatten(2).expand(-1, 2, -1)
    return half.flatten(2).gather(2, chosen).view(-1, 2, rows, columns)
