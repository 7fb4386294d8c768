"""Attention on a CPU, kept in half the memory: it is the largest thing beside the correlations.

Kept are the numerators of softmax, from 0 to 1, in float16; their sums are divided by after the
product. So a weight is off by at most 1/2048 of itself, in either direction, and the mean of
thousands of values by far less: the flow moves by some 0.0001 px. A product converts a few rows at
a time, which costs a sixth more than to have all of them in float32.

Legend: b batch, a heads, p pixels, d channels of a head, e channels compared, q some pixels.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float16, Int64
from torch import Tensor

ROWS = 128
"""Converted at once by each thread."""
COLUMNS = 1024
"""Of the matrix that lie together in memory: caches hold so many of all rows that are converted at
once, and as many of the values."""


@dataclass(frozen=True)
class CompactAttention:
    """The attention matrix of a pair, without its denominators."""

    blocks: tuple[Float16[Tensor, "b a p _"], ...]
    """The numerators, some columns after the other."""
    denominators: Float[Tensor, "b a p 1"]

    @classmethod
    def of(
        cls, queries: Float[Tensor, "b a p e"], keys: Float[Tensor, "b a p e"]
    ) -> "CompactAttention":
        """Compare scaled queries with keys, without ever having the matrix in float32."""
        *leading, pixels, _ = queries.shape
        rows = rows_at_once()
        blocks = empty_blocks(leading, pixels, queries.device)
        denominators = queries.new_empty(*leading, pixels, 1)
        for first in range(0, pixels, rows):
            some = slice(first, first + rows)
            scores = queries[..., some, :] @ keys.mT
            scores.sub_(scores.amax(dim=-1, keepdim=True)).exp_()
            torch.sum(scores, dim=-1, keepdim=True, out=denominators[..., some, :])
            for block, part in zip(blocks, scores.split(COLUMNS, dim=-1), strict=True):
                block[..., some, :] = part
        return cls(blocks, denominators)

    def rows(self, queries: Int64[Tensor, " q"]) -> Float[Tensor, "b a q p"]:
        """Return how much each query (flat pixel index) attends to every pixel; sums to 1."""
        numerators = torch.cat([block[:, :, queries] for block in self.blocks], dim=-1)
        return numerators.float() / self.denominators[:, :, queries]

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        """Return for each pixel the mean of all values, weighted by attention."""
        batch, heads, pixels, _ = values.shape
        out = torch.zeros_like(values, memory_format=torch.contiguous_format)
        space = values.new_empty(min(rows_at_once(), pixels) * min(COLUMNS, pixels))
        for item in range(batch):
            for head in range(heads):
                parts = values[item, head].split(COLUMNS)
                for block, part in zip(self.blocks, parts, strict=True):
                    add_product(block[item, head], part, out[item, head], space)
        return out.div_(self.denominators)


def rows_at_once() -> int:
    """Return how many rows are converted at once."""
    return ROWS * torch.get_num_threads()


def empty_blocks(
    leading: list[int], pixels: int, device: torch.device
) -> tuple[Float16[Tensor, "*leading p _"], ...]:
    """Return the space for a matrix, some columns after the other in one piece of memory."""
    widths = [min(COLUMNS, pixels - first) for first in range(0, pixels, COLUMNS)]
    rows = math.prod(leading) * pixels
    space = torch.empty(rows * pixels, dtype=torch.float16, device=device)
    parts = space.split([rows * width for width in widths])
    return tuple(
        part.view(*leading, pixels, width) for part, width in zip(parts, widths, strict=True)
    )


def add_product(
    block: Float16[Tensor, "p n"],
    values: Float[Tensor, "n d"],
    out: Float[Tensor, "p d"],
    space: Float[Tensor, " _"],
) -> None:
    """Add `block @ values`, converted a few rows at a time in the space given."""
    rows = rows_at_once()
    for some, target in zip(block.split(rows), out.split(rows), strict=True):
        converted = space[: some.numel()].view(some.shape).copy_(some)
        target.addmm_(converted, values)
