"""The lookup against a plain reading of its definition."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gmaflow.model import correlation
from gmaflow.model.correlation import Correlation, correlate


def by_definition(
    first: Tensor, second: Tensor, coords: Tensor, levels: int, radius: int
) -> Tensor:
    """Pool the whole volume and sample it with grid_sample, as RAFT describes it."""
    batch, channels, height, width = first.shape
    volume = torch.einsum("bchw,bcvu->bhwvu", first, second) / channels**0.5
    volume = volume.reshape(batch * height * width, 1, height, width)
    found = []
    for level in range(levels):
        rows, columns = volume.shape[-2:]
        center = coords.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) / 2**level
        steps = torch.arange(-radius, radius + 1, dtype=torch.float32)
        # x is the slow channel index: the order that the published weights were trained with.
        offset_x, offset_y = torch.meshgrid(steps, steps, indexing="ij")
        points = center + torch.stack([offset_x, offset_y], dim=-1)
        scale = torch.tensor([columns, rows])
        sampled = F.grid_sample(volume, (2 * points + 1) / scale - 1, align_corners=False)
        found.append(sampled.reshape(batch, height, width, -1))
        if level < levels - 1:
            volume = F.avg_pool2d(volume, 2)
    return torch.cat(found, dim=-1).permute(0, 3, 1, 2)


def make(height: int, width: int, *, reach: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    first = torch.randn(2, 8, height, width, generator=random)
    second = torch.randn(2, 8, height, width, generator=random)
    x = torch.arange(width).expand(height, width)
    y = torch.arange(height)[:, None].expand(height, width)
    grid = torch.stack([x, y]).float()
    return first, second, grid + reach * torch.randn(2, 2, height, width, generator=random)


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(("height", "width"), [(16, 24), (17, 25), (9, 31)])
def test_lookup_agrees_with_the_definition(store: bool, height: int, width: int) -> None:
    first, second, coords = make(height, width, reach=6)
    actual = correlate(first, second, num_levels=4, radius=4, store=store).lookup(coords)
    expected = by_definition(first, second, coords, 4, 4)
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def test_streaming_in_small_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, coords = make(10, 12, reach=3)
    whole = correlate(first, second, num_levels=4, radius=3, store=False).lookup(coords)
    monkeypatch.setitem(correlation.STREAM_BYTES, "cpu", 20_000)
    parts = correlate(first, second, num_levels=4, radius=3, store=False).lookup(coords)
    torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize("store", [True, False])
def test_levels_that_shrink_to_nothing_are_zero(store: bool) -> None:
    first, second, coords = make(2, 3, reach=0.3)
    found = correlate(first, second, num_levels=4, radius=4, store=store).lookup(coords)
    levels = found.unflatten(1, (4, 81))
    assert levels[:, :2].abs().sum() > 0
    assert levels[:, 2:].eq(0).all()


@pytest.mark.parametrize("store", [True, False])
def test_lookups_far_outside_are_zero(store: bool) -> None:
    first, second, coords = make(8, 8, reach=0)
    found: Correlation = correlate(first, second, num_levels=4, radius=4, store=store)
    assert found.lookup(coords + 1e6).eq(0).all()
    assert found.lookup(coords - 1e6).eq(0).all()


def test_gradients_agree_with_the_definition() -> None:
    first, second, coords = make(8, 9, reach=2)
    gradients = []
    for source in ("ours", "definition"):
        one, two = first.clone().requires_grad_(), second.clone().requires_grad_()
        if source == "ours":
            actual = correlate(one, two, num_levels=3, radius=2, store=True).lookup(coords)
        else:
            actual = by_definition(one, two, coords, 3, 2)
        actual.square().sum().backward()
        gradients.append((one.grad, two.grad))
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-3, rtol=1e-3)
