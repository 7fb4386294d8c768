"""Steps that do not use torch's own functions: exact sums, attention and the lookup on a CPU."""

import pytest
import torch

from gmaflow.inference.fast import operations
from gmaflow.inference.fast.operations import (
    EPSILON,
    SUMMED_ROWS,
    CachedLookup,
    MixedOperations,
    Operations,
    channel_statistics,
    fast_tanh_,
    normalize,
)
from gmaflow.model.correlation import correlate


def features(rows: int) -> torch.Tensor:
    """Channels as they come out of a ReLU: far from 0 on average, so that sums grow large."""
    torch.manual_seed(0)
    return (torch.randn(rows, 6) * torch.linspace(0.1, 3, 6) + 2).relu()


def test_statistics_of_many_rows_lose_no_digits() -> None:
    rows = features(100 * SUMMED_ROWS + 17)
    exact = rows.double()
    mean, variance = channel_statistics(rows)
    torch.testing.assert_close(mean.double(), exact.mean(dim=0), rtol=2e-6, atol=0)
    torch.testing.assert_close(
        variance.double(), exact.var(dim=0, correction=0), rtol=2e-6, atol=1e-9
    )


def test_rows_are_normalized_as_by_instance_norm() -> None:
    rows = features(3 * SUMMED_ROWS + 5)
    expected = torch.nn.functional.instance_norm(rows.T[None].double(), eps=EPSILON)[0].T
    normalize(rows)
    torch.testing.assert_close(rows.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("steps", "dtype", "tolerance"),
    [(Operations(), torch.float32, 1e-6), (MixedOperations(), torch.bfloat16, 4e-3)],
    ids=["float32", "bfloat16"],
)
def test_stored_attention_is_a_softmax_of_products(
    steps: Operations, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    queries, keys = torch.randn(2, 2, 3, 30, 8)
    expected = (queries.double() @ keys.double().mT).softmax(dim=-1)
    monkeypatch.setitem(operations.SOFTMAX_BYTES, "cpu", 30 * 4 * 7)  # seven rows at once
    attention = steps.attend(queries, keys, store=True)
    rows = torch.tensor([29, 0, 6, 7, 13])
    actual = attention.rows(rows)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.double(), expected[:, :, rows], rtol=0, atol=tolerance)
    values = torch.randn(2, 30, 3, 5).transpose(1, 2).to(dtype)
    means = attention.aggregate(values).double()
    torch.testing.assert_close(means, expected @ values.double(), rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("largest", [0.1, 1.0, 30.0])
def test_fast_tanh_is_tanh(largest: float) -> None:
    x = torch.linspace(-largest, largest, 1001)
    expected = x.double().tanh()
    fast_tanh_(x)
    torch.testing.assert_close(x.double(), expected, rtol=0, atol=2e-7)


@pytest.mark.parametrize(("height", "width"), [(2, 2), (2, 17), (12, 9)])
@pytest.mark.parametrize("radius", [3, 4])
def test_the_cached_lookup_gives_the_networks_correlations(
    height: int, width: int, radius: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "LOOKUP_PIXELS", 10)
    torch.manual_seed(height)
    first, second = torch.randn(2, 2, height, width, 6)
    coords = 4 + 8 * torch.randn(2, 2, height, width)
    coords[0, 0, 0, 0], coords[1, 1, 0, 1] = 1e9, -1e9
    options = {"num_levels": 4, "radius": radius}
    actual = CachedLookup(first, second, **options)(coords)
    channels_first = (features.permute(0, 3, 1, 2) for features in (first, second))
    plain = correlate(*channels_first, **options, store=True)  # type: ignore[arg-type]
    torch.testing.assert_close(actual, plain.lookup(coords).permute(0, 2, 3, 1))


def test_lookups_at_nan_give_nan() -> None:
    """Weights that give nonsense are found out by the flow, not by a crash."""
    first, second = torch.randn(2, 1, 4, 5, 6)
    coords = torch.full((1, 2, 4, 5), float("nan"))
    assert CachedLookup(first, second, num_levels=2, radius=4)(coords).isnan().all()
