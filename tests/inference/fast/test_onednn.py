"""oneDNN's operators compute what torch's do."""

import time

import pytest
import torch
import torch.nn.functional as F

from gmaflow.inference.fast.convolution import (
    GroupedProducts,
    PackedConvolution,
    PackedProduct,
    has_onednn,
)
from gmaflow.inference.fast.operations import BlockedAttention
from gmaflow.model.aggregation import StoredAttention

needs_operators = pytest.mark.skipif(not has_onednn(), reason="needs oneDNN on x86")


@needs_operators
@pytest.mark.parametrize(("side", "step"), [(3, 1), (7, 2), (1, 1)])
@pytest.mark.parametrize("relu", [True, False])
def test_a_packed_convolution_is_a_convolution(side: int, step: int, relu: bool) -> None:
    kernel, stride = (side, side), (step, step)
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 10, 13, 24), torch.randn(17, 24, *kernel) / 10, torch.randn(17)
    padding = (kernel[0] // 2, kernel[1] // 2)
    expected = F.conv2d(x.permute(0, 3, 1, 2), weight, bias, stride, padding).permute(0, 2, 3, 1)
    actual = PackedConvolution(weight, stride=stride, padding=padding)(x, bias, relu=relu)
    assert actual.is_contiguous()
    torch.testing.assert_close(actual, expected.relu() if relu else expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("outputs", [40, 300])
def test_grouped_products_are_products(outputs: int) -> None:
    torch.manual_seed(0)
    rows, matrices = torch.randn(21, 6, 32), torch.randn(6, 32, outputs)
    expected = torch.einsum("pni,nio->pno", rows, matrices)
    products = GroupedProducts(matrices)
    for _ in range(2):
        actual = torch.cat(list(products(rows)), dim=2)
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-5)
        products.packed.clear()


@needs_operators
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    rows, others = torch.randn(30, 50).to(dtype), torch.randn(50, 8).to(dtype)
    actual = PackedProduct(others.T, rows=len(rows))(rows)
    assert actual.dtype == dtype
    expected = rows.double() @ others.double()
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(actual.double(), expected, atol=tolerance, rtol=tolerance)


@needs_operators
def test_several_heads_take_as_long_as_one_each() -> None:
    torch.manual_seed(0)
    pixels, channels = 400, 64
    weights = torch.randn(1, 2, pixels, pixels).softmax(-1)
    both = torch.randn(1, pixels, 2, channels).transpose(1, 2)  # as a convolution leaves them
    blocks = [list(matrix.split(150)) for matrix in weights[0]]
    one, two = BlockedAttention(blocks[:1], 1), BlockedAttention(blocks, 2)
    found = two.aggregate(both)
    torch.testing.assert_close(found, StoredAttention(weights).aggregate(both))

    def seconds(attention: BlockedAttention, values: torch.Tensor) -> float:
        start = time.process_time()
        for _ in range(5):
            attention.aggregate(values)
        return time.process_time() - start

    first_head = both[:, :1].contiguous()
    one.aggregate(first_head)
    assert seconds(two, both) < 50 * seconds(one, first_head)
