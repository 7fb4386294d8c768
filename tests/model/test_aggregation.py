"""Attention against a plain reading of the paper's equations."""

import pytest
import torch
from torch import Tensor

from gmaflow.model import aggregation
from gmaflow.model.aggregation import Aggregator, Attention, AttentionWeights, offset_table
from gmaflow.model.config import AttentionKind

KINDS: tuple[AttentionKind, ...] = ("content", "content+position", "position")


def make_attention(kind: AttentionKind, *, heads: int = 1) -> Attention:
    torch.manual_seed(1)
    return Attention(kind=kind, context_channels=6, num_heads=heads, head_channels=5).eval()


def by_definition(attention: Attention, context: Tensor) -> Tensor:
    """One score at a time, as equations 4 to 6 of the paper."""
    batch, _, height, width = context.shape
    heads = attention.num_heads
    both = attention.to_query_key(context).reshape(batch, 2, heads, -1, height, width)
    queries, keys = both[:, 0] * attention.scale, both[:, 1]
    scores = torch.zeros(batch, heads, height, width, height, width)
    for y in range(height):
        for x in range(width):
            for v in range(height):
                for u in range(width):
                    query, key = queries[..., y, x], keys[..., v, u]
                    position = attention.row_offsets.weight[v - y + 159]
                    position = position + attention.column_offsets.weight[u - x + 159]
                    content = key if attention.kind != "position" else torch.zeros_like(key)
                    if attention.kind != "content":
                        content = content + position
                    scores[:, :, y, x, v, u] = (query * content).sum(dim=-1)
    return scores.flatten(4, 5).flatten(2, 3).softmax(dim=-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", [1, 3])
@torch.no_grad()
def test_attention_agrees_with_the_paper(kind: AttentionKind, heads: int) -> None:
    attention = make_attention(kind, heads=heads)
    context = torch.randn(2, 6, 3, 4)
    all_pixels = torch.arange(12)
    expected = by_definition(attention, context)
    for store in (True, False):
        weights = attention(context, store=store).rows(all_pixels)
        torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_rows_sum_to_one_and_streaming_agrees(
    kind: AttentionKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = make_attention(kind, heads=2)
    context, values = torch.randn(1, 6, 5, 7), torch.randn(1, 2, 35, 4)
    stored = attention(context, store=True)
    assert torch.allclose(stored.rows(torch.arange(35)).sum(dim=-1), torch.ones(1))
    monkeypatch.setitem(aggregation.STREAM_BYTES, "cpu", 900)
    streamed = attention(context, store=False)
    torch.testing.assert_close(streamed.aggregate(values), stored.aggregate(values))
    queries = torch.tensor([3, 30])
    torch.testing.assert_close(streamed.rows(queries), stored.rows(queries))


def test_offsets_beyond_the_table_take_its_last_entry() -> None:
    table = torch.nn.Embedding(319, 4)
    entries = offset_table(table, 200)
    assert torch.equal(entries[0, 159], table.weight[318])
    assert torch.equal(entries[0, 199], table.weight[318])
    assert torch.equal(entries[199, 0], table.weight[0])
    assert torch.equal(entries[7, 7], table.weight[159])


def aggregated(aggregate: Aggregator, attention: AttentionWeights, motion: Tensor) -> Tensor:
    features: Tensor = aggregate(motion, attention.aggregate(aggregate.values(motion)))
    return features


@torch.no_grad()
def test_alpha_zero_aggregates_nothing() -> None:
    motion = torch.randn(1, 8, 3, 4)
    attention = make_attention("content")(torch.randn(1, 6, 3, 4))
    plain = Aggregator(
        motion_channels=8, num_heads=1, learned_alpha=True, residual=True, head_channels=8
    )
    torch.testing.assert_close(aggregated(plain, attention, motion), motion)


@torch.no_grad()
def test_without_residual_only_aggregated_motion_is_left() -> None:
    motion = torch.randn(1, 8, 3, 4)
    attention = make_attention("content")(torch.randn(1, 6, 3, 4))
    torch.manual_seed(2)
    with_residual = Aggregator(
        motion_channels=8, num_heads=1, learned_alpha=False, residual=True, head_channels=8
    )
    torch.manual_seed(2)
    without_residual = Aggregator(
        motion_channels=8, num_heads=1, learned_alpha=False, residual=False, head_channels=8
    )
    global_motion = aggregated(without_residual, attention, motion)
    torch.testing.assert_close(aggregated(with_residual, attention, motion), motion + global_motion)


@torch.no_grad()
def test_a_pixel_borrows_from_its_lookalike() -> None:
    """Two regions of different looks: motion spreads within a region, not across."""
    context = torch.zeros(1, 2, 1, 8)
    context[:, 0, :, :4], context[:, 1, :, 4:] = 30, 30
    attention = Attention(kind="content", context_channels=2, num_heads=1, head_channels=2)
    attention.to_query_key.weight.copy_(torch.eye(2).repeat(2, 1)[..., None, None])
    motion = torch.zeros(1, 1, 1, 8)
    motion[..., 0] = 4.0  # the only pixel whose motion could be matched
    values = motion.flatten(2).unflatten(1, (1, 1)).transpose(2, 3)
    averaged = attention(context).aggregate(values).flatten()
    assert torch.allclose(averaged, torch.tensor([1.0] * 4 + [0.0] * 4), atol=1e-4)
