"""Products of a half-precision matrix with float32 values, in float32.

Half precision has too few digits for flow and positions. So the values are split into a high and a
low part in the matrix's type, which add up to them; tensor cores sum in float32 anyway.

Legend: *b any leading axes, q p rows and columns of the matrix, d columns of the values.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor

PARTS = {torch.float16: 2, torch.bfloat16: 3}
"""How many parts of a type hold the digits of a float32."""
MULTIPLE = 8
"""Tensor cores are fast if the number of columns is a multiple of this."""
RETURNS_FLOAT32 = torch.__version__ >= "2.8"
"""Whether torch multiplies half-precision matrices on CUDA with a float32 result."""


def mixed_product(
    matrix: Float[Tensor, "*b q p"], values: Float32[Tensor, "*b p d"]
) -> Float32[Tensor, "*b q d"]:
    """Return `matrix @ values`."""
    if not is_split(matrix):
        return matrix.float() @ values
    parts, rest = [], values
    for _ in range(PARTS[matrix.dtype]):
        parts.append(rest.to(matrix.dtype))
        rest = rest - parts[-1].float()
    found = to_float32(matrix, torch.cat(parts, dim=-1))
    return torch.stack(found.split(values.shape[-1], dim=-1)).sum(dim=0)


def values_gradient(
    matrix: Float[Tensor, "*b q p"], gradient: Float32[Tensor, "*b q d"]
) -> Float32[Tensor, "*b p d"]:
    """Return `matrix.mT @ gradient`; its columns are scaled to fit half precision."""
    if not is_split(matrix):
        return matrix.mT.float() @ gradient
    largest = largest_of_columns(gradient)
    return to_float32(matrix.mT, (gradient / largest).to(matrix.dtype)) * largest


def balanced_factors(
    dtype: torch.dtype, values: Float32[Tensor, "*b p d"], gradient: Float32[Tensor, "*b q d"]
) -> tuple[Float[Tensor, "*b p d"], Float[Tensor, "*b q d"]]:
    """Return both factors of the matrix's gradient in its type, scaled to the same magnitude."""
    of_values, of_gradient = largest_of_columns(values), largest_of_columns(gradient)
    size = (of_values * of_gradient).sqrt()
    return (values * (size / of_values)).to(dtype), (gradient * (size / of_gradient)).to(dtype)


def is_split(matrix: Tensor) -> bool:
    """Tell whether the device multiplies in half precision and returns float32."""
    return RETURNS_FLOAT32 and matrix.is_cuda and matrix.dtype in PARTS


def largest_of_columns(values: Float32[Tensor, "*b p d"]) -> Float32[Tensor, "*b 1 d"]:
    """Return the largest magnitude of each column."""
    return values.abs().amax(dim=-2, keepdim=True).clamp(min=1e-30)


def to_float32(matrix: Float[Tensor, "*b q p"], values: Float[Tensor, "*b p d"]) -> Tensor:
    """Multiply in half precision, and return float32."""
    columns = values.shape[-1]
    values = F.pad(values, (0, -columns % MULTIPLE))
    found = torch.bmm(matrix.flatten(0, -3), values.flatten(0, -3), out_dtype=torch.float32)
    return found.unflatten(0, matrix.shape[:-2])[..., :columns]
