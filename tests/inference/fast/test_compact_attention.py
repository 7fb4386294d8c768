"""Attention in half the memory against attention as it is written."""

import pytest
import torch

from gmaflow.inference.fast import compact_attention
from gmaflow.inference.fast.compact_attention import CompactAttention


@pytest.mark.parametrize("sharpness", [0.1, 3.0, 100.0])
def test_it_is_attention(sharpness: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_attention, "ROWS", 16)
    monkeypatch.setattr(compact_attention, "COLUMNS", 20)
    torch.manual_seed(0)
    queries, keys = sharpness * torch.randn(2, 2, 3, 50, 8)
    values = torch.randn(2, 3, 50, 4)
    weights = (queries @ keys.mT).softmax(dim=-1)
    found = CompactAttention.of(queries, keys)
    torch.testing.assert_close(found.aggregate(values), weights @ values, atol=2e-3, rtol=0)
    rows = torch.tensor([3, 40])
    torch.testing.assert_close(found.rows(rows), weights[:, :, rows], atol=1e-3, rtol=0)


def test_what_is_borrowed_of_equal_values_is_that_value() -> None:
    """Numerators round, but the weights' sum may not drift from 1 by more than they do."""
    queries, keys = torch.randn(2, 1, 1, 300, 8)
    found = CompactAttention.of(queries, keys).aggregate(torch.full((1, 1, 300, 2), 7.0))
    torch.testing.assert_close(found, torch.full_like(found, 7.0), atol=2e-3, rtol=0)
