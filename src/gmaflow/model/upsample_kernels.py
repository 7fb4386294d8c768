"""Convex upsampling by Triton kernels. Imported only where Triton is installed.

Gives the same numbers as `convex_upsample`, which makes several float32 copies of the weights of
all fine pixels, 576 for each cell; a kernel reads them once.

One program processes a few cells of the 1/8 grid. A lane computes one of a cell's 64 fine pixels:
it loops over the nine neighbours, whose weights for the 64 pixels are contiguous if channels come
last.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from gmaflow.model.update import SHARPNESS
from gmaflow.runtime.kernels import kernel

CELLS = 4
"""Cells that one program processes."""
GATHER_CELLS = 256
"""Cells of one program that sums gradients over neighbours."""


@triton.jit
def _cell_position(cells, height, width):
    """Return the item, row and column of cells."""
    return cells // (width * height), (cells // width) % height, cells % width


@triton.jit
def _neighbour(flow, cells, count, k, height, width):
    """Return the flow of the cells' neighbour k; zero outside the grid."""
    item, y, x = _cell_position(cells, height, width)
    near_x, near_y = x + k % 3 - 1, y + k // 3 - 1
    inside = (near_x >= 0) & (near_x < width) & (near_y >= 0) & (near_y < height) & (cells < count)
    source = flow + item * 2 * height * width + near_y * width + near_x
    flow_x = tl.load(source, mask=inside, other=0.0)
    flow_y = tl.load(source + height * width, mask=inside, other=0.0)
    return flow_x, flow_y


@triton.jit
def _score(logits, cells, lanes, count, k, sharpness):
    """Return the lanes' logit for neighbour k."""
    pointer = logits + cells * 576 + k * 64 + lanes
    return tl.load(pointer, mask=cells < count, other=0.0).to(tl.float32) * sharpness


@triton.jit
def _blend(flow, logits, cells, lanes, count, sharpness, height, width):
    """Return the fine flow, and the maximum and the sum of the softmax that made it."""
    peak = tl.full(lanes.shape, -float("inf"), tl.float32) + tl.zeros(cells.shape, tl.float32)
    total = tl.zeros(peak.shape, tl.float32)
    fine_x, fine_y = total, total
    for k in tl.static_range(9):
        near_x, near_y = _neighbour(flow, cells, count, k, height, width)
        score = _score(logits, cells, lanes, count, k, sharpness)
        previous, peak = peak, tl.maximum(peak, score)
        shrink, weight = tl.exp(previous - peak), tl.exp(score - peak)
        total = total * shrink + weight
        fine_x = fine_x * shrink + weight * near_x
        fine_y = fine_y * shrink + weight * near_y
    return fine_x / total, fine_y / total, peak, total


@triton.jit
def _fine_pixels(cells, lanes, height, width):
    """Return where the cells' fine pixels lie in the x component of a full-size flow."""
    item, y, x = _cell_position(cells, height, width)
    rows, columns = y * 8 + lanes // 8, x * 8 + lanes % 8
    return item * 128 * height * width + rows * 8 * width + columns


@kernel
@triton.jit
def _upsample(flow, logits, out, sharpness, count, height, width, CELLS: tl.constexpr):
    cells = tl.program_id(0).to(tl.int64) * CELLS + tl.arange(0, CELLS)[:, None]
    lanes = tl.arange(0, 64)[None, :]
    fine_x, fine_y, _, _ = _blend(flow, logits, cells, lanes, count, sharpness, height, width)
    target = out + _fine_pixels(cells, lanes, height, width)
    tl.store(target, 8 * fine_x, mask=cells < count)
    tl.store(target + 64 * height * width, 8 * fine_y, mask=cells < count)


