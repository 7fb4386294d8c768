"""The kernels against the plain lookup: on a GPU if there is one, else in Triton's interpreter."""

import weakref

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gmaflow.model.correlation import (
    Correlation,
    StoredCorrelation,
    Window,
    correlate,
    pyramid_rows,
)
from gmaflow.runtime.device import has_kernels
from tests.model.backward_passes import (
    SCENARIOS,
    Graph,
    Scenario,
    two_passes_over_a_retained_graph,
)
from tests.model.kernels import DEVICE, load_kernels

pytest.importorskip("triton")

# The interpreter takes many milliseconds for each pixel.
SIZES = [(46, 62), (9, 11), (2, 3)] if DEVICE.type == "cuda" else [(3, 5), (2, 2)]


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    load_kernels("correlation_kernels", monkeypatch)


def make(
    height: int, width: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(height)
    first, second = torch.randn(2, 1, 6, height, width, generator=random).to(DEVICE, dtype)
    x = torch.arange(width).expand(height, width)
    y = torch.arange(height)[:, None].expand(height, width)
    noise = 3 * torch.randn(1, 2, height, width, generator=random)
    return first, second, (torch.stack([x, y]) + noise).to(DEVICE)


def both_ways(
    first: Tensor, second: Tensor, *, radius: int, levels: int
) -> tuple[Correlation, Correlation]:
    from gmaflow.model.correlation_kernels import FusedCorrelation

    rows1 = first.flatten(2).transpose(1, 2)
    rows2 = pyramid_rows(second, num_levels=levels)
    window = Window(radius, levels)
    plain = StoredCorrelation(rows1.float() @ rows2.float().transpose(1, 2), window)
    return FusedCorrelation.build(rows1, rows2, window), plain


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_the_kernel_equals_the_plain_lookup(height: int, width: int) -> None:
    first, second, coords = make(height, width)
    fused, plain = both_ways(first, second, radius=4, levels=3)
    torch.testing.assert_close(fused.lookup(coords), plain.lookup(coords), atol=1e-4, rtol=1e-4)


def test_lookups_far_outside_are_zero() -> None:
    first, second, coords = make(2, 2)
    fused, _ = both_ways(first, second, radius=3, levels=1)
    assert fused.lookup(coords + 1e9).eq(0).all()
    assert fused.lookup(coords - 1e9).eq(0).all()


def build(seed: int, *, fused: bool, checkpointed: bool = False) -> Graph:
    size = SIZES[0] if DEVICE.type == "cuda" else (2, 2)
    random = torch.Generator().manual_seed(seed)
    first, second = (
        torch.randn(2, 3, *size, generator=random).to(DEVICE).requires_grad_() for _ in range(2)
    )
    coords = 2 * torch.rand(2, 2, *size, generator=random).to(DEVICE)
    actual, plain = both_ways(first, second, radius=1, levels=2)
    look_up = (actual if fused else plain).lookup
    guesses = [coords, coords + 1.3]
    if checkpointed:
        steps = [checkpoint(look_up, guess, use_reentrant=False) for guess in guesses]
    else:
        steps = [look_up(guess) for guess in guesses]
    return Graph([first, second], steps)


@pytest.mark.parametrize(
    ("scenario", "checkpointed"),
    [*((scenario, False) for scenario in SCENARIOS), (two_passes_over_a_retained_graph, True)],
)
def test_gradients_are_those_of_plain_lookups(scenario: Scenario, checkpointed: bool) -> None:
    expected = scenario(lambda seed: build(seed, fused=False))
    actual = scenario(lambda seed: build(seed, fused=True, checkpointed=checkpointed))
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def test_the_volume_is_freed_after_the_last_lookup() -> None:
    first, second, coords = make(2, 3)
    fused, _ = both_ways(first.requires_grad_(), second, radius=1, levels=1)
    volume = weakref.ref(getattr(fused, "volume"))  # noqa: B009  both ways are a Correlation
    correlations = fused.lookup(coords)
    del fused
    assert volume() is None
    correlations.sum().backward()
    assert first.grad is not None


def test_half_precision_is_close() -> None:
    first, second, coords = make(*SIZES[-1], torch.float16)
    fused, plain = both_ways(first, second, radius=4, levels=2)
    actual = fused.lookup(coords)
    assert actual.dtype == torch.float16
    torch.testing.assert_close(actual.float(), plain.lookup(coords), atol=0.02, rtol=0.01)


def test_the_plain_lookup_is_used_without_a_gpu() -> None:
    assert not has_kernels(torch.device("cpu"))
    first, second, _ = (part.cpu() for part in make(8, 9))
    found = correlate(first, second, num_levels=4, radius=4, store=True)
    assert isinstance(found, StoredCorrelation)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")
def test_the_kernels_are_used_on_a_gpu() -> None:
    from gmaflow.model.correlation_kernels import FusedCorrelation

    first, second, _ = make(8, 9)
    found = correlate(first, second, num_levels=4, radius=4, store=True)
    assert isinstance(found, FusedCorrelation)
