"""Triton kernels of convolutions fused with what follows. Imported only where Triton is installed.

One program computes some outputs of some pixels of one map: a matrix product whose first factor is
read directly from the map, tap by tap (implicit GEMM). Sums are float32 and stay in registers:
bias, ReLU, gates and so on are applied to them before they are rounded and written.

Maps are channels-last, and may be slices of the channels of wider maps. Weights are rows of a
matrix, one for each tap and input channel; see `Convolution.taps`.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from gmaflow.inference.fast.convolution import EIGHT, SHARES, TAP_CHANNELS
from gmaflow.runtime.kernels import kernel

SIZES = ["height", "width"]
"""Kernels are not compiled again for other sizes of maps."""
PIXELS = 64
"""Pixels of one program that sums contributions."""


@dataclass(frozen=True)
class Tile:
    """The tile that one program computes, and its launch options."""

    pixels: int
    outputs: int
    warps: int
    stages: int


HEAD_TILE = Tile(128, 128, 8, 3)
IMAGE_TILE = Tile(128, 64, 4, 3)
FLOW_TILE = Tile(64, 128, 4, 1)
"""The fastest of those measured on an H200."""


@triton.jit
def _relu(value):
    return tl.where(value < 0, 0.0, value)


@triton.jit
def _sums(
    source, weight, row, lane, height, width, source_step, outputs, INPUTS: tl.constexpr,
    KY: tl.constexpr, KX: tl.constexpr, CHANNELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the convolution of a map at some pixels (flat), for some outputs, in float32."""
    blocks: tl.constexpr = (INPUTS + CHANNELS - 1) // CHANNELS
    y, x = row // width - KY // 2, row % width - KX // 2
    valid = row < height * width
    channel = tl.arange(0, CHANNELS)
    corner = source + (y * width + x).to(tl.int64) * source_step
    total = tl.zeros((row.shape[0], lane.shape[0]), tl.float32)
    for step in range(KY * KX * blocks):
        tap, first = step // blocks, step % blocks * CHANNELS
        down, right = tap // KX, tap % KX
        neighbour_y, neighbour_x = y + down, x + right
        inside = (
            valid
            & (neighbour_y >= 0)
            & (neighbour_y < height)
            & (neighbour_x >= 0)
            & (neighbour_x < width)
        )
        pointers = corner + (down * width + right) * source_step + first
        mask = inside[:, None]
        if INPUTS % CHANNELS:
            mask = mask & (first + channel < INPUTS)[None, :]
        values = tl.load(pointers[:, None] + channel[None, :], mask=mask, other=0.0)
        taps = weight + (step * CHANNELS + channel)[:, None] * outputs + lane[None, :]
        taps = tl.load(taps, mask=(lane < outputs)[None, :], other=0.0)
        total = tl.dot(values, taps, total, input_precision=PRECISION)
    return total


