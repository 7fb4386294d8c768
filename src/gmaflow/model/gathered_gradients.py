"""Gradients that many autograd nodes contribute to, and that are computed once.

All iterations multiply the same attention matrix, and look up the same correlation volume. By
default autograd makes a gradient as large as the matrix for each of them and adds them up. Here
the nodes gather their contributions, and one node turns them into the gradient. That node returns
a scalar, the `token`, which every other node takes as an input, so autograd runs it after all of
them.

Legend: b any leading axes, p rows and columns of the matrix, d columns of the values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

Contributions = TypeVar("Contributions")


class PerBackwardPass(Generic[Contributions]):
    """Contributions that autograd nodes gather during one backward pass.

    Every call of `backward()` or `autograd.grad()` has its own contributions, even with a
    retained graph, inside another pass, or in another thread. They are dropped when the pass ends,
    even if the pass did not need the gathered gradient.

    `start` makes the contributions of a new pass.
    """

    def __init__(self, start: Callable[[], Contributions]) -> None:
        self._start = start
        self._by_pass: dict[int, Contributions] = {}

    def current(self) -> Contributions:
        """Return the contributions of the running backward pass, to add to."""
        task_id = torch._C._current_graph_task_id()
        if task_id not in self._by_pass:
            self._by_pass[task_id] = self._start()
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(partial(self._end, task_id))
        return self._by_pass[task_id]

    def take(self) -> Contributions | None:
        """Return the contributions of the running backward pass, if any, and forget them."""
        return self._by_pass.pop(torch._C._current_graph_task_id(), None)

    def _end(self, task_id: int) -> None:
        self._by_pass.pop(task_id, None)


@dataclass
class Factors:
    """Both sides of the products whose sum is the matrix's gradient."""

    values: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)


class _Matrix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, gathered: PerBackwardPass[Factors]) -> Tensor:  # noqa: ANN401
        ctx.gathered = gathered
        return matrix.new_zeros((), dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, None]:  # noqa: ANN401
        factors = ctx.gathered.take()
        if factors is None:
            return None, None
        # One large product in place of many small ones and their sum.
        return torch.cat(factors.gradients, dim=-1) @ torch.cat(factors.values, dim=-1).mT, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        token: Tensor,
        values: Tensor,
        matrix: Tensor,
        gathered: PerBackwardPass[Factors],
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
        factors = ctx.gathered.current()
        factors.values.append(values)
        factors.gradients.append(gradient)
        return gradient.new_zeros((), dtype=torch.float32), matrix.mT @ gradient, None, None


class SharedFactor:
    """A matrix that is multiplied with many others; its gradient is computed once for all."""

    def __init__(self, matrix: Float[Tensor, "*b p p"]) -> None:
        self.matrix = matrix
        self.gathered = PerBackwardPass(Factors)
        self._token: Tensor = _Matrix.apply(matrix, self.gathered)  # type: ignore[no-untyped-call]

    def times(self, values: Float[Tensor, "*b p d"]) -> Float[Tensor, "*b p d"]:
        """Return the product with `values` of the same dtype."""
        product: Tensor = _Product.apply(  # type: ignore[no-untyped-call]
            self._token, values, self.matrix.detach(), self.gathered
        )
        return product
