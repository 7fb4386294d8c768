"""The correlation lookup by Triton kernels. Imported only where Triton is installed.

A pixel of frame 1 reads its own row of the volume only, so the backward pass can add to the
gradient in place, without atomics.

`FusedCorrelation` gives the same numbers as `StoredCorrelation`. In half precision its volume is
stored in half precision too (products are summed in float32). `stream_lookup` is the counterpart of
`StreamedCorrelation`, for inference.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from gmaflow.model.correlation import Window
from gmaflow.model.gathered_gradients import PerBackwardPass
from gmaflow.runtime.device import has_little_shared_memory
from gmaflow.runtime.kernels import kernel

FAR = tl.constexpr(1e6)
"""Larger than any frame; keeps the conversion to integers defined."""
PIXELS = 2
"""Pixels that one lookup program processes."""
BLOCK = 8
"""The side of a block of pixels whose windows are streamed together."""
SPAN = 32
"""Cells of a column that are multiplied at a time; windows of neighbours differ by a few cells."""
REACH = 32
"""The windows of a group begin within this many columns."""


@triton.jit
def place_on_level(coords, pixel, level, num_pixels, height, width, LEVELS: tl.constexpr):
    """Return a pixel's target (x, y) on a level, the level's first cell, its rows and columns.

    The levels of a pyramid lie one after the other in memory, the finest first.
    """
    item, index = pixel // num_pixels, pixel % num_pixels
    scale = 1.0 / (1 << level).to(tl.float32)
    x = tl.load(coords + item * 2 * num_pixels + index) * scale
    y = tl.load(coords + item * 2 * num_pixels + num_pixels + index) * scale
    x = tl.minimum(tl.maximum(x, -FAR), FAR)
    y = tl.minimum(tl.maximum(y, -FAR), FAR)
    level_start = 0
    for finer in tl.static_range(LEVELS):
        level_start += tl.where(finer < level, (height >> finer) * (width >> finer), 0)
    return x, y, level_start, height >> level, width >> level


@triton.jit
def _read(row, x, y, rows, columns, mask):
    """Read correlations at whole positions; zero outside the level."""
    inside = mask & (x >= 0) & (x < columns) & (y >= 0) & (y < rows)
    return tl.load(row + y * columns + x, mask=inside, other=0.0).to(tl.float32)


@kernel
@triton.jit
def _lookup(
    volume, coords, out, count, num_pixels, num_cells, height, width, out_step,
    RADIUS: tl.constexpr, LEVELS: tl.constexpr, LANES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    side: tl.constexpr = 2 * RADIUS + 1
    pixel = tl.program_id(0).to(tl.int64) * PIXELS + tl.arange(0, PIXELS)[:, None]
    level = tl.program_id(1)
    valid = pixel < count
    x, y, level_start, rows, columns = place_on_level(
        coords, tl.where(valid, pixel, 0), level, num_pixels, height, width, LEVELS
    )
    corner_x, corner_y = tl.floor(x), tl.floor(y)
    lane = tl.arange(0, LANES)[None, :]
    mask = valid & (lane < side * side)
    # Neighbours in a row of the level are neighbours in memory: threads side by side read them.
    i, j = lane % side, lane // side
    left, top = corner_x.to(tl.int32) - RADIUS + i, corner_y.to(tl.int32) - RADIUS + j
    row = volume + pixel * num_cells + level_start
    a = _read(row, left, top, rows, columns, mask)
    b = _read(row, left + 1, top, rows, columns, mask)
    c = _read(row, left, top + 1, rows, columns, mask)
    d = _read(row, left + 1, top + 1, rows, columns, mask)
    upper, lower = a + (x - corner_x) * (b - a), c + (x - corner_x) * (d - c)
    value = upper + (y - corner_y) * (lower - upper)
    # x is the slow channel index, as in `Window.around`.
    target = out + pixel * out_step + level * side * side + i * side + j
    tl.store(target, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _output_gradient(source, x, y, mask, SIDE: tl.constexpr):
    inside = mask & (x >= 0) & (x < SIDE) & (y >= 0) & (y < SIDE)
    return tl.load(source + x * SIDE + y, mask=inside, other=0.0).to(tl.float32)


@kernel
@triton.jit
def _lookup_backward(
    gradient, coords, volume_gradient, num_pixels, num_cells, height, width,
    RADIUS: tl.constexpr, LEVELS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    side: tl.constexpr = 2 * RADIUS + 1
    reach: tl.constexpr = side + 1
    pixel, level = tl.program_id(0), tl.program_id(1)
    x, y, level_start, rows, columns = place_on_level(
        coords, pixel, level, num_pixels, height, width, LEVELS
    )
    corner_x, corner_y = tl.floor(x), tl.floor(y)
    right, down = x - corner_x, y - corner_y
    lane = tl.arange(0, LANES)
    mask = lane < reach * reach
    i, j = lane % reach, lane // reach
    source = gradient + (pixel.to(tl.int64) * LEVELS + level) * side * side
    # Up to four outputs read a cell: those that begin at it, left of it, above it, or both.
    value = (1 - right) * (1 - down) * _output_gradient(source, i, j, mask, side)
    value += right * (1 - down) * _output_gradient(source, i - 1, j, mask, side)
    value += (1 - right) * down * _output_gradient(source, i, j - 1, mask, side)
    value += right * down * _output_gradient(source, i - 1, j - 1, mask, side)
    cell_x = corner_x.to(tl.int32) - RADIUS + i
    cell_y = corner_y.to(tl.int32) - RADIUS + j
    inside = mask & (cell_x >= 0) & (cell_x < columns) & (cell_y >= 0) & (cell_y < rows)
    row = volume_gradient + pixel.to(tl.int64) * num_cells + level_start
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
    """Read the windows around `coords`, in the type of the volume.

    Given `out`, write to it, in its type, and leave channels beyond `lkk` unchanged.
    """
    batch, _, height, width = coords.shape
    side = 2 * radius + 1
    if out is None:
        out = volume.new_empty(batch, height, width, num_levels * side**2)
    count = batch * height * width
    _lookup[(triton.cdiv(count, PIXELS), num_levels)](
        volume, coords.contiguous(), out, count, height * width, volume.shape[2], height, width,
        out.stride(2),
        RADIUS=radius, LEVELS=num_levels, LANES=triton.next_power_of_2(side**2), PIXELS=PIXELS,
        num_warps=2,
    )  # fmt: skip
    return out


def add_lookup_gradient(
    gradient: Float[Tensor, "b h w lkk"],
    coords: Float[Tensor, "b 2 h w"],
    volume_gradient: Float[Tensor, "b n m"],
    *,
    radius: int,
    num_levels: int,
) -> None:
    """Add the volume's gradient of one lookup in place."""
    batch, _, height, width = coords.shape
    _lookup_backward[(batch * height * width, num_levels)](
        gradient.contiguous(), coords.contiguous(), volume_gradient, height * width,
        volume_gradient.shape[2], height, width,
        RADIUS=radius, LEVELS=num_levels, LANES=triton.next_power_of_2((2 * radius + 2) ** 2),
        num_warps=1,
    )  # fmt: skip


