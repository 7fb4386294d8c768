"""Triton kernel of the streamed correlation: dot products are taken when a lookup reads them."""

import triton
import triton.language as tl
from torch import Tensor

from gmaflow.model.lookup_kernels import place_on_level


@triton.jit
def _column(cells, own, x, y, inside_y, columns, channel, channels):
    """Return the dot products of a pixel with one column of its window; zero outside."""
    across = x + tl.zeros_like(y)
    inside = inside_y & (across >= 0) & (across < columns)
    at = cells + (y * columns + across)[:, None].to(tl.int64) * channels + channel[None, :]
    wanted = inside[:, None] & (channel < channels)[None, :]
    seen = tl.load(at, mask=wanted, other=0.0).to(tl.float32)
    return tl.sum(seen * own[None, :], 1)


@triton.jit
def _stream(
    rows1,
    rows2,
    coords,
    out,
    num_pixels,
    num_cells,
    height,
    width,
    channels,
    out_step,
    RADIUS: tl.constexpr,
    LEVELS: tl.constexpr,
    LANES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Serve one pixel on one level: the window's dot products column by column, then blend.

    Blending in x is between one column and the next. Blending in y is a sum over the column with
    two weights that are not zero: threads cannot hand values to their neighbours.
    """
    side: tl.constexpr = 2 * RADIUS + 1
    pixel, level = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x, y, before, rows, columns = place_on_level(
        coords, pixel, level, num_pixels, height, width, LEVELS
    )
    left, top = tl.floor(x), tl.floor(y)
    right, down = x - left, y - top

    channel = tl.arange(0, CHANNELS)
    own = rows1 + pixel * channels + channel
    own = tl.load(own, mask=channel < channels, other=0.0).to(tl.float32)
    lane = tl.arange(0, LANES)
    cell_y = top.to(tl.int32) - RADIUS + lane
    inside_y = (lane <= side) & (cell_y >= 0) & (cell_y < rows)
    spread = tl.where(lane[:, None] == lane[None, :], 1 - down, 0.0)
    spread += tl.where(lane[:, None] + 1 == lane[None, :], down, 0.0)
    cells = rows2 + (pixel // num_pixels * num_cells + before) * channels
    target = out + pixel * out_step + level * side * side
    cell_x = left.to(tl.int32) - RADIUS
    here = _column(cells, own, cell_x, cell_y, inside_y, columns, channel, channels)
    for step in range(side):
        cell_x += 1
        beyond = _column(cells, own, cell_x, cell_y, inside_y, columns, channel, channels)
        between = here + right * (beyond - here)
        value = tl.sum(spread * between[None, :], 1)
        tl.store(target + step * side + lane, value.to(out.dtype.element_ty), mask=lane < side)
        here = beyond


def stream_lookup(
    rows1: Tensor, rows2: Tensor, coords: Tensor, out: Tensor, *, radius: int, num_levels: int
) -> None:
    """Take the dot products of each pixel of frame 1 with the windows around `coords`.

    Args:
        rows1: `[b, n, c]`, scaled.
        rows2: `[b, m, c]`, the cells of all levels.
        coords: `[b, 2, h, w]`.
        out: `[b, h, w, at least l * k * k]`.
        radius: Of the window.
        num_levels: Of the pyramid.
    """
    batch, _, height, width = coords.shape
    channels = rows1.shape[2]
    _stream[(batch * height * width, num_levels)](
        rows1,
        rows2,
        coords,
        out,
        height * width,
        rows2.shape[1],
        height,
        width,
        channels,
        out.stride(2),
        RADIUS=radius,
        LEVELS=num_levels,
        LANES=triton.next_power_of_2(2 * radius + 2),
        CHANNELS=triton.next_power_of_2(channels),
        num_warps=4,
    )
