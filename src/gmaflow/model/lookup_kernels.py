"""Triton kernels of the correlation lookup. Imported only where Triton is there.

One program serves one pixel of frame 1 on one level. It reads its own row of the volume only, so
the backward pass can add to the gradient in place, without atomics.
"""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

FAR = tl.constexpr(1e6)
"""Beyond any frame; keeps conversion to whole numbers defined."""


@triton.jit
def place_on_level(coords, pixel, level, num_pixels, height, width, LEVELS: tl.constexpr):
    """Return a pixel's target (x, y) on a level, the cells before the level, its rows and columns.

    A pyramid's levels lie one after the other, the finest first.
    """
    item, within = pixel // num_pixels, pixel % num_pixels
    scale = 1.0 / (1 << level).to(tl.float32)
    x = tl.load(coords + item * 2 * num_pixels + within) * scale
    y = tl.load(coords + item * 2 * num_pixels + num_pixels + within) * scale
    x = tl.minimum(tl.maximum(x, -FAR), FAR)
    y = tl.minimum(tl.maximum(y, -FAR), FAR)
    before = 0
    for finer in tl.static_range(LEVELS):
        before += tl.where(finer < level, (height >> finer) * (width >> finer), 0)
    return x, y, before, height >> level, width >> level


@triton.jit
def _read(row, x, y, rows, columns, wanted):
    """Read correlations at whole positions; zero outside the level."""
    inside = wanted & (x >= 0) & (x < columns) & (y >= 0) & (y < rows)
    return tl.load(row + y * columns + x, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _lookup(
    volume,
    coords,
    out,
    num_pixels,
    num_cells,
    height,
    width,
    out_step,
    RADIUS: tl.constexpr,
    LEVELS: tl.constexpr,
    LANES: tl.constexpr,
):
    side: tl.constexpr = 2 * RADIUS + 1
    pixel, level = tl.program_id(0), tl.program_id(1)
    x, y, before, rows, columns = place_on_level(
        coords, pixel, level, num_pixels, height, width, LEVELS
    )
    corner_x, corner_y = tl.floor(x), tl.floor(y)
    lane = tl.arange(0, LANES)
    wanted = lane < side * side
    # x is the slow channel index, as in the plain lookup.
    left = corner_x.to(tl.int32) - RADIUS + lane // side
    top = corner_y.to(tl.int32) - RADIUS + lane % side
    row = volume + pixel.to(tl.int64) * num_cells + before
    a = _read(row, left, top, rows, columns, wanted)
    b = _read(row, left + 1, top, rows, columns, wanted)
    c = _read(row, left, top + 1, rows, columns, wanted)
    d = _read(row, left + 1, top + 1, rows, columns, wanted)
    upper, lower = a + (x - corner_x) * (b - a), c + (x - corner_x) * (d - c)
    value = upper + (y - corner_y) * (lower - upper)
    target = out + pixel.to(tl.int64) * out_step + level * side * side + lane
    tl.store(target, value.to(out.dtype.element_ty), mask=wanted)


@triton.jit
def _output_gradient(source, x, y, wanted, SIDE: tl.constexpr):
    inside = wanted & (x >= 0) & (x < SIDE) & (y >= 0) & (y < SIDE)
    return tl.load(source + x * SIDE + y, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _lookup_backward(
    gradient,
    coords,
    volume_gradient,
    num_pixels,
    num_cells,
    height,
    width,
    RADIUS: tl.constexpr,
    LEVELS: tl.constexpr,
    LANES: tl.constexpr,
):
    side: tl.constexpr = 2 * RADIUS + 1
    reach: tl.constexpr = side + 1
    pixel, level = tl.program_id(0), tl.program_id(1)
    x, y, before, rows, columns = place_on_level(
        coords, pixel, level, num_pixels, height, width, LEVELS
    )
    corner_x, corner_y = tl.floor(x), tl.floor(y)
    right, down = x - corner_x, y - corner_y
    lane = tl.arange(0, LANES)
    wanted = lane < reach * reach
    i, j = lane // reach, lane % reach
    source = gradient + (pixel.to(tl.int64) * LEVELS + level) * side * side
    # A cell was seen by up to four outputs: those that begin at it, left of it, above, or both.
    value = (1 - right) * (1 - down) * _output_gradient(source, i, j, wanted, side)
    value += right * (1 - down) * _output_gradient(source, i - 1, j, wanted, side)
    value += (1 - right) * down * _output_gradient(source, i, j - 1, wanted, side)
    value += right * down * _output_gradient(source, i - 1, j - 1, wanted, side)
    cell_x = corner_x.to(tl.int32) - RADIUS + i
    cell_y = corner_y.to(tl.int32) - RADIUS + j
    inside = wanted & (cell_x >= 0) & (cell_x < columns) & (cell_y >= 0) & (cell_y < rows)
    row = volume_gradient + pixel.to(tl.int64) * num_cells + before
    cell = row + cell_y * columns + cell_x
    tl.store(cell, tl.load(cell, mask=inside, other=0.0) + value, mask=inside)


def lookup(
    volume: Float[Tensor, "b n m"],
    coords: Float[Tensor, "b 2 h w"],
    *,
    radius: int,
    num_levels: int,
    out: Float[Tensor, "b h w _"] | None = None,
) -> Float[Tensor, "b h w _"]:
    """Read the windows around `coords`, in the volume's type.

    Given `out`, write to it, in its type; channels that it has beyond `lkk` are left alone.
    """
    batch, _, height, width = coords.shape
    side = 2 * radius + 1
    if out is None:
        out = volume.new_empty(batch, height, width, num_levels * side**2)
    _lookup[(batch * height * width, num_levels)](
        volume,
        coords.contiguous(),
        out,
        height * width,
        volume.shape[2],
        height,
        width,
        out.stride(2),
        RADIUS=radius,
        LEVELS=num_levels,
        LANES=triton.next_power_of_2(side**2),
        num_warps=1,
    )
    return out


def add_lookup_gradient(
    gradient: Float[Tensor, "b h w lkk"],
    coords: Float[Tensor, "b 2 h w"],
    volume_gradient: Float[Tensor, "b n m"],
    *,
    radius: int,
    num_levels: int,
) -> None:
    """Add what a lookup's output gradient means for the volume, in place."""
    batch, _, height, width = coords.shape
    _lookup_backward[(batch * height * width, num_levels)](
        gradient.contiguous(),
        coords.contiguous(),
        volume_gradient,
        height * width,
        volume_gradient.shape[2],
        height,
        width,
        RADIUS=radius,
        LEVELS=num_levels,
        LANES=triton.next_power_of_2((2 * radius + 2) ** 2),
        num_warps=1,
    )
