"""Products of one matrix with many, whose gradient is taken at once.

Every iteration multiplies the same attention matrix with other values. By the book, backward makes
a gradient as large as the matrix for each of them and adds those up. Here the two sides of the
products are laid side by side, and one product gives the sum: `token`, a scalar, stands for the
matrix in autograd's graph, so that autograd asks for the matrix's gradient after all the others.

Legend: b any leading axes, p rows and columns of the matrix, d columns of the values.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass
class Gathered:
    """What the products' backward passes have seen."""

    values: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)


class _Matrix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, gathered: Gathered) -> Tensor:  # noqa: ANN401
        ctx.gathered = gathered
        return matrix.new_zeros((), dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, None]:  # noqa: ANN401
        values, gradients = ctx.gathered.values, ctx.gathered.gradients
        if not values:
            return None, None
        summed = torch.cat(gradients, dim=-1) @ torch.cat(values, dim=-1).mT
        values.clear()
        gradients.clear()
        return summed, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        token: Tensor,
        values: Tensor,
        matrix: Tensor,
        gathered: Gathered,
    ) -> Tensor:
        ctx.save_for_backward(values, matrix)
        ctx.gathered = gathered
        return matrix @ values

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: Tensor,
    ) -> tuple[Tensor, Tensor, None, None]:
        values, matrix = ctx.saved_tensors
        ctx.gathered.values.append(values)
        ctx.gathered.gradients.append(gradient)
        return gradient.new_zeros((), dtype=torch.float32), matrix.mT @ gradient, None, None


class SharedFactor:
    """A matrix that is multiplied with many others."""

    def __init__(self, matrix: Float[Tensor, "*b p p"]) -> None:
        self.matrix = matrix
        self._gathered = Gathered()
        self._token: Tensor = _Matrix.apply(matrix, self._gathered)  # type: ignore[no-untyped-call]

    def times(self, values: Float[Tensor, "*b p d"]) -> Float[Tensor, "*b p d"]:
        """Return the product with some values."""
        product: Tensor = _Product.apply(  # type: ignore[no-untyped-call]
            self._token, values, self.matrix.detach(), self._gathered
        )
        return product
