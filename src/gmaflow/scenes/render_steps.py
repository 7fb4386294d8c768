"""The steps of rendering a frame: texture lookup, composition and groups of effects.

Each step is compiled separately. As one graph, the thousands of operations would take many minutes
to compile, and a step that adds one layer is compiled once for all layers of both frames.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gmaflow.scenes.photometric_effects import (
    add_noise,
    cast_shadow,
    compress,
    defocus,
    dim_by_fog,
    expose,
    motion_blur,
    shade,
)
from gmaflow.scenes.projection import (
    MIN_INVERSE_DEPTH,
    HomogeneousPoints,
    Sheet,
    Surface,
    Truth,
    VisibleLayers,
    add_sheet,
    covers,
    follow,
    of_pixels,
    project,
    unbend,
)
from gmaflow.scenes.scene_params import RenderPlan, Scenes
from gmaflow.scenes.texture_bank import TextureBank

Image = Float[Tensor, "b 3 h w"]


def surface_colour(
    scenes: Scenes,
    bank: TextureBank,
    pixels: HomogeneousPoints,
    layer: Int[Tensor, "b h w"],
    smooth: bool,
) -> Float[Tensor, "b 3 h w"]:
    """The colour of the given layers at the pixels of a frame.

    `smooth` interpolates between two mipmap levels; otherwise the nearest level is read, which is
    enough for what is visible only at edges.
    """
    matrix = of_pixels(scenes.to_canvas[:, 0], layer)
    sheet = project(matrix, pixels)
    wave, push = of_pixels(scenes.wave, layer), of_pixels(scenes.push[:, 0], layer)
    canvas = unbend(wave, push, sheet)
    a, b, c, d, e, f = of_pixels(scenes.texture_map, layer).unbind(1)
    u = a * canvas.x + (b * canvas.y + c)
    v = d * canvas.x + (e * canvas.y + f)
    # The extent of a pixel in the texture, to the right and down, is the derivative of the map. By
    # the quotient rule the derivative of x = X / w is (X' - x w') / w; the division by w comes
    # last. The small contribution of the bend is left out.
    x_row, y_row, w_row = matrix.split(3, dim=1)
    spans = []
    for axis in (0, 1):
        across = x_row[:, axis] - sheet.x * w_row[:, axis]
        down = y_row[:, axis] - sheet.y * w_row[:, axis]
        du, dv = a * across + b * down, d * across + e * down
        spans.append(du * du + dv * dv)
    safe = sheet.w.clamp_min(MIN_INVERSE_DEPTH)
    span = torch.maximum(spans[0], spans[1]).sqrt() / safe
    texture = of_pixels(scenes.texture, layer).int()
    mirrored = of_pixels(scenes.mirrored, layer).int()
    levels = bank.size.bit_length() - 1
    # A quarter of a level sharper than one texel per pixel: crisp, but without flicker.
    level = (torch.log2((span * bank.size).clamp_min(1e-6)) - 0.25).clamp(0, levels - 0.001)
    if smooth:
        lower = level.floor()
        share = (level - lower)[:, None]
        fine = _read_level(bank, texture, mirrored, (u, v), lower.int())
        coarse = _read_level(bank, texture, mirrored, (u, v), lower.int() + 1)
        texels = _between(fine, coarse, share)
    else:
        texels = _read_level(bank, texture, mirrored, (u, v), level.round().int())
    paint = of_pixels(scenes.paint, layer)
    texture_share = of_pixels(scenes.texture_share, layer)[:, None]
    return paint + (texels - paint) * texture_share


def _read_level(
    bank: TextureBank,
    texture: Int[Tensor, "b h w"],
    mirrored: Int[Tensor, "b h w"],
    place: tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"]],
    level: Int[Tensor, "b h w"],
) -> Float[Tensor, "b 3 h w"]:
    """Interpolate bilinearly in one mipmap level."""
    side = torch.full_like(level, bank.size) >> level
    # The levels before this one have size**2 * (1 + 1/4 + ...) texels in total.
    start = texture * bank.texels_each + (bank.size * bank.size - side * side) * 4 // 3
    near, share = [], []
    for coordinate in place:
        texel = coordinate * side - 0.5
        whole = texel.floor()
        share.append((texel - whole)[:, None])
        near.append(whole.int())
    column = [_wrap(near[0] + step, side, mirrored) for step in (0, 1)]
    row = [start + _wrap(near[1] + step, side, mirrored) * side for step in (0, 1)]
    top, bottom = (
        _between(_unpack(bank, r + column[0]), _unpack(bank, r + column[1]), share[0]) for r in row
    )
    return _between(top, bottom, share[1]) * (1 / 255)


def _unpack(bank: TextureBank, index: Int[Tensor, "b h w"]) -> Float[Tensor, "b 3 h w"]:
    """Read texels by index and unpack their three bytes into channels."""
    packed = bank.texels.index_select(0, index.flatten()).view_as(index)
    shifts = 8 * torch.arange(3, device=index.device, dtype=torch.int32)[:, None, None]
    return ((packed[:, None] >> shifts) & 255).float()


def _between(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    return first + (second - first) * share


def _wrap(index: Tensor, side: Tensor, mirrored: Tensor) -> Tensor:
    """Wrap an index around: repeat the texture, or mirror every other copy."""
    inside = index & ((side << mirrored) - 1)  # modulo: sides are powers of two
    return torch.minimum(inside, 2 * side - 1 - inside)


class Shot(NamedTuple):
    """What the photometric effects need to know about a frame."""

    scenes: Scenes
    bank: TextureBank
    pixels: HomogeneousPoints
    surface: Surface
    truth: Truth


def compose(
    scenes: Scenes, bank: TextureBank, pixels: HomogeneousPoints, visible: VisibleLayers
) -> Image:
    """Blend the colours of the front layer and the layer behind it."""
    front = surface_colour(scenes, bank, pixels, visible.front, smooth=True)
    behind = surface_colour(scenes, bank, pixels, visible.behind, smooth=False)
    return behind + (front - behind) * visible.cover[:, None]


def reflect(
    scenes: Scenes, bank: TextureBank, pixels: HomogeneousPoints, surface: Surface, image: Image
) -> Image:
    """Mix in what glossy layers reflect, which does not move with them."""
    layer = surface.layer
    a, b, c, d, e, f = of_pixels(scenes.reflection_map[:, 0], layer).unbind(1)
    u = a * pixels.x + (b * pixels.y + c)
    v = d * pixels.x + (e * pixels.y + f)
    span = torch.maximum(a * a + d * d, b * b + e * e).sqrt()
    level = torch.log2((span * bank.size).clamp(1, bank.size)).round().int()
    texture = of_pixels(scenes.reflection, layer).int()
    reflection = _read_level(bank, texture, torch.ones_like(texture), (u, v), level)
    return _between(image, reflection, of_pixels(scenes.reflectance, layer)[:, None])


def illuminate(shot: Shot, plan: RenderPlan, image: Image) -> Image:
    """Effects of light: reflections, shading, shadows, fog."""
    scenes, bank, pixels, surface, _ = shot
    if plan.reflections:
        image = reflect(scenes, bank, pixels, surface, image)
    image = shade(scenes, surface, image)
    if plan.shadow:
        image = cast_shadow(scenes, bank.outlines, pixels, image)
    return dim_by_fog(scenes, surface, image) if plan.fog else image


def focus(shot: Shot, plan: RenderPlan, image: Image) -> Image:
    """Effects of the lens: defocus."""
    return defocus(shot.scenes, shot.surface, image) if plan.defocus else image


def shutter(shot: Shot, plan: RenderPlan, image: Image) -> Image:
    """Effects of the shutter: motion blur."""
    if not plan.motion_blur:
        return image
    return motion_blur(shot.scenes, shot.pixels, shot.truth.flow, shot.surface.layer, image)


def develop(shot: Shot, plan: RenderPlan, image: Image) -> Image:
    """Effects of sensor and file: exposure, noise, compression, 8-bit quantisation."""
    image = expose(shot.scenes, shot.pixels, image).clamp(0, 1)
    if plan.noise:
        image = add_noise(shot.scenes, image)
    return quantise(compress(shot.scenes, image) if plan.compression else image)


def quantise(image: Image) -> Image:
    """Round to multiples of 1/255."""
    return (image.clamp(0, 1) * 255).round() * (1 / 255)


class Steps(NamedTuple):
    """The functions that rendering calls, eager or compiled."""

    add_sheet: Callable[[Sheet, HomogeneousPoints, VisibleLayers], VisibleLayers]
    covers: Callable[[Sheet, HomogeneousPoints, Int[Tensor, "b h w"], Tensor], Tensor]
    follow: Callable[[Scenes, HomogeneousPoints, Int[Tensor, "b h w"]], tuple[Surface, Truth]]
    compose: Callable[[Scenes, TextureBank, HomogeneousPoints, VisibleLayers], Tensor]
    illuminate: Callable[[Shot, RenderPlan, Tensor], Tensor]
    focus: Callable[[Shot, RenderPlan, Tensor], Tensor]
    shutter: Callable[[Shot, RenderPlan, Tensor], Tensor]
    develop: Callable[[Shot, RenderPlan, Tensor], Tensor]

    def photograph(self, shot: Shot, plan: RenderPlan, image: Image) -> Image:
        """Apply all photometric effects, in the order in which light passes through the camera."""
        for effects in (self.illuminate, self.focus, self.shutter, self.develop):
            image = effects(shot, plan, image)
        return image

    def compiled(self) -> "Steps":
        """Compile each step by itself, for the sizes of its first use."""
        compiled = (torch.compile(step, dynamic=False, fullgraph=True) for step in self)
        return Steps._make(compiled)


EAGER = Steps(add_sheet, covers, follow, compose, illuminate, focus, shutter, develop)
