"""Convolutions with what follows them, as Triton kernels. Imported only where Triton is installed.

One program computes some outputs of some pixels of one map: a matrix product whose first factor is
read straight from the map, tap by tap (an implicit product). Sums are float32 and never leave the
chip: bias, ReLU, gates and so on are applied to them before they are rounded and written.

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
"""Pixels of one program that sums shares."""


@dataclass(frozen=True)
class Tile:
    """What one program computes, and how."""

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
    there = row < height * width
    channel = tl.arange(0, CHANNELS)
    corner = source + (y * width + x).to(tl.int64) * source_step
    total = tl.zeros((row.shape[0], lane.shape[0]), tl.float32)
    for step in range(KY * KX * blocks):
        tap, first = step // blocks, step % blocks * CHANNELS
        down, right = tap // KX, tap % KX
        near_y, near_x = y + down, x + right
        inside = there & (near_y >= 0) & (near_y < height) & (near_x >= 0) & (near_x < width)
        at = corner + (down * width + right) * source_step + first
        wanted = inside[:, None]
        if INPUTS % CHANNELS:
            wanted = wanted & (first + channel < INPUTS)[None, :]
        seen = tl.load(at[:, None] + channel[None, :], mask=wanted, other=0.0)
        taps = weight + (step * CHANNELS + channel)[:, None] * outputs + lane[None, :]
        taps = tl.load(taps, mask=(lane < outputs)[None, :], other=0.0)
        total = tl.dot(seen, taps, total, input_precision=PRECISION)
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
    there = (row < height * width)[:, None]
    known = (lane < outputs)[None, :]
    place = tl.arange(0, EIGHT * EIGHT)
    near_x = x[:, None] + (place // EIGHT)[None, :]
    there_x = there & (near_x >= 0) & (near_x < in_width)
    corner = source + (item * in_height * in_width + y * in_width + x) * EIGHT
    total = tl.zeros((PIXELS, OUTPUTS), tl.float32)
    for down in range(KY):
        inside = there_x & ((y + down >= 0) & (y + down < in_height))[:, None]
        at = (corner + down * in_width * EIGHT)[:, None] + place[None, :]
        seen = tl.load(at, mask=inside, other=0.0)
        taps = weight + (down * EIGHT * EIGHT + place)[:, None] * outputs + lane[None, :]
        taps = tl.load(taps, mask=known, other=0.0)
        total = tl.dot(seen, taps, total, input_precision=PRECISION)
    if bias is not None:
        total += tl.load(bias + lane, mask=lane < outputs, other=0.0).to(tl.float32)[None, :]
    if RELU:
        total = _relu(total)
    at = out + (item * height * width + row)[:, None] * outputs + lane[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=there & known)


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
    near_y = (row // width)[:, None] + (tap // KX - KY // 2)[None, :]
    near_x = (row % width)[:, None] + (tap % KX - KX // 2)[None, :]
    wanted = (near_y >= 0) & (near_y < height) & (near_x >= 0) & (near_x < width)
    wanted = wanted & (row < height * width)[:, None] & (tap < KY * KX)[None, :]
    near = item * height * width + near_y * width + near_x
    seen = tl.load(source + near * source_step + (place % 2)[None, :], mask=wanted, other=0.0)
    known = (lane < outputs)[None, :]
    taps = tl.load(weight + place[:, None] * outputs + lane[None, :], mask=known, other=0.0)
    value = tl.dot(seen, taps, input_precision=PRECISION)
    value += tl.load(bias + lane, mask=lane < outputs, other=0.0).to(tl.float32)[None, :]
    at = out + (item * height * width + row)[:, None] * outputs + lane[None, :]
    value = _relu(value).to(out.dtype.element_ty)
    tl.store(at, value, mask=(row < height * width)[:, None] & known)


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
    found = tl.dot(value, taps, input_precision=PRECISION)
    pixels = tl.num_programs(2).to(tl.int64) * height * width
    at = part * pixels + item * height * width + row
    wanted = (row < height * width)[:, None]
    tl.store(shares + at[:, None] * SHARES + column[None, :], found, mask=wanted)


@kernel
@triton.jit(do_not_specialize=SIZES)
def _advance(
    shares, bias, flow, coords, flow_input, first, second, height, width, input_step, target_step,
    PARTS: tl.constexpr, SHARES: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Sum the shares of the neighbours, add them to the flow, and write it where it is read."""
    item = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    count = height * width
    y, x = row // width, row % width
    wanted = row < count
    at = item * count + row
    for axis in tl.static_range(2):
        value = tl.load(flow + 2 * at + axis, mask=wanted, other=0.0)
        value += tl.load(bias + axis).to(tl.float32)
        for tap in tl.static_range(9):
            near_y, near_x = y + tap // 3 - 1, x + tap % 3 - 1
            inside = wanted & (near_y >= 0) & (near_y < height) & (near_x >= 0) & (near_x < width)
            near = item * count + near_y * width + near_x
            for part in tl.static_range(PARTS):
                place = part * tl.num_programs(1) * count + near
                value += tl.load(shares + place * SHARES + 2 * tap + axis, mask=inside, other=0.0)
        tl.store(flow + 2 * at + axis, value, mask=wanted)
        place = x if axis == 0 else y
        tl.store(coords + (item * 2 + axis) * count + row, place.to(tl.float32) + value, wanted)
        short = value.to(first.dtype.element_ty)
        tl.store(flow_input + at * input_step + axis, short, mask=wanted)
        tl.store(first + at * target_step + axis, short, mask=wanted)
        tl.store(second + at * target_step + axis, short, mask=wanted)


def _common(x: Tensor, kernel: tuple[int, int], tile: Tile) -> dict[str, object]:
    """Return what all convolutions are compiled for."""
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
    """Return a convolution of a map of eight channels, with bias and ReLU where asked for."""
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
    """Return what each pixel contributes to its neighbours by a second convolution."""
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