@kernel
@triton.jit
def _upsample_backward(
    flow, logits, gradient, grad_logits, grad_neighbours, sharpness, count, height, width,
    CELLS: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * CELLS
    cells = first + tl.arange(0, CELLS)[:, None]
    lanes = tl.arange(0, 64)[None, :]
    fine_x, fine_y, peak, total = _blend(
        flow, logits, cells, lanes, count, sharpness, height, width
    )
    source = gradient + _fine_pixels(cells, lanes, height, width)
    g_x = 8 * tl.load(source, mask=cells < count, other=0.0)
    g_y = 8 * tl.load(source + 64 * height * width, mask=cells < count, other=0.0)
    # The gradient of softmax needs the weighted mean of the gradients of its weights.
    mean = g_x * fine_x + g_y * fine_y
    cell = first + tl.arange(0, CELLS)
    for k in tl.static_range(9):
        near_x, near_y = _neighbour(flow, cells, count, k, height, width)
        score = _score(logits, cells, lanes, count, k, sharpness)
        weight = tl.exp(score - peak) / total
        value = sharpness * weight * (g_x * near_x + g_y * near_y - mean)
        pointer = grad_logits + cells * 576 + k * 64 + lanes
        tl.store(pointer, value.to(grad_logits.dtype.element_ty), mask=cells < count)
        target = grad_neighbours + k * count + cell
        tl.store(target, tl.sum(weight * g_x, axis=1), mask=cell < count)
        tl.store(target + 9 * count, tl.sum(weight * g_y, axis=1), mask=cell < count)


@kernel
@triton.jit
def _gather_neighbours(grad_neighbours, grad_flow, count, height, width, CELLS: tl.constexpr):
    cells = tl.program_id(0).to(tl.int64) * CELLS + tl.arange(0, CELLS)
    channel = tl.program_id(1)
    item, y, x = _cell_position(cells, height, width)
    total = tl.zeros((CELLS,), tl.float32)
    for k in tl.static_range(9):
        # A cell is neighbour k of the cell in the opposite direction.
        near_x, near_y = x - k % 3 + 1, y - k // 3 + 1
        inside = (near_x >= 0) & (near_x < width) & (near_y >= 0) & (near_y < height)
        near = (item * height + near_y) * width + near_x
        source = grad_neighbours + (channel * 9 + k) * count + near
        total += tl.load(source, mask=inside & (cells < count), other=0.0)
    target = grad_flow + (item * 2 + channel) * height * width + y * width + x
    tl.store(target, total, mask=cells < count)


def upsample(
    flow: Float[Tensor, "b 2 h w"], logits: Float[Tensor, "b h w 576"]
) -> Float[Tensor, "b 2 H W"]:
    """Make every fine pixel a convex combination of its cell's neighbours."""
    batch, _, height, width = flow.shape
    count = batch * height * width
    out = flow.new_empty(batch, 2, 8 * height, 8 * width)
    _upsample[(triton.cdiv(count, CELLS),)](
        flow, logits, out, SHARPNESS, count, height, width, CELLS=CELLS
    )
    return out


def upsample_backward(
    flow: Float[Tensor, "b 2 h w"],
    logits: Float[Tensor, "b h w 576"],
    gradient: Float[Tensor, "b 2 H W"],
) -> tuple[Float[Tensor, "b 2 h w"], Float[Tensor, "b h w 576"]]:
    """Return the gradients of the coarse flow and the logits, given that of the fine flow."""
    batch, _, height, width = flow.shape
    count = batch * height * width
    grad_logits, grad_flow = torch.empty_like(logits), torch.empty_like(flow)
    grad_neighbours = flow.new_empty(2, 9, count)
    _upsample_backward[(triton.cdiv(count, CELLS),)](
        flow, logits, gradient, grad_logits, grad_neighbours, SHARPNESS, count, height, width,
        CELLS=CELLS,
    )  # fmt: skip
    _gather_neighbours[(triton.cdiv(count, GATHER_CELLS), 2)](
        grad_neighbours, grad_flow, count, height, width, CELLS=GATHER_CELLS
    )
    return grad_flow, grad_logits


class _Upsample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flow: Tensor, logits: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(flow, logits)
        return upsample(flow, logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        flow, logits = ctx.saved_tensors
        return upsample_backward(flow, logits, gradient.contiguous())


def fused_upsample(
    flow: Float[Tensor, "b 2 h w"], logits: Float[Tensor, "b 576 h w"]
) -> Float[Tensor, "b 2 H W"]:
    """Make every fine pixel a convex combination of its cell's 3x3 coarse neighbours."""
    channels_last = logits.permute(0, 2, 3, 1).contiguous()
    fine: Tensor = _Upsample.apply(flow.contiguous(), channels_last)
    return fine
