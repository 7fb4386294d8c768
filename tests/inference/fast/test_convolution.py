"""Winograd's algorithm convolves."""

from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F

from gmaflow.inference.fast.convolution import (
    Narrow,
    Winograd,
    polynomial,
    transforms,
    winograd_is_faster,
)


@pytest.mark.parametrize("taps", [1, 3, 5])
def test_the_transforms_convolve_exactly(taps: int) -> None:
    actual = transforms(taps)
    values = torch.randn(len(actual.input), dtype=torch.float64)
    kernel = torch.randn(taps, dtype=torch.float64)
    outputs = actual.out @ ((actual.kernel @ kernel) * (actual.input @ values))
    expected = F.conv1d(values[None, None], kernel[None, None])[0, 0]
    torch.testing.assert_close(outputs, expected)


def test_a_polynomial_is_zero_at_its_roots() -> None:
    roots = [Fraction(1), Fraction(-2), Fraction(1, 3)]
    coefficients = polynomial(roots)
    assert len(coefficients) == 4
    for root in roots:
        assert sum(c * root**power for power, c in enumerate(coefficients)) == 0


@pytest.mark.parametrize("kernel", [(3, 3), (1, 5), (5, 1)])
@pytest.mark.parametrize(("height", "width"), [(2, 2), (7, 70), (9, 4)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_it_is_a_convolution(
    kernel: tuple[int, int], height: int, width: int, with_bias: bool
) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, height, width, 24), torch.randn(40, 24, *kernel) / 10
    bias = torch.randn(40) if with_bias else None
    padding = (kernel[0] // 2, kernel[1] // 2)
    expected = F.conv2d(x.permute(0, 3, 1, 2), weight, bias, padding=padding)
    convolve = Winograd(weight)
    for _ in range(2):
        actual = convolve(x, bias, relu=with_bias)
        assert actual.is_contiguous()
        expected_relu = expected.relu() if with_bias else expected
        torch.testing.assert_close(actual, expected_relu.permute(0, 2, 3, 1), atol=1e-4, rtol=1e-4)
        convolve.products.packed.clear()  # as on a CPU without oneDNN


@pytest.mark.parametrize("relu", [True, False])
def test_a_narrow_convolution_is_a_convolution(relu: bool) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 7, 9, 24), torch.randn(2, 24, 3, 5) / 10, torch.randn(2)
    expected = F.conv2d(x.permute(0, 3, 1, 2), weight, bias, padding=(1, 2)).permute(0, 2, 3, 1)
    actual = Narrow(weight)(x, bias, relu=relu)
    torch.testing.assert_close(actual, expected.relu() if relu else expected, atol=1e-5, rtol=1e-5)


def test_winograd_is_used_where_it_is_faster() -> None:
    wide, narrow = torch.zeros(256, 384, 1, 5), torch.zeros(64, 64, 3, 3)
    assert winograd_is_faster(wide, (1, 1))
    assert not winograd_is_faster(wide, (2, 2))
    assert not winograd_is_faster(narrow, (1, 1))
    assert not winograd_is_faster(torch.zeros(256, 384, 7, 7), (1, 1))
