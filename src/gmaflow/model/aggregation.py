"""Global motion aggregation, the paper's contribution: borrow the motion of pixels that look alike.

`Attention` compares the pixels of frame 1 with each other, once for a pair. `Aggregator` uses it in
every iteration to propagate motion from pixels that could be matched to pixels that could not.

Legend: b batch, c channels, h w rows and columns at 1/8, p = h * w pixels, a heads, d channels of a
head, q some of the pixels (as queries).
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gmaflow.model.config import POSITIONAL, AttentionKind
from gmaflow.model.gathered_gradients import SharedFactor
from gmaflow.model.mixed_product import mixed_product

MAX_OFFSET = 160
"""Position tables cover offsets of up to this many cells of the 1/8 grid, as published. Larger
offsets use the last entry."""

STREAM_BYTES = {"cpu": 16 * 2**20, "other": 256 * 2**20}
"""Largest block of the attention matrix that streaming computes at once. A CPU is fastest if the
block fits in its caches (16 MiB take 0.6 of the time of 256), a GPU if the block keeps it busy."""

FLOAT8_MIN_CELLS = 2**14
"""From this many pixels on, the fast back end stores attention in float8 if the GPU supports it.
For smaller matrices, converting the values takes as long as float8 saves."""


@runtime_checkable
class AttentionWeights(Protocol):
    """The attention among the pixels of a frame: its rows, and its product with values."""

    def rows(self, queries: Int64[Tensor, " q"]) -> Float[Tensor, "b a q p"]:
        """Return how much each query (flat pixel index) attends to every pixel; sums to 1."""
        ...

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        """Return for each pixel the mean of all values, weighted by attention."""
        ...


class StoredAttention:
    """The whole attention matrix, computed once: fastest, and as large as (h * w)^2."""

    def __init__(self, weights: Float[Tensor, "b a p p"]) -> None:
        self.weights = weights
        self._factor = SharedFactor(weights) if weights.requires_grad else None

    def rows(self, queries: Int64[Tensor, " q"]) -> Float[Tensor, "b a q p"]:
        return self.weights[:, :, queries]

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        if self._factor is not None and values.dtype == self.weights.dtype:
            return self._factor.times(values)
        return average(self.weights, values)


def average(
    weights: Float[Tensor, "b a q p"], values: Float[Tensor, "b a p d"]
) -> Float[Tensor, "b a q d"]:
    """Return the weighted means of `values`, in their dtype."""
    return weights @ values if weights.dtype == values.dtype else mixed_product(weights, values)


@dataclass(frozen=True)
class DistanceBias:
    """Less attention to pixels that are further away."""

    decay: Float[Tensor, " 1"]
    """How much a score falls for each cell of distance."""
    height: int
    width: int

    def rows(self, queries: Int64[Tensor, " q"]) -> Float[Tensor, "q p"]:
        """Return the bias of each query (flat pixel index) for every pixel."""
        sides = (torch.arange(n, device=queries.device).float() for n in (self.height, self.width))
        y, x = (part.flatten() for part in torch.meshgrid(*sides, indexing="ij"))
        # In place: these are as large as the attention itself.
        squared = (y[queries][:, None] - y).square_()
        squared += (x[queries][:, None] - x).square_()
        return -self.decay * squared.sqrt_()


@dataclass(frozen=True)
class StreamedAttention:
    """Queries and keys only; the matrix is computed a few rows at a time when it is needed."""

    queries: Float[Tensor, "b a p e"]
    keys: Float[Tensor, "b a p e"]
    bias: DistanceBias | None = None
    """Added to the scores."""

    def rows(self, queries: Int64[Tensor, " q"]) -> Float[Tensor, "b a q p"]:
        return self._weights(self.queries[:, :, queries], queries)

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        batch, heads, pixels, _ = self.keys.shape
        size = self.keys.element_size() if self.bias is None else 4
        bytes_per_row = batch * heads * pixels * size
        limit = STREAM_BYTES["cpu" if values.device.type == "cpu" else "other"]
        chunk = max(1, limit // bytes_per_row)
        all_pixels = torch.arange(pixels, device=values.device)
        chunks = zip(self.queries.split(chunk, dim=2), all_pixels.split(chunk), strict=True)
        return torch.cat([average(self._weights(*part), values) for part in chunks], dim=2)

    def _weights(
        self, queries: Float[Tensor, "b a q e"], positions: Int64[Tensor, " q"]
    ) -> Float[Tensor, "b a q p"]:
        scores = queries @ self.keys.transpose(2, 3)
        if self.bias is not None:
            scores = scores.float() + self.bias.rows(positions)
        return scores.softmax(dim=-1).to(queries.dtype)


class Attention(nn.Module):
    """Compares the pixels of frame 1 by appearance, by offset, or both."""

    def __init__(
        self,
        *,
        kind: AttentionKind,
        context_channels: int,
        num_heads: int,
        head_channels: int = 128,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.num_heads = num_heads
        self.scale = head_channels**-0.5
        self.to_query_key = nn.Conv2d(
            context_channels, 2 * num_heads * head_channels, 1, bias=False
        )
        # The tables exist even if only appearance is compared, as in the published networks.
        self.row_offsets = nn.Embedding(2 * MAX_OFFSET - 1, head_channels)
        self.column_offsets = nn.Embedding(2 * MAX_OFFSET - 1, head_channels)

    def forward(self, context: Float[Tensor, "b c h w"], *, store: bool = True) -> AttentionWeights:
        """Return the attention among the pixels of `context`."""
        queries, keys = self.queries_and_keys(context)
        streamed = StreamedAttention(queries, keys)
        if not store:
            return streamed
        all_pixels = torch.arange(queries.shape[2], device=context.device)
        return StoredAttention(streamed.rows(all_pixels))

    def queries_and_keys(
        self, context: Float[Tensor, "b c h w"]
    ) -> tuple[Float[Tensor, "b a p e"], Float[Tensor, "b a p e"]]:
        """Return queries and keys; attention is the softmax of their dot products."""
        queries, keys = self.to_query_key(context).chunk(2, dim=1)
        queries, keys = self._split_heads(queries) * self.scale, self._split_heads(keys)
        if self.kind in POSITIONAL:
            queries, keys = self._with_position(queries, keys, *context.shape[-2:])
        return queries, keys

    def _split_heads(self, x: Float[Tensor, "b ad h w"]) -> Float[Tensor, "b a p d"]:
        return x.flatten(2).unflatten(1, (self.num_heads, -1)).transpose(2, 3)

    def _with_position(
        self,
        queries: Float[Tensor, "b a p d"],
        keys: Float[Tensor, "b a p d"],
        height: int,
        width: int,
    ) -> tuple[Float[Tensor, "b a p e"], Float[Tensor, "b a p e"]]:
        """Extend queries and keys so that their dot product includes the position score.

        That score is query . (row table[key row - query row] + column table[key column - query
        column]): for a given query it depends only on the key's row and column. So the query gets
        one more channel for each row and each column; the key has a 1 in those of its own row and
        column.
        """
        grid = queries.unflatten(2, (height, width))
        by_row = torch.einsum("baijd,ikd->baijk", grid, offset_table(self.row_offsets, height))
        by_column = torch.einsum("baijd,jkd->baijk", grid, offset_table(self.column_offsets, width))
        position_queries = torch.cat([by_row, by_column], dim=-1).flatten(2, 3).to(queries.dtype)

        rows = torch.eye(height, dtype=keys.dtype, device=keys.device)[:, None]
        columns = torch.eye(width, dtype=keys.dtype, device=keys.device)[None]
        one_hot = [rows.expand(-1, width, -1), columns.expand(height, -1, -1)]
        position_keys = torch.cat(one_hot, dim=-1).flatten(0, 1).expand(*keys.shape[:2], -1, -1)

        if self.kind == "position":
            return position_queries, position_keys
        return torch.cat([queries, position_queries], -1), torch.cat([keys, position_keys], -1)


def offset_table(table: nn.Embedding, length: int) -> Float[Tensor, "n n d"]:
    """Return the table's entry for each pair (query, key) of positions along one axis.

    The published code fails if an offset exceeds the table (from 1288 px on); here the last entry
    is used.
    """
    position = torch.arange(length, device=table.weight.device)
    offset = position[None, :] - position[:, None]
    return table(offset.clamp(1 - MAX_OFFSET, MAX_OFFSET - 1) + MAX_OFFSET - 1)


class Aggregator(nn.Module):
    """Propagates motion by attention, from matched pixels to pixels that look alike."""

    def __init__(
        self,
        *,
        motion_channels: int,
        num_heads: int,
        learned_alpha: bool,
        residual: bool,
        head_channels: int = 128,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.residual = residual
        self.to_value = nn.Conv2d(motion_channels, num_heads * head_channels, 1, bias=False)
        self.project: nn.Module = nn.Identity()
        if num_heads > 1 or head_channels != motion_channels:
            self.project = nn.Conv2d(num_heads * head_channels, motion_channels, 1, bias=False)
        # Starting at 0, a GMA network starts out as RAFT.
        self.alpha = nn.Parameter(torch.zeros(1)) if learned_alpha else None

    def values(self, motion: Float[Tensor, "b c h w"]) -> Float[Tensor, "b a p d"]:
        """Return the values of each pixel, which attention averages."""
        return self.to_value(motion).flatten(2).unflatten(1, (self.num_heads, -1)).transpose(2, 3)

    def forward(
        self, motion: Float[Tensor, "b c h w"], aggregated: Float[Tensor, "b a p d"]
    ) -> Float[Tensor, "b c h w"]:
        """Return the global motion features.

        `aggregated` holds the `values`, averaged by attention.
        """
        channels = aggregated.transpose(2, 3).flatten(1, 2)
        projected: Tensor = self.project(channels.unflatten(2, motion.shape[-2:]))
        if self.alpha is not None:
            projected = self.alpha * projected
        return motion + projected if self.residual else projected


def aggregate_values(
    attention: AttentionWeights | None, values: Float[Tensor, "b a p d"] | None
) -> Float[Tensor, "b a p d"] | None:
    """Return the values averaged by attention, or None if the network does not aggregate."""
    return None if attention is None or values is None else attention.aggregate(values)
