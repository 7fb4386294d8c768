"""The kernels against the plain lookup: on a GPU if there is one, else in Triton's interpreter."""

import pytest
import torch
from torch import Tensor

from gmaflow.model.correlation import (
    Correlation,
    StoredCorrelation,
    Window,
    correlate,
    pyramid_rows,
)
from gmaflow.runtime.kernels import has_kernels
from tests.model.kernels import DEVICE, load_kernels

pytest.importorskip("triton")

# The interpreter takes many milliseconds for each pixel.
SIZES = [(46, 62), (9, 11), (2, 3)] if DEVICE.type == "cuda" else [(3, 5), (2, 2)]


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    load_kernels("lookup_kernels", monkeypatch)


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
    from gmaflow.model.fused_correlation import FusedCorrelation

    rows1 = first.flatten(2).transpose(1, 2)
    rows2 = pyramid_rows(second, num_levels=levels)
    window = Window(radius, levels)
    plain = StoredCorrelation(rows1.float() @ rows2.float().transpose(1, 2), window)
    return FusedCorrelation.build(rows1, rows2, window), plain


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_the_kernel_looks_up_the_same(height: int, width: int) -> None:
    first, second, coords = make(height, width)
    fused, plain = both_ways(first, second, radius=4, levels=3)
    torch.testing.assert_close(fused.lookup(coords), plain.lookup(coords), atol=1e-4, rtol=1e-4)


def test_far_outside_there_is_nothing() -> None:
    first, second, coords = make(2, 2)
    fused, _ = both_ways(first, second, radius=3, levels=1)
    assert fused.lookup(coords + 1e9).eq(0).all()
    assert fused.lookup(coords - 1e9).eq(0).all()


def test_gradients_of_several_lookups_add_up() -> None:
    gradients = []
    for way in (0, 1):
        first, second, coords = make(*SIZES[0])
        first, second = first.requires_grad_(), second.requires_grad_()
        found = both_ways(first, second, radius=2, levels=2)[way]
        once, again = found.lookup(coords), found.lookup(coords + 1.3)
        (once.square().sum() + (3 * again).sin().sum()).backward()
        gradients.append((first.grad, second.grad))
    for fused, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(fused, plain, atol=1e-4, rtol=1e-4)


def test_half_precision_is_close() -> None:
    first, second, coords = make(*SIZES[-1], torch.float16)
    fused, plain = both_ways(first, second, radius=4, levels=2)
    found = fused.lookup(coords)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float(), plain.lookup(coords), atol=0.02, rtol=0.01)


def test_the_plain_way_is_taken_without_a_gpu() -> None:
    assert not has_kernels(torch.device("cpu"))
    first, second, _ = (part.cpu() for part in make(8, 9))
    found = correlate(first, second, num_levels=4, radius=4, store=True)
    assert isinstance(found, StoredCorrelation)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")
def test_the_kernels_are_taken_on_a_gpu() -> None:
    from gmaflow.model.fused_correlation import FusedCorrelation

    first, second, _ = make(8, 9)
    found = correlate(first, second, num_levels=4, radius=4, store=True)
    assert isinstance(found, FusedCorrelation)
