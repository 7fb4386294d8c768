"""Attention on a CPU, kept in half the memory: it is the largest thing beside the correlations.

Kept are the numerators of softmax, from 0 to 1, in float16; their sums are divided by after the
product. So a weight is off by at most 1/2048 of itself, in either direction, and the mean of
thousands of values by far less: the flow moves by some 0.0001 px. A product converts a few rows at
a time, which costs a sixth more than to have all of them in float32.

Legend: b batch, a heads, p pixels, d channels of a head, e channels compared, q some pixels.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float16, Int64
from torch import Tensor

ROWS = 128
"""Converted at once."""


@dataclass(frozen=True)
class CompactAttention:
    """The attention matrix of a pair, without its denominators."""

    numerators: Float16[Tensor, "b a p p"]
    denominators: Float[Tensor, "b a p 1"]

    @classmethod
    def of(
        cls, queries: Float[Tensor, "b a p e"], keys: Float[Tensor, "b a p e"]
    ) -> "CompactAttention":
        """Compare scaled queries with keys, without ever having the matrix in float32."""
        *leading, pixels, _ = queries.shape
        numerators = torch.empty(*leading, pixels, pixels, dtype=torch.float16)
        denominators = queries.new_empty(*leading, pixels, 1)
        for first in range(0, pixels, ROWS):
            some = slice(first, first + ROWS)
            scores = queries[..., some, :] @ keys.mT
            scores.sub_(scores.amax(dim=-1, keepdim=True)).exp_()
            torch.sum(scores, dim=-1, keepdim=True, out=denominators[..., some, :])
            numerators[..., some, :] = scores
        return cls(numerators, denominators)

    def rows(self, queries: Int64[Tensor, " q"]) -> Float[Tensor, "b a q p"]:
        """Return how much each query (flat pixel index) attends to every pixel; sums to 1."""
        return self.numerators[:, :, queries].float() / self.denominators[:, :, queries]

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        """Return for each pixel the mean of all values, weighted by attention."""
        batch, heads, pixels, _ = values.shape
        out = torch.empty_like(values, memory_format=torch.contiguous_format)
        converted = values.new_empty(min(ROWS, pixels), pixels)
        for item in range(batch):
            for head in range(heads):
                for first in range(0, pixels, ROWS):
                    some = self.numerators[item, head, first : first + ROWS]
                    part = converted[: len(some)].copy_(some)
                    torch.mm(part, values[item, head], out=out[item, head, first : first + ROWS])
        return out.div_(self.denominators)
