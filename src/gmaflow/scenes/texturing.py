"""Reading textures, from the levels whose texels are nearest a pixel's size."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gmaflow.scenes.follow import NEAR, Points, of_pixels, project, unbend
from gmaflow.scenes.scene import Scenes
from gmaflow.scenes.textures import TextureBank


def surface_colour(
    scenes: Scenes,
    bank: TextureBank,
    pixels: Points,
    layer: Int[Tensor, "b h w"],
    smooth: bool,
) -> Float[Tensor, "b 3 h w"]:
    """The colour of the given layers' sheets at the pixels of a frame.

    Not `smooth` reads one level of the texture in place of two: for what shows at edges only.
    """
    matrix = of_pixels(scenes.to_canvas[:, 0], layer)
    sheet = project(matrix, pixels)
    wave, push = of_pixels(scenes.wave, layer), of_pixels(scenes.push[:, 0], layer)
    canvas = unbend(wave, push, sheet)
    a, b, c, d, e, f = of_pixels(scenes.texture_map, layer).unbind(1)
    u = a * canvas.x + (b * canvas.y + c)
    v = d * canvas.x + (e * canvas.y + f)
    # How much of the texture one pixel spans to the right and down, from the map's derivative. By
    # the quotient rule that of x = X / w is (X' - x w') / w; the division by w is left to the end.
    # The bend's small part in it is left out.
    x_row, y_row, w_row = matrix.split(3, dim=1)
    spans = []
    for axis in (0, 1):
        across = x_row[:, axis] - sheet.x * w_row[:, axis]
        down = y_row[:, axis] - sheet.y * w_row[:, axis]
        du, dv = a * across + b * down, d * across + e * down
        spans.append(du * du + dv * dv)
    safe = sheet.w.clamp_min(NEAR)
    span = torch.maximum(spans[0], spans[1]).sqrt() / safe
    texture = of_pixels(scenes.texture, layer).int()
    mirrored = of_pixels(scenes.mirrored, layer).int()
    levels = bank.size.bit_length() - 1
    # A quarter of a level sharper than one texel a pixel: crisp, and still free of flicker.
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
    """Interpolate between the four texels of a level around a place in the texture."""
    side = torch.full_like(level, bank.size) >> level
    # The levels before this one have size**2 * (1 + 1/4 + ...) texels in all.
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
    """Texels by number, their three bytes as channels."""
    packed = bank.texels.index_select(0, index.flatten()).view_as(index)
    shifts = 8 * torch.arange(3, device=index.device, dtype=torch.int32)[:, None, None]
    return ((packed[:, None] >> shifts) & 255).float()


def _between(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    return first + (second - first) * share


def _wrap(index: Tensor, side: Tensor, mirrored: Tensor) -> Tensor:
    """Bring an index into the texture: repeated, or repeated with every other copy mirrored."""
    inside = index & ((side << mirrored) - 1)  # a remainder, as sides are powers of two
    return torch.minimum(inside, 2 * side - 1 - inside)
