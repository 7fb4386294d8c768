"""The lookup in pieces against the network's own."""

import pytest
import torch

from gmaflow.inference.fast import cached_lookup
from gmaflow.inference.fast.cached_lookup import CachedLookup
from gmaflow.model.correlation import correlate


@pytest.mark.parametrize(("height", "width"), [(2, 2), (2, 17), (12, 9)])
@pytest.mark.parametrize("radius", [3, 4])
def test_it_sees_what_the_network_sees(
    height: int, width: int, radius: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_lookup, "PIXELS", 10)
    torch.manual_seed(height)
    first, second = torch.randn(2, 2, height, width, 6)
    coords = 4 + 8 * torch.randn(2, 2, height, width)
    coords[0, 0, 0, 0], coords[1, 1, 0, 1] = 1e9, -1e9
    options = {"num_levels": 4, "radius": radius}
    found = CachedLookup(first, second, **options)(coords)
    channels_first = (features.permute(0, 3, 1, 2) for features in (first, second))
    plain = correlate(*channels_first, **options, store=True)  # type: ignore[arg-type]
    torch.testing.assert_close(found, plain.lookup(coords).permute(0, 2, 3, 1))


def test_what_is_not_a_number_stays_so() -> None:
    """Weights that give nonsense are found out by the flow, not by a crash."""
    first, second = torch.randn(2, 1, 4, 5, 6)
    coords = torch.full((1, 2, 4, 5), float("nan"))
    assert CachedLookup(first, second, num_levels=2, radius=4)(coords).isnan().all()