@kernel
@triton.jit(do_not_specialize=[*SIZES, "in_height", "in_width"])
def _convolve_image(
    source, weight, bias, out, height, width, in_height, in_width, outputs,
    KY: tl.constexpr, KX: tl.constexpr, STRIDE: tl.constexpr, RELU: tl.constexpr,
    EIGHT: tl.constexpr, PRECISION: tl.constexpr, PIXELS: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    """Convolve a map of eight channels, a row of the kernel at a time.

    Eight pixels side by side are contiguous. A row of the kernel has at most as many taps.
    """
    item = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    lane = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    y, x = row // width * STRIDE - KY // 2, row % width * STRIDE - KX // 2
    valid = (row < height * width)[:, None]
    output_mask = (lane < outputs)[None, :]
    place = tl.arange(0, EIGHT * EIGHT)
    neighbour_x = x[:, None] + (place // EIGHT)[None, :]
    valid_x = valid & (neighbour_x >= 0) & (neighbour_x < in_width)
    corner = source + (item * in_height * in_width + y * in_width + x) * EIGHT
    total = tl.zeros((PIXELS, OUTPUTS), tl.float32)
    for down in range(KY):
        inside = valid_x & ((y + down >= 0) & (y + down < in_height))[:, None]
        pointers = (corner + down * in_width * EIGHT)[:, None] + place[None, :]
        values = tl.load(pointers, mask=inside, other=0.0)
        taps = weight + (down * EIGHT * EIGHT + place)[:, None] * outputs + lane[None, :]
        taps = tl.load(taps, mask=output_mask, other=0.0)
        total = tl.dot(values, taps, total, input_precision=PRECISION)
    if bias is not None:
        total += tl.load(bias + lane, mask=lane < outputs, other=0.0).to(tl.float32)[None, :]
    if RELU:
        total = _relu(total)
    pointers = out + (item * height * width + row)[:, None] * outputs + lane[None, :]
    tl.store(pointers, total.to(out.dtype.element_ty), mask=valid & output_mask)


@kernel
@triton.jit(do_not_specialize=SIZES)
def _convolve_pairs(
    source, weight, bias, out, height, width, source_step, outputs,
    KY: tl.constexpr, KX: tl.constexpr, TAPS: tl.constexpr,
    PRECISION: tl.constexpr, PIXELS: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    """Convolve the first two channels of a map, all taps at once; bias and ReLU."""
    item = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    lane = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    place = tl.arange(0, TAPS)
    tap = place // 2
    neighbour_y = (row // width)[:, None] + (tap // KX - KY // 2)[None, :]
    neighbour_x = (row % width)[:, None] + (tap % KX - KX // 2)[None, :]
    mask = (neighbour_y >= 0) & (neighbour_y < height) & (neighbour_x >= 0) & (neighbour_x < width)
    mask = mask & (row < height * width)[:, None] & (tap < KY * KX)[None, :]
    neighbour = item * height * width + neighbour_y * width + neighbour_x
    values = tl.load(source + neighbour * source_step + (place % 2)[None, :], mask=mask, other=0.0)
    output_mask = (lane < outputs)[None, :]
    taps = tl.load(weight + place[:, None] * outputs + lane[None, :], mask=output_mask, other=0.0)
    value = tl.dot(values, taps, input_precision=PRECISION)
    value += tl.load(bias + lane, mask=lane < outputs, other=0.0).to(tl.float32)[None, :]
    pointers = out + (item * height * width + row)[:, None] * outputs + lane[None, :]
    value = _relu(value).to(out.dtype.element_ty)
    tl.store(pointers, value, mask=(row < height * width)[:, None] & output_mask)


@kernel
@triton.jit(do_not_specialize=SIZES)
def _convolve_share(
    source, weight, bias, mixing, shares, height, width, source_step, outputs,
    INPUTS: tl.constexpr, KY: tl.constexpr, KX: tl.constexpr, CHANNELS: tl.constexpr,
    PRECISION: tl.constexpr, PIXELS: tl.constexpr, OUTPUTS: tl.constexpr, SHARES: tl.constexpr,
):  # fmt: skip
    """Convolve, ReLU, and multiply by the taps of a second convolution to two channels.

    Each part of the outputs has its own sums, `shares[part, pixel]`, which `_advance` adds up.
    """
    item, part = tl.program_id(2).to(tl.int64), tl.program_id(1)
    row = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    lane = part * OUTPUTS + tl.arange(0, OUTPUTS)
    value = _sums(
        source + item * height * width * source_step, weight, row, lane, height, width,
        source_step, outputs, INPUTS, KY, KX, CHANNELS, PRECISION,
    )  # fmt: skip
    value += tl.load(bias + lane, mask=lane < outputs, other=0.0).to(tl.float32)[None, :]
    value = _relu(value).to(mixing.dtype.element_ty)
    column = tl.arange(0, SHARES)
    taps = mixing + lane[:, None] * SHARES + column[None, :]
    taps = tl.load(taps, mask=(lane < outputs)[:, None], other=0.0)
    contribution = tl.dot(value, taps, input_precision=PRECISION)
    pixels = tl.num_programs(2).to(tl.int64) * height * width
    index = part * pixels + item * height * width + row
    mask = (row < height * width)[:, None]
    tl.store(shares + index[:, None] * SHARES + column[None, :], contribution, mask=mask)


@kernel
@triton.jit(do_not_specialize=SIZES)
def _advance(
    shares, bias, flow, coords, flow_input, first, second, height, width, input_step, target_step,
    PARTS: tl.constexpr, SHARES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Sum the shares of the neighbours, add them to the flow, and write it to its targets."""
    item = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    count = height * width
    y, x = row // width, row % width
    mask = row < count
    index = item * count + row
    for axis in tl.static_range(2):
        value = tl.load(flow + 2 * index + axis, mask=mask, other=0.0)
        value += tl.load(bias + axis).to(tl.float32)
        for tap in tl.static_range(9):
            neighbour_y, neighbour_x = y + tap // 3 - 1, x + tap % 3 - 1
            inside = (
                mask
                & (neighbour_y >= 0)
                & (neighbour_y < height)
                & (neighbour_x >= 0)
                & (neighbour_x < width)
            )
            neighbour = item * count + neighbour_y * width + neighbour_x
            for part in tl.static_range(PARTS):
                place = part * tl.num_programs(1) * count + neighbour
                value += tl.load(shares + place * SHARES + 2 * tap + axis, mask=inside, other=0.0)
        tl.store(flow + 2 * index + axis, value, mask=mask)
        place = x if axis == 0 else y
        tl.store(coords + (item * 2 + axis) * count + row, place.to(tl.float32) + value, mask)
        rounded = value.to(first.dtype.element_ty)
        tl.store(flow_input + index * input_step + axis, rounded, mask=mask)
        tl.store(first + index * target_step + axis, rounded, mask=mask)
        tl.store(second + index * target_step + axis, rounded, mask=mask)


def _common(x: Tensor, kernel: tuple[int, int], tile: Tile) -> dict[str, object]:
    """Return the options that all convolutions share."""
    return {
        "KY": kernel[0],
        "KX": kernel[1],
        "PRECISION": "ieee" if x.dtype == torch.float32 else "tf32",
        "PIXELS": tile.pixels,
        "OUTPUTS": tile.outputs,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


def _grid(pixels: int, outputs: int, batch: int, tile: Tile) -> tuple[int, int, int]:
    return triton.cdiv(pixels, tile.pixels), triton.cdiv(outputs, tile.outputs), batch


def convolve_image(
    x: Float[Tensor, "b h w 8"],
    rows: Float[Tensor, "_ o"],
    bias: Float[Tensor, " o"] | None,
    *,
    kernel: tuple[int, int],
    stride: int,
    relu: bool,
) -> Float[Tensor, "b v u o"]:
    """Return a convolution of a map of eight channels, optionally with bias and ReLU."""
    batch, in_height, in_width, _ = x.shape
    height, width = (-(-side // stride) for side in (in_height, in_width))
    outputs = rows.shape[1]
    out = torch.empty(batch, height, width, outputs, dtype=x.dtype, device=x.device)
    _convolve_image[_grid(height * width, outputs, batch, IMAGE_TILE)](
        x.contiguous(), rows, bias, out, height, width, in_height, in_width, outputs,
        STRIDE=stride, RELU=relu, EIGHT=EIGHT, **_common(x, kernel, IMAGE_TILE),
    )  # fmt: skip
    return out


def convolve_pairs(
    x: Float[Tensor, "b h w i"],
    pairs: Float[Tensor, "_ o"],
    bias: Float[Tensor, " o"],
    *,
    kernel: tuple[int, int],
) -> Float[Tensor, "b h w o"]:
    """Return the ReLU of a convolution of the first two channels, with bias."""
    batch, height, width, _ = x.shape
    outputs = pairs.shape[1]
    out = torch.empty(batch, height, width, outputs, dtype=pairs.dtype, device=x.device)
    _convolve_pairs[_grid(height * width, outputs, batch, FLOW_TILE)](
        x, pairs, bias, out, height, width, x.stride(2), outputs,
        TAPS=len(pairs), **_common(x, kernel, FLOW_TILE),
    )  # fmt: skip
    return out


def share(
    x: Float[Tensor, "b h w i"],
    taps: Float[Tensor, "_ o"],
    bias: Float[Tensor, " o"],
    mixing: Float[Tensor, "o _"],
    *,
    kernel: tuple[int, int],
) -> Float[Tensor, "parts b h w _"]:
    """Return each pixel's contributions to its neighbours in a second convolution."""
    batch, height, width, _ = x.shape
    outputs = taps.shape[1]
    parts = triton.cdiv(outputs, HEAD_TILE.outputs)
    shares = torch.empty(parts, batch, height, width, SHARES, dtype=torch.float32, device=x.device)
    _convolve_share[_grid(height * width, outputs, batch, HEAD_TILE)](
        x, taps, bias, mixing, shares, height, width, x.stride(2), outputs,
        INPUTS=x.shape[-1], CHANNELS=TAP_CHANNELS, SHARES=SHARES, **_common(x, kernel, HEAD_TILE),
    )  # fmt: skip
    return shares


def advance(
    shares: Float[Tensor, "parts b h w _"],
    bias: Float[Tensor, " _"],
    flow: Float[Tensor, "b h w 2"],
    coords: Float[Tensor, "b 2 h w"],
    flow_input: Float[Tensor, "b h w _"],
    targets: tuple[Tensor, Tensor],
) -> None:
    """Add the change to the flow, and write it to where the next iteration reads it."""
    first, second = targets
    batch, height, width, _ = flow.shape
    _advance[(triton.cdiv(height * width, PIXELS), batch)](
        shares, bias, flow, coords, flow_input, first, second, height, width,
        flow_input.stride(2), first.stride(2),
        PARTS=len(shares), SHARES=SHARES, PIXELS=PIXELS, num_warps=2,
    )  # fmt: skip