class _Volume(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        rows1: Tensor,
        rows2: Tensor,
        gathered: PerBackwardPass[Tensor],
    ) -> Tensor:
        ctx.save_for_backward(rows1, rows2)
        ctx.gathered = gathered
        return rows1.new_zeros((), dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: ANN401
        rows1, rows2 = ctx.saved_tensors
        gradient = ctx.gathered.take()
        if gradient is None:
            return None, None, None
        # bfloat16, not float16: gradients span more orders of magnitude than float16 holds.
        dtype = torch.float32 if rows1.dtype == torch.float32 else torch.bfloat16
        gradient, features1, features2 = gradient.to(dtype), rows1.to(dtype), rows2.to(dtype)
        grad1, grad2 = gradient @ features2, gradient.transpose(1, 2) @ features1
        return grad1.to(rows1.dtype), grad2.to(rows2.dtype), None


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        token: Tensor,
        coords: Tensor,
        volume: Tensor,
        gathered: PerBackwardPass[Tensor],
        window: Window,
    ) -> Tensor:
        ctx.save_for_backward(coords)
        ctx.gathered, ctx.window = gathered, window
        return lookup(volume, coords, radius=window.radius, num_levels=window.num_levels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        (coords,) = ctx.saved_tensors
        add_lookup_gradient(
            gradient, coords, ctx.gathered.current(),
            radius=ctx.window.radius, num_levels=ctx.window.num_levels,
        )  # fmt: skip
        return gradient.new_zeros((), dtype=torch.float32), None, None, None, None


@dataclass(frozen=True)
class FusedCorrelation:
    """All correlations, computed once, and looked up by one kernel."""

    volume: Float[Tensor, "b n m"] = field(repr=False)
    """Not part of the autograd graph, which does not need it: it is freed after the last lookup."""
    window: Window
    token: Float[Tensor, ""]
    gathered: PerBackwardPass[Tensor]
    """The volume's gradient in float32."""

    @classmethod
    def build(
        cls, rows1: Float[Tensor, "b n c"], rows2: Float[Tensor, "b m c"], window: Window
    ) -> "FusedCorrelation":
        """Compute all dot products, in the dtype of the rows."""
        volume = rows1.detach() @ rows2.detach().transpose(1, 2)
        gathered = PerBackwardPass(
            partial(torch.zeros, volume.shape, dtype=torch.float32, device=volume.device)
        )
        token: Tensor = _Volume.apply(rows1, rows2, gathered)
        return cls(volume, window, token, gathered)

    def lookup(self, coords: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b lkk h w"]:
        windows: Tensor = _Lookup.apply(self.token, coords, self.volume, self.gathered, self.window)
        return windows.permute(0, 3, 1, 2)


@kernel
@triton.jit(do_not_specialize=["num_cells", "height", "width"])
def _stream(
    rows1, rows2, coords, out, num_cells, height, width, channels, out_step, scale,
    RADIUS: tl.constexpr, LEVELS: tl.constexpr, CHANNELS: tl.constexpr, TAPS: tl.constexpr,
    SIDE: tl.constexpr, SPAN: tl.constexpr, REACH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Look up a block of SIDE x SIDE pixels on one level.

    Neighbours move alike, so their windows overlap. All pixels of the block are multiplied with
    part of a column of cells at a time, and each pixel picks the products inside its window.
    Interpolation in y is within a column, interpolation in x between one column and the next.

    Windows that are too far apart are processed in groups: those that fit into SPAN cells of a
    column and REACH columns, starting from the top.
    """
    side: tl.constexpr = 2 * RADIUS + 1
    level, item = tl.program_id(1), tl.program_id(2).to(tl.int64)
    blocks_across = tl.cdiv(width, SIDE)
    lane = tl.arange(0, SIDE * SIDE)
    pixel_y = tl.program_id(0) // blocks_across * SIDE + lane // SIDE
    pixel_x = tl.program_id(0) % blocks_across * SIDE + lane % SIDE
    pending = (pixel_y < height) & (pixel_x < width)
    index = tl.where(pending, pixel_y * width + pixel_x, 0)
    pixel = item * height * width + index
    x, y, level_start, rows, columns = place_on_level(
        coords, pixel, level, height * width, height, width, LEVELS
    )
    left, top = tl.floor(x), tl.floor(y)
    right, down = (x - left)[:, None], (y - top)[:, None]
    # A window beyond these limits contains no cells, so its exact position does not matter.
    left = tl.minimum(tl.maximum(left.to(tl.int32) - RADIUS, -side - 1), columns)
    top = tl.minimum(tl.maximum(top.to(tl.int32) - RADIUS, -side - 1), rows)

    channel = tl.arange(0, CHANNELS)
    channel_mask = (channel < channels)[None, :]
    features1 = rows1 + pixel[:, None] * channels + channel[None, :]
    features1 = tl.load(features1, mask=pending[:, None] & channel_mask, other=0.0)
    cells = rows2 + (item * num_cells + level_start) * channels
    tap = tl.arange(0, TAPS)[None, :]
    target = out + pixel[:, None] * out_step + level * side * side + tap
    while tl.max(pending.to(tl.int32), 0) > 0:
        first_row = tl.min(tl.where(pending, top, rows), 0)
        close = pending & (top + side < first_row + SPAN)
        first_column = tl.min(tl.where(close, left, columns), 0)
        served = close & (left < first_column + REACH)
        end_column = tl.max(tl.where(served, left, -side - 1), 0) + side + 1
        cell_y = first_row + tl.arange(0, SPAN)
        inside_y = (cell_y >= 0) & (cell_y < rows)
        upper_row = tl.minimum(tl.maximum((top - first_row)[:, None] + tap, 0), SPAN - 1)
        lower_row = tl.minimum(upper_row + 1, SPAN - 1)
        previous = tl.zeros((SIDE * SIDE, TAPS), tl.float32)
        for column in range(first_column, end_column):
            cell_x = tl.zeros_like(cell_y) + column
            inside = inside_y & (cell_x >= 0) & (cell_x < columns)
            pointers = cells + (cell_y * columns + cell_x).to(tl.int64)[:, None] * channels
            features2 = tl.load(
                pointers + channel[None, :], mask=inside[:, None] & channel_mask, other=0.0
            )
            products = tl.dot(features1, tl.trans(features2), input_precision=PRECISION)
            upper, lower = tl.gather(products, upper_row, 1), tl.gather(products, lower_row, 1)
            current = upper + down * (lower - upper)
            value = previous + right * (current - previous)
            step = (column - 1 - left)[:, None]
            mask = served[:, None] & (step >= 0) & (step < side) & (tap < side)
            value = (scale * value).to(out.dtype.element_ty)
            tl.store(target + step * side, value, mask=mask)
            previous = current
        pending = pending & (served == 0)


def stream_lookup(
    rows1: Float[Tensor, "b n c"],
    rows2: Float[Tensor, "b m c"],
    coords: Float[Tensor, "b 2 h w"],
    *,
    radius: int,
    num_levels: int,
    scale: float = 1.0,
    out: Float[Tensor, "b h w _"],
) -> Float[Tensor, "b h w _"]:
    """Write the scaled dot products of `rows1` with the windows around `coords` to `out`.

    `rows2` are the cells of all levels. Channels of `out` beyond `lkk` are left unchanged.
    """
    batch, _, height, width = coords.shape
    channels = rows1.shape[2]
    half = rows1.dtype != torch.float32
    # float32 takes twice the shared memory.
    block = BLOCK if half and not has_little_shared_memory(rows1.device) else BLOCK // 2
    blocks = triton.cdiv(height, block) * triton.cdiv(width, block)
    _stream[(blocks, num_levels, batch)](
        rows1, rows2, coords, out, rows2.shape[1], height, width, channels, out.stride(2), scale,
        RADIUS=radius, LEVELS=num_levels, CHANNELS=max(16, triton.next_power_of_2(channels)),
        TAPS=triton.next_power_of_2(2 * radius + 1), SIDE=block, SPAN=SPAN, REACH=REACH,
        PRECISION="tf32" if half else "tf32x3",
        num_warps=4, num_stages=2 if half else 1,
    )  # fmt: skip
    return out
