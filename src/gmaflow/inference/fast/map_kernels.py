"""Triton kernels between the convolutions. Imported only where Triton is installed.

Maps are channels-last. Most kernels treat them as rows of one pixel each. A target may be a slice
of the channels of a wider map: inputs of a convolution are written into slices of one map instead
of being concatenated. Arithmetic is in float32, whatever the storage. ReLU is written with `where`,
since `max` would turn NaN, which reveals overflow, into 0.

Instance norm and softmax need sums. Their statistics are gathered without atomics, so that results
are reproducible: the pixels of a map are cut into pieces, each piece's mean and squared deviations
are computed from deviations to a value near the mean, and pieces are merged by Chan's rule.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from gmaflow.runtime.kernels import kernel

ROWS = 32
LANES = 64
STEPS = 256
PIECES = 512
MEASURED_ROWS = 64
MEASURED_LANES = 32
MERGED_LANES = 8
WIDE_LANES = 8192
"""Columns that eight warps hold."""
MAX_SINGLE_PASS = 32768
"""Longer rows are read twice, WIDE_LANES columns at a time."""
FLOAT8_MAX = 448.0
"""The largest float8 (e4m3) number."""
FLOAT8_WEIGHT = 256.0
"""The largest weight of a row is scaled to this in float8."""


@triton.jit
def _tile(rows, channels, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Return this program's rows and channels, and the mask of valid ones."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)[None, :]
    return row, lane, (row < rows) & (lane < channels)


@triton.jit
def _relu(value):
    return tl.where(value < 0, 0.0, value)


@kernel
@triton.jit
def _bias_relu(
    source, bias, first, second, rows, channels, source_channels, source_step, target_step,
    KEEP: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row, lane, mask = _tile(rows, channels, ROWS, LANES)
    valid = mask & (lane < source_channels)
    value = tl.load(source + row * source_step + lane, mask=valid, other=0.0).to(tl.float32)
    value += tl.load(bias + lane, mask=lane < source_channels, other=0.0).to(tl.float32)
    value = _relu(value).to(first.dtype.element_ty)
    if KEEP:
        # Written back unchanged, so that whole rows are stored with wide instructions.
        unchanged = tl.load(first + row * target_step + lane, mask=mask, other=0.0)
        value = tl.where(lane < channels - KEEP, value, unchanged)
    tl.store(first + row * target_step + lane, value, mask=mask)
    tl.store(second + row * target_step + lane, value, mask=mask)


@kernel
@triton.jit
def _add(
    one, other, first, second, rows, channels, one_step, other_step, target_step,
    ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row, lane, mask = _tile(rows, channels, ROWS, LANES)
    value = tl.load(one + row * one_step + lane, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(other + row * other_step + lane, mask=mask, other=0.0).to(tl.float32)
    value = value.to(first.dtype.element_ty)
    tl.store(first + row * target_step + lane, value, mask=mask)
    tl.store(second + row * target_step + lane, value, mask=mask)


@kernel
@triton.jit
def _add_shortcut(
    source, bias, shortcut, out, rows, channels, step, ROWS: tl.constexpr, LANES: tl.constexpr
):
    row, lane, mask = _tile(rows, channels, ROWS, LANES)
    at = row * step + lane
    value = tl.load(source + at, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(bias + lane, mask=lane < channels, other=0.0).to(tl.float32)
    value = _relu(value) + tl.load(shortcut + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + at, _relu(value).to(out.dtype.element_ty), mask=mask)


@kernel
@triton.jit
def _gate(
    raw, context_terms, hidden, reset_hidden, rows, channels, state_step,
    ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row, lane, mask = _tile(rows, channels, ROWS, LANES)
    at_update, at_reset = row * 2 * channels + lane, row * 2 * channels + channels + lane
    for_update = context_terms + row * 3 * channels + lane
    update = tl.load(raw + at_update, mask=mask, other=0.0).to(tl.float32)
    update += tl.load(for_update, mask=mask, other=0.0).to(tl.float32)
    reset = tl.load(raw + at_reset, mask=mask, other=0.0).to(tl.float32)
    reset += tl.load(for_update + channels, mask=mask, other=0.0).to(tl.float32)
    state = tl.load(hidden + row * state_step + lane, mask=mask, other=0.0).to(tl.float32)
    # The update gate takes the place of its own sum: the next kernel reads it there.
    tl.store(raw + at_update, tl.sigmoid(update).to(raw.dtype.element_ty), mask=mask)
    reset_state = (tl.sigmoid(reset) * state).to(reset_hidden.dtype.element_ty)
    tl.store(reset_hidden + row * state_step + lane, reset_state, mask=mask)


@kernel
@triton.jit
def _update_state(
    raw, context_terms, gates, hidden, dense, rows, channels, state_step,
    ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row, lane, mask = _tile(rows, channels, ROWS, LANES)
    candidate = tl.load(raw + row * channels + lane, mask=mask, other=0.0).to(tl.float32)
    for_candidate = context_terms + row * 3 * channels + 2 * channels + lane
    candidate += tl.load(for_candidate, mask=mask, other=0.0).to(tl.float32)
    candidate = 2 * tl.sigmoid(2 * candidate) - 1  # tanh
    update = tl.load(gates + row * 2 * channels + lane, mask=mask, other=0.0).to(tl.float32)
    at = hidden + row * state_step + lane
    state = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    state = (state + update * (candidate - state)).to(hidden.dtype.element_ty)
    tl.store(at, state, mask=mask)
    tl.store(dense + row * channels + lane, state, mask=mask)


@kernel
@triton.jit
def _advance(
    change, bias, flow, coords, flow_input, first, second, rows, height, width, change_step,
    input_step, target_step,
    STEPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * STEPS + tl.arange(0, STEPS)
    mask = row < rows
    pixels = height * width
    item, index = row // pixels, row % pixels
    for axis in tl.static_range(2):
        value = tl.load(flow + 2 * row + axis, mask=mask, other=0.0)
        value += tl.load(change + row * change_step + axis, mask=mask, other=0.0).to(tl.float32)
        value += tl.load(bias + axis).to(tl.float32)
        tl.store(flow + 2 * row + axis, value, mask=mask)
        place = index % width if axis == 0 else index // width
        plane = coords + (item * 2 + axis) * pixels + index
        tl.store(plane, place.to(tl.float32) + value, mask=mask)
        rounded = value.to(first.dtype.element_ty)
        tl.store(flow_input + row * input_step + axis, rounded, mask=mask)
        tl.store(first + row * target_step + axis, rounded, mask=mask)
        tl.store(second + row * target_step + axis, rounded, mask=mask)


@triton.jit
def _rows_from(source, first, end, lane, channels, ROWS: tl.constexpr):
    """Return some rows of a map in float32, and the mask of valid values."""
    row = first + tl.arange(0, ROWS)[:, None]
    mask = (row < end) & (lane < channels)[None, :]
    value = tl.load(source + row * channels + lane[None, :], mask=mask, other=0.0)
    return value.to(tl.float32), mask


@kernel
@triton.jit
def _piece_statistics(
    source, statistics, pixels, channels, rows_of_piece,
    PIECES: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    piece, item = tl.program_id(0), tl.program_id(2)
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    begin = piece * rows_of_piece
    end = tl.minimum(begin + rows_of_piece, pixels)
    source += item.to(tl.int64) * pixels * channels
    value, mask = _rows_from(source, begin, end, lane, channels, ROWS)
    # Deviations are taken from the mean of the first rows, which loses few digits.
    shift = tl.sum(value, 0) / tl.minimum(end - begin, ROWS).to(tl.float32)
    # Each thread keeps its own sums: a reduction in every step would take most of the time.
    sums = tl.where(mask, value - shift[None, :], 0.0)
    squares = sums * sums
    for first in range(begin + ROWS, end, ROWS):
        value, mask = _rows_from(source, first, end, lane, channels, ROWS)
        deviation = tl.where(mask, value - shift[None, :], 0.0)
        sums += deviation
        squares += deviation * deviation
    count = (end - begin).to(tl.float32)
    total = tl.sum(sums, 0)
    mean = shift + total / count
    squared_deviation = tl.sum(squares, 0) - total * total / count
    at = statistics + ((item * PIECES + piece) * 2) * channels + lane
    tl.store(at, mean, mask=lane < channels)
    tl.store(at + channels, squared_deviation, mask=lane < channels)


@kernel
@triton.jit
def _merge_statistics(
    statistics, merged, pixels, channels, rows_of_piece, epsilon,
    PIECES: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    item = tl.program_id(1)
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    piece = tl.arange(0, PIECES)
    begin = piece * rows_of_piece
    count = tl.minimum(tl.maximum(pixels - begin, 0), rows_of_piece).to(tl.float32)[:, None]
    mask = (count > 0) & (lane < channels)[None, :]
    at = statistics + ((item * PIECES + piece) * 2)[:, None] * channels + lane[None, :]
    means = tl.load(at, mask=mask, other=0.0)
    squares = tl.load(at + channels, mask=mask, other=0.0)
    mean = tl.sum(means * count, 0) / pixels
    gap = means - mean[None, :]
    variance = tl.sum(squares + gap * gap * count, 0) / pixels
    at = merged + item * 2 * channels + lane
    tl.store(at, mean, mask=lane < channels)
    tl.store(at + channels, 1 / tl.sqrt(variance + epsilon), mask=lane < channels)


@kernel
@triton.jit
def _apply_norm(
    source, merged, shortcut, pixels, channels,
    RELU: tl.constexpr, JOIN: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    item = tl.program_id(2)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)[None, :]
    mask = (row < pixels) & (lane < channels)
    at = (item.to(tl.int64) * pixels + row) * channels + lane
    mean = tl.load(merged + item * 2 * channels + lane, mask=lane < channels, other=0.0)
    scale = tl.load(merged + (item * 2 + 1) * channels + lane, mask=lane < channels, other=0.0)
    value = (tl.load(source + at, mask=mask, other=0.0).to(tl.float32) - mean) * scale
    if RELU:
        value = tl.where(value < 0, 0.0, value)
    if JOIN:
        value += tl.load(shortcut + at, mask=mask, other=0.0).to(tl.float32)
        value = tl.where(value < 0, 0.0, value)
    tl.store(source + at, value.to(source.dtype.element_ty), mask=mask)


@kernel
@triton.jit(do_not_specialize=["batch"])
def _prepare_images(first, second, out, pixels, batch, PIXELS: tl.constexpr, LANES: tl.constexpr):
    item = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[:, None]
    lane = tl.arange(0, LANES)[None, :]
    mask = (row < pixels) & (lane < 3)
    at = (item % batch * 3 + lane) * pixels + row
    if item < batch:
        value = tl.load(first + at, mask=mask, other=0.0)
    else:
        value = tl.load(second + at, mask=mask, other=0.0)
    value = tl.where(mask, 2 * value - 1, 0.0)
    at = out + (item * pixels + row) * LANES + lane
    tl.store(at, value.to(out.dtype.element_ty), mask=row < pixels)


@kernel
@triton.jit
def _softmax(scores, columns, LANES: tl.constexpr):
    row = scores + tl.program_id(0).to(tl.int64) * columns
    lane = tl.arange(0, LANES)
    part = tl.load(row + lane, mask=lane < columns, other=-float("inf")).to(tl.float32)
    part = tl.exp(part - tl.max(part, 0))
    weight = part / tl.sum(part, 0)
    tl.store(row + lane, weight.to(scores.dtype.element_ty), mask=lane < columns)


@kernel
@triton.jit
def _softmax_of_long_rows(scores, columns, LANES: tl.constexpr):
    row = scores + tl.program_id(0).to(tl.int64) * columns
    lane = tl.arange(0, LANES)
    highest = -float("inf")
    total = 0.0
    for first in range(0, columns, LANES):
        mask = first + lane < columns
        part = tl.load(row + first + lane, mask=mask, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(part, 0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(part - higher), 0)
        highest = higher
    for first in range(0, columns, LANES):
        mask = first + lane < columns
        part = tl.load(row + first + lane, mask=mask, other=-float("inf")).to(tl.float32)
        weight = tl.exp(part - highest) / total
        tl.store(row + first + lane, weight.to(scores.dtype.element_ty), mask=mask)


@kernel
@triton.jit
def _softmax_float8(
    scores, weights, scale, columns, padded, FLOAT8_WEIGHT: tl.constexpr, LANES: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    source, target = scores + row * columns, weights + row * padded
    lane = tl.arange(0, LANES)
    highest = tl.full([LANES], -float("inf"), tl.float32)
    for first in range(0, columns, LANES):
        mask = first + lane < columns
        part = tl.load(source + first + lane, mask=mask, other=-float("inf")).to(tl.float32)
        highest = tl.maximum(highest, part)
    top = tl.max(highest, 0)
    total = tl.zeros([LANES], tl.float32)
    for first in range(0, padded, LANES):
        mask = first + lane < columns
        part = tl.load(source + first + lane, mask=mask, other=-float("inf")).to(tl.float32)
        rounded = (FLOAT8_WEIGHT * tl.exp(part - top)).to(weights.dtype.element_ty)
        tl.store(target + first + lane, rounded, mask=first + lane < padded)
        total += rounded.to(tl.float32)  # the rounded values, so that the weights of a row sum to 1
    tl.store(scale + row, 1 / tl.sum(total, 0))


@kernel
@triton.jit
def _quantize(
    values,
    quantized,
    scale,
    pixels,
    channels,
    padded,
    FLOAT8_MAX: tl.constexpr,
    LANES: tl.constexpr,
):
    channel, item = tl.program_id(0), tl.program_id(1)
    row = item.to(tl.int64) * channels + channel
    source = values + row * pixels
    target = quantized + (item.to(tl.int64) * tl.num_programs(0) + channel) * padded
    end = tl.where(channel < channels, pixels, 0)
    lane = tl.arange(0, LANES)
    highest = tl.zeros([LANES], tl.float32)
    for first in range(0, end, LANES):
        value = tl.load(source + first + lane, mask=first + lane < end, other=0.0).to(tl.float32)
        highest = tl.maximum(highest, tl.abs(value))
    peak = tl.max(highest, 0)
    factor = FLOAT8_MAX / tl.where(peak == 0, 1.0, peak)
    for first in range(0, padded, LANES):
        value = tl.load(source + first + lane, mask=first + lane < end, other=0.0).to(tl.float32)
        value = (value * factor).to(quantized.dtype.element_ty)
        tl.store(target + first + lane, value, mask=first + lane < padded)
    tl.store(scale + row, peak / FLOAT8_MAX, mask=channel < channels)


@kernel
@triton.jit
def _dequantize(
    sums, row_scale, channel_scale, out, pixels, channels, sums_channels,
    ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    item = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)[None, :]
    mask = (row < pixels) & (lane < channels)
    row += item * pixels
    value = tl.load(sums + row * sums_channels + lane, mask=mask, other=0.0)
    value *= tl.load(row_scale + row, mask=row < (item + 1) * pixels, other=0.0)
    value *= tl.load(channel_scale + item * channels + lane, mask=lane < channels, other=0.0)
    tl.store(out + row * channels + lane, value.to(out.dtype.element_ty), mask=mask)


def _grid(rows: int, channels: int) -> tuple[int, int]:
    return triton.cdiv(rows, ROWS), triton.cdiv(channels, LANES)


def _rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


def bias_relu(
    source: Tensor, bias: Tensor, targets: tuple[Tensor, Tensor], *, keep: int = 0
) -> None:
    """Write `relu(source + bias)` to both targets, to all but the last `keep` channels.

    Those must be the same in both targets.
    """
    first, second = targets
    rows, channels = _rows(source), first.shape[-1]
    steps = (source.stride(2), first.stride(2))
    _bias_relu[_grid(rows, channels)](
        source, bias, first, second, rows, channels, source.shape[-1], *steps,
        KEEP=keep, ROWS=ROWS, LANES=LANES,
    )  # fmt: skip


def add(one: Tensor, other: Tensor, targets: tuple[Tensor, Tensor]) -> None:
    """Write `one + other` to both targets."""
    first, second = targets
    rows, channels = _rows(one), first.shape[-1]
    steps = (one.stride(2), other.stride(2), first.stride(2))
    _add[_grid(rows, channels)](
        one, other, first, second, rows, channels, *steps, ROWS=ROWS, LANES=LANES
    )


def add_shortcut(source: Tensor, bias: Tensor, shortcut: Tensor) -> None:
    """Replace `source` by `relu(shortcut + relu(source + bias))`."""
    rows, channels = _rows(source), source.shape[-1]
    _add_shortcut[_grid(rows, channels)](
        source, bias, shortcut, source, rows, channels, channels, ROWS=ROWS, LANES=LANES
    )


def gate(raw: Tensor, context_terms: Tensor, hidden: Tensor, reset_hidden: Tensor) -> None:
    """Apply the gates: `update` in `raw`, `reset * hidden` in `reset_hidden`."""
    rows, channels = _rows(raw), hidden.shape[-1]
    assert hidden.stride(2) == reset_hidden.stride(2)
    _gate[_grid(rows, channels)](
        raw, context_terms, hidden, reset_hidden, rows, channels, hidden.stride(2),
        ROWS=ROWS, LANES=LANES,
    )  # fmt: skip


def update_state(
    raw: Tensor, context_terms: Tensor, gates: Tensor, hidden: Tensor, dense: Tensor
) -> None:
    """Move the state towards the candidate by the update gate, in place and in `dense`."""
    rows, channels = _rows(raw), hidden.shape[-1]
    _update_state[_grid(rows, channels)](
        raw, context_terms, gates, hidden, dense, rows, channels, hidden.stride(2),
        ROWS=ROWS, LANES=LANES,
    )  # fmt: skip


def advance(
    change: Tensor, bias: Tensor, flow: Tensor, coords: Tensor, flow_input: Tensor, targets:
    tuple[Tensor, Tensor],
) -> None:  # fmt: skip
    """Add the change to the flow, and write it to where the next iteration reads it."""
    first, second = targets
    rows = _rows(flow)
    height, width = coords.shape[-2:]
    _advance[(triton.cdiv(rows, STEPS),)](
        change, bias, flow, coords, flow_input, first, second, rows, height, width,
        change.stride(2), flow_input.stride(2), first.stride(2),
        STEPS=STEPS,
    )  # fmt: skip


def instance_norm(x: Tensor, *, relu: bool, shortcut: Tensor | None, epsilon: float) -> None:
    """Normalise each map of `x` `[b, h, w, c]` in place; optional ReLU, shortcut and ReLU."""
    items, height, width, channels = x.shape
    pixels = height * width
    statistics = torch.empty(items, PIECES, 2, channels, device=x.device, dtype=torch.float32)
    merged = torch.empty(items, 2, channels, device=x.device, dtype=torch.float32)
    rows_of_piece = triton.cdiv(triton.cdiv(pixels, PIECES), MEASURED_ROWS) * MEASURED_ROWS
    pieces = triton.cdiv(pixels, rows_of_piece)
    # Two warps: more of them spend their time synchronizing to reduce the sums.
    _piece_statistics[(pieces, triton.cdiv(channels, MEASURED_LANES), items)](
        x, statistics, pixels, channels, rows_of_piece,
        PIECES=PIECES, ROWS=MEASURED_ROWS, LANES=MEASURED_LANES, num_warps=2,
    )  # fmt: skip
    _merge_statistics[(triton.cdiv(channels, MERGED_LANES), items)](
        statistics, merged, pixels, channels, rows_of_piece, epsilon,
        PIECES=PIECES, LANES=MERGED_LANES, num_warps=8,
    )  # fmt: skip
    _apply_norm[(triton.cdiv(pixels, ROWS), triton.cdiv(channels, LANES), items)](
        x, merged, x if shortcut is None else shortcut, pixels, channels,
        RELU=relu, JOIN=shortcut is not None, ROWS=ROWS, LANES=LANES,
    )  # fmt: skip


def prepare_images(images: Sequence[Tensor], out: Tensor) -> None:
    """Write one or two batches of images to `out`, in -1..1, channels last and zero-padded."""
    first, second = (image.contiguous() for image in (images[0], images[-1]))
    items, height, width, channels = out.shape
    pixels = height * width
    _prepare_images[(triton.cdiv(pixels, STEPS), items)](
        first, second, out, pixels, len(first), PIXELS=STEPS, LANES=channels
    )


def softmax(scores: Tensor) -> None:
    """Replace the rows (last axis) of dense scores by their softmax."""
    columns = scores.shape[-1]
    rows = scores.numel() // columns
    if columns <= MAX_SINGLE_PASS:
        lanes = triton.next_power_of_2(columns)
        _softmax[(rows,)](scores, columns, LANES=lanes, num_warps=16 if lanes > WIDE_LANES else 8)
    else:
        _softmax_of_long_rows[(rows,)](scores, columns, LANES=WIDE_LANES, num_warps=8)


def softmax_float8(scores: Tensor, weights: Tensor, scale: Tensor) -> None:
    """Write the softmax of the rows of `scores` `[r, c]` to `weights * scale[:, None]`.

    `weights` are float8 and may have more columns than `scores`; those are 0.
    """
    rows, columns = scores.shape
    _softmax_float8[(rows,)](
        scores, weights, scale, columns, weights.shape[1],
        FLOAT8_WEIGHT=FLOAT8_WEIGHT, LANES=WIDE_LANES, num_warps=8,
    )  # fmt: skip


def quantize(values: Tensor, quantized: Tensor) -> Tensor:
    """Write `values` `[i, c, p]` to `quantized` in float8; return the scale of each row, `[i, c]`.

    `quantized` `[i, d, q]` may be larger than `values`; the rest is 0.
    """
    items, channels, pixels = values.shape
    _, padded_channels, padded = quantized.shape
    scale = torch.empty(items, channels, device=values.device, dtype=torch.float32)
    _quantize[(padded_channels, items)](
        values,
        quantized,
        scale,
        pixels,
        channels,
        padded,
        FLOAT8_MAX=FLOAT8_MAX,
        LANES=WIDE_LANES,
        num_warps=8,
    )
    return scale


def dequantize(sums: Tensor, row_scale: Tensor, channel_scale: Tensor, out: Tensor) -> None:
    """Write `sums` `[i, p, d]`, scaled by row and by channel, to `out` `[i, p, c]`."""
    items, pixels, channels = out.shape
    _dequantize[(*_grid(pixels, channels), items)](
        sums, row_scale, channel_scale, out, pixels, channels, sums.shape[-1],
        ROWS=ROWS, LANES=LANES,
    )  # fmt: skip
