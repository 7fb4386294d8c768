"""Triton kernels of convex upsampling. Imported only where Triton is there.

One program serves one cell of the 1/8 grid: nine neighbours, whose weights for each of the cell's
64 fine pixels lie side by side in memory when channels come last.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

NEIGHBOURS = tl.constexpr(16)
"""Nine, up to the next power of two."""


@triton.jit
def _cell(flow, height, width):
    """Return the cell's place, and the flow of its neighbours; zero outside the grid."""
    cell = tl.program_id(0).to(tl.int64)
    x, y = cell % width, (cell // width) % height
    item = cell // (width * height)
    k = tl.arange(0, NEIGHBOURS)
    near_x, near_y = x + k % 3 - 1, y + k // 3 - 1
    inside = (k < 9) & (near_x >= 0) & (near_x < width) & (near_y >= 0) & (near_y < height)
    source = flow + item * 2 * height * width + near_y * width + near_x
    flow_x = tl.load(source, mask=inside, other=0.0)
    flow_y = tl.load(source + height * width, mask=inside, other=0.0)
    return cell, item, y, x, flow_x, flow_y


@triton.jit
def _convex_weights(logits, cell, sharpness):
    """Return the softmax over the neighbours, for each fine pixel of the cell."""
    k, fine = tl.arange(0, NEIGHBOURS)[:, None], tl.arange(0, 64)[None, :]
    score = tl.load(logits + cell * 576 + k * 64 + fine, mask=k < 9, other=-float("inf"))
    score = score.to(tl.float32) * sharpness
    weight = tl.exp(score - tl.max(score, axis=0)[None, :])
    return weight / tl.sum(weight, axis=0)[None, :]


@triton.jit
def _fine_pixels(item, y, x, height, width):
    """Return where the cell's fine pixels lie in the x component of a full-size flow."""
    fine = tl.arange(0, 64)
    rows, columns = y * 8 + fine // 8, x * 8 + fine % 8
    return item * 128 * height * width + rows * 8 * width + columns


@triton.jit
def _upsample(flow, logits, out, sharpness, height, width):
    cell, item, y, x, flow_x, flow_y = _cell(flow, height, width)
    weight = _convex_weights(logits, cell, sharpness)
    target = out + _fine_pixels(item, y, x, height, width)
    tl.store(target, 8 * tl.sum(weight * flow_x[:, None], axis=0))
    tl.store(target + 64 * height * width, 8 * tl.sum(weight * flow_y[:, None], axis=0))


@triton.jit
def _upsample_backward(
    flow, logits, gradient, for_logits, for_neighbours, sharpness, height, width
):
    cell, item, y, x, flow_x, flow_y = _cell(flow, height, width)
    weight = _convex_weights(logits, cell, sharpness)
    source = gradient + _fine_pixels(item, y, x, height, width)
    g_x = 8 * tl.load(source)[None, :]
    g_y = 8 * tl.load(source + 64 * height * width)[None, :]

    k, fine = tl.arange(0, NEIGHBOURS), tl.arange(0, 64)[None, :]
    target = for_neighbours + cell * 18 + k
    tl.store(target, tl.sum(weight * g_x, axis=1), mask=k < 9)
    tl.store(target + 9, tl.sum(weight * g_y, axis=1), mask=k < 9)

    for_weight = g_x * flow_x[:, None] + g_y * flow_y[:, None]
    mean = tl.sum(weight * for_weight, axis=0)[None, :]
    value = sharpness * weight * (for_weight - mean)
    k = k[:, None]
    place = for_logits + cell * 576 + k * 64 + fine
    tl.store(place, value.to(for_logits.dtype.element_ty), mask=k < 9)


@triton.jit
def _gather_neighbours(for_neighbours, for_flow, height, width):
    cell, channel = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x, y = cell % width, (cell // width) % height
    item = cell // (width * height)
    k = tl.arange(0, NEIGHBOURS)
    # A cell is neighbour k of the one that lies the other way.
    near_x, near_y = x - k % 3 + 1, y - k // 3 + 1
    inside = (k < 9) & (near_x >= 0) & (near_x < width) & (near_y >= 0) & (near_y < height)
    near = (item * height + near_y) * width + near_x
    seen = tl.load(for_neighbours + near * 18 + channel * 9 + k, mask=inside, other=0.0)
    target = for_flow + (item * 2 + channel) * height * width + y * width + x
    tl.store(target, tl.sum(seen, axis=0))


def upsample(
    flow: Float[Tensor, "b 2 h w"], logits: Float[Tensor, "b h w 576"], *, sharpness: float
) -> Float[Tensor, "b 2 H W"]:
    """Make every fine pixel a convex combination of its cell's neighbours."""
    batch, _, height, width = flow.shape
    out = flow.new_empty(batch, 2, 8 * height, 8 * width)
    _upsample[(batch * height * width,)](
        flow, logits, out, sharpness, height, width, num_warps=2
    )  # fmt: skip
    return out


def upsample_backward(
    flow: Float[Tensor, "b 2 h w"],
    logits: Float[Tensor, "b h w 576"],
    gradient: Float[Tensor, "b 2 H W"],
    *,
    sharpness: float,
) -> tuple[Float[Tensor, "b 2 h w"], Float[Tensor, "b h w 576"]]:
    """Return what the gradient of the fine flow means for the coarse flow and the logits."""
    batch, _, height, width = flow.shape
    cells = batch * height * width
    for_logits, for_flow = torch.empty_like(logits), torch.empty_like(flow)
    for_neighbours = flow.new_empty(cells, 2, 9)
    _upsample_backward[(cells,)](
        flow, logits, gradient, for_logits, for_neighbours, sharpness, height, width, num_warps=2
    )  # fmt: skip
    _gather_neighbours[(cells, 2)](for_neighbours, for_flow, height, width, num_warps=1)
    return for_flow, for_logits
