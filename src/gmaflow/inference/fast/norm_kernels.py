"""Triton kernels that need sums: instance norm, and the attention's softmax.

Statistics are float32 and gathered without atomics, so that a result is the same each time: the
pixels of a map are cut into pieces, each piece's mean and squared deviations are found exactly, and
pieces are merged by Chan's rule.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PIECES = 256
ROWS = 32
LANES = 64
MERGED_LANES = 16
LONGEST = 8192


@triton.jit
def _measure(
    source,
    found,
    pixels,
    channels,
    rows_of_piece,
    PIECES: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    piece, item = tl.program_id(0), tl.program_id(2)
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    begin = piece * rows_of_piece
    end = tl.minimum(begin + rows_of_piece, pixels)
    count = 0.0
    mean = tl.zeros((LANES,), tl.float32)
    squares = tl.zeros((LANES,), tl.float32)
    for first in range(begin, end, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        wanted = (row < end) & (lane < channels)[None, :]
        at = source + (item.to(tl.int64) * pixels + row) * channels + lane[None, :]
        value = tl.load(at, mask=wanted, other=0.0).to(tl.float32)
        here = tl.minimum(end - first, ROWS).to(tl.float32)
        mean_here = tl.sum(value, 0) / here
        away = tl.where(wanted, value - mean_here[None, :], 0.0)
        gap = mean_here - mean
        share = here / (count + here)
        squares += tl.sum(away * away, 0) + gap * gap * count * share
        mean += gap * share
        count += here
    at = found + ((item * PIECES + piece) * 2) * channels + lane
    tl.store(at, mean, mask=lane < channels)
    tl.store(at + channels, squares, mask=lane < channels)


@triton.jit
def _merge(
    found,
    merged,
    pixels,
    channels,
    rows_of_piece,
    epsilon,
    PIECES: tl.constexpr,
    LANES: tl.constexpr,
):
    item = tl.program_id(1)
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    piece = tl.arange(0, PIECES)
    begin = piece * rows_of_piece
    count = tl.minimum(tl.maximum(pixels - begin, 0), rows_of_piece).to(tl.float32)[:, None]
    wanted = (count > 0) & (lane < channels)[None, :]
    at = found + ((item * PIECES + piece) * 2)[:, None] * channels + lane[None, :]
    means = tl.load(at, mask=wanted, other=0.0)
    squares = tl.load(at + channels, mask=wanted, other=0.0)
    mean = tl.sum(means * count, 0) / pixels
    gap = means - mean[None, :]
    variance = tl.sum(squares + gap * gap * count, 0) / pixels
    at = merged + item * 2 * channels + lane
    tl.store(at, mean, mask=lane < channels)
    tl.store(at + channels, 1 / tl.sqrt(variance + epsilon), mask=lane < channels)


@triton.jit
def _apply(
    source,
    merged,
    shortcut,
    pixels,
    channels,
    RELU: tl.constexpr,
    JOIN: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    item = tl.program_id(2)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)[None, :]
    wanted = (row < pixels) & (lane < channels)
    at = (item.to(tl.int64) * pixels + row) * channels + lane
    mean = tl.load(merged + item * 2 * channels + lane, mask=lane < channels, other=0.0)
    scale = tl.load(merged + (item * 2 + 1) * channels + lane, mask=lane < channels, other=0.0)
    value = (tl.load(source + at, mask=wanted, other=0.0).to(tl.float32) - mean) * scale
    if RELU:
        value = tl.where(value < 0, 0.0, value)
    if JOIN:
        value += tl.load(shortcut + at, mask=wanted, other=0.0).to(tl.float32)
        value = tl.where(value < 0, 0.0, value)
    tl.store(source + at, value.to(source.dtype.element_ty), mask=wanted)


@triton.jit
def _softmax(scores, columns, LANES: tl.constexpr):
    row = scores + tl.program_id(0).to(tl.int64) * columns
    lane = tl.arange(0, LANES)
    highest = -float("inf")
    total = 0.0
    for first in range(0, columns, LANES):
        wanted = first + lane < columns
        part = tl.load(row + first + lane, mask=wanted, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(part, 0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(part - higher), 0)
        highest = higher
    for first in range(0, columns, LANES):
        wanted = first + lane < columns
        part = tl.load(row + first + lane, mask=wanted, other=-float("inf")).to(tl.float32)
        weight = tl.exp(part - highest) / total
        tl.store(row + first + lane, weight.to(scores.dtype.element_ty), mask=wanted)


def instance_norm(x: Tensor, *, relu: bool, shortcut: Tensor | None, epsilon: float) -> None:
    """Normalise each map of `x` `[b, h, w, c]` in place; ReLU; perhaps add a shortcut, and ReLU."""
    items, height, width, channels = x.shape
    pixels = height * width
    found = torch.empty(items, PIECES, 2, channels, device=x.device, dtype=torch.float32)
    merged = torch.empty(items, 2, channels, device=x.device, dtype=torch.float32)
    rows_of_piece = triton.cdiv(triton.cdiv(pixels, PIECES), ROWS) * ROWS
    blocks = triton.cdiv(channels, LANES)
    pieces = triton.cdiv(pixels, rows_of_piece)
    _measure[(pieces, blocks, items)](
        x, found, pixels, channels, rows_of_piece, PIECES=PIECES, ROWS=ROWS, LANES=LANES
    )
    _merge[(triton.cdiv(channels, MERGED_LANES), items)](
        found,
        merged,
        pixels,
        channels,
        rows_of_piece,
        epsilon,
        PIECES=PIECES,
        LANES=MERGED_LANES,
    )
    _apply[(triton.cdiv(pixels, ROWS), blocks, items)](
        x,
        merged,
        x if shortcut is None else shortcut,
        pixels,
        channels,
        RELU=relu,
        JOIN=shortcut is not None,
        ROWS=ROWS,
        LANES=LANES,
    )


def softmax(scores: Tensor) -> None:
    """Replace the rows (last axis) of dense scores by their softmax."""
    columns = scores.shape[-1]
    lanes = min(LONGEST, triton.next_power_of_2(columns))
    _softmax[(scores.numel() // columns,)](scores, columns, LANES=lanes, num_warps=8)
