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
    layer = surface.layer
    x, y = of_pixels(scenes.highlight[:, 0], layer).unbind(1)
    dx, dy = surface.canvas.x - x, surface.canvas.y - y
    width = of_pixels(scenes.highlight_width, layer)
    strength = of_pixels(scenes.highlight_strength, layer)
    highlight = strength * torch.exp(-(dx * dx + dy * dy) / (width * width))
    gain = of_pixels(scenes.gain[:, 0], layer)
    return image * gain[:, None] + highlight[:, None]


def cast_shadow(scenes: Scenes, outlines: Tensor, pixels: Points, image: Image) -> Image:
    """Darken the frame under a silhouette that moves across it."""
    a, b, c, d, e, f = scenes.to_shadow[:, 0, :, None, None].unbind(1)
    x = a * pixels.x + (b * pixels.y + c)
    y = d * pixels.x + (e * pixels.y + f)
    shapes = outline_distance(outlines[scenes.shadow_silhouette.long()])[:, None]
    distance = F.grid_sample(
        shapes, torch.stack([x, y], dim=-1), padding_mode="border", align_corners=False
    )[:, 0]
    strength, softness = (
        parameter[:, None, None] for parameter in (scenes.shadow_strength, scenes.shadow_softness)
    )
    dark = (0.5 + 0.5 * distance / softness).clamp(0, 1) * strength
    return image * (1 - dark)[:, None]


def dim_by_fog(scenes: Scenes, surface: Surface, image: Image) -> Image:
    """Mix in the fog's colour, the more the farther a surface is."""
    density = scenes.fog[:, None, None]
    depth = 1 / surface.sheet.w.clamp_min(NEAR)
    clear = torch.exp(-(density * depth))[:, None]
    colour = scenes.fog_colour[:, :, None, None]
    return colour + (image - colour) * clear
