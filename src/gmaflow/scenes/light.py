"""Light on the surfaces and the air before them: gains, highlights, a moving shadow, fog."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from gmaflow.scenes.follow import NEAR, Points, of_pixels
from gmaflow.scenes.outline import outline_distance
from gmaflow.scenes.scene import Scenes
from gmaflow.scenes.truth import Surface

Image = Float[Tensor, "b 3 h w"]


def shade(scenes: Scenes, surface: Surface, image: Image) -> Image:
    """Give every layer its gain in this frame, and its highlight, which does not stick to it."""
    shine = of_pixels(scenes.shine, surface.layer)
    dx = surface.canvas.x - shine[:, 2]
    dy = surface.canvas.y - shine[:, 3]
    width = shine[:, 6]
    highlight = shine[:, 7] * torch.exp(-(dx * dx + dy * dy) / (width * width))
    gain = shine[:, 0]
    return image * gain[:, None] + highlight[:, None]


def cast_shadow(scenes: Scenes, outlines: Tensor, pixels: Points, image: Image) -> Image:
    """Darken the frame under a silhouette that moves across it."""
    a, b, c, d, e, f, strength, softness, _ = scenes.shadow[:, 0, :, None, None].unbind(1)
    x = a * pixels.x + (b * pixels.y + c)
    y = d * pixels.x + (e * pixels.y + f)
    shapes = outline_distance(outlines[scenes.shadow[:, 0, 8].long()])[:, None]
    distance = F.grid_sample(
        shapes, torch.stack([x, y], dim=-1), padding_mode="border", align_corners=False
    )[:, 0]
    dark = (0.5 + 0.5 * distance / softness).clamp(0, 1) * strength
    return image * (1 - dark)[:, None]


def dim_by_fog(scenes: Scenes, surface: Surface, image: Image) -> Image:
    """Mix in the fog's colour, the more the farther a surface is."""
    density = scenes.air[:, 0, None, None]
    depth = 1 / surface.sheet.w.clamp_min(NEAR)
    clear = torch.exp(-(density * depth))[:, None]
    colour = scenes.air[:, 1:4, None, None]
    return colour + (image - colour) * clear
