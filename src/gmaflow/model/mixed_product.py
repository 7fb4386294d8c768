"""Products of a half-precision matrix with float32 values, in float32.

Half precision has too few digits for flow and positions. So the values are split into a high and a
low part in the matrix's dtype, which add up to them; tensor cores accumulate in float32 anyway.

Legend: *b any leading axes, q p rows and columns of the matrix, d columns of the values.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor

PARTS = {torch.float16: 2, torch.bfloat16: 3}
"""How many parts of a dtype hold the digits of a float32."""
MULTIPLE = 8
"""Tensor cores are fast if the number of columns is a multiple of this."""


def mixed_product(
    matrix: Float[Tensor, "*b q p"], values: Float32[Tensor, "*b p d"]
) -> Float32[Tensor, "*b q d"]:
    """Return `matrix @ values`."""
    if not can_split(matrix):
        return matrix.float() @ values
    parts, remainder = [], values
    for _ in range(PARTS[matrix.dtype]):
        parts.append(remainder.to(matrix.dtype))
        remainder = remainder - parts[-1].float()
    products = multiply_to_float32(matrix, torch.cat(parts, dim=-1))
    return torch.stack(products.split(values.shape[-1], dim=-1)).sum(dim=0)


def can_split(matrix: Tensor) -> bool:
    """Return whether the device multiplies in half precision and returns float32.

    torch has no gradient for it.
    """
    return matrix.is_cuda and matrix.dtype in PARTS and not torch.is_grad_enabled()


def multiply_to_float32(matrix: Float[Tensor, "*b q p"], values: Float[Tensor, "*b p d"]) -> Tensor:
    """Multiply in half precision, and return float32."""
    columns = values.shape[-1]
    values = F.pad(values, (0, -columns % MULTIPLE))
    product = torch.bmm(matrix.flatten(0, -3), values.flatten(0, -3), out_dtype=torch.float32)
    return product.unflatten(0, matrix.shape[:-2])[..., :columns]
