"""The correlation on a GPU: the same numbers as `StoredCorrelation`, by Triton kernels.

In half precision the volume is stored in half precision too (its products are summed in float32).

Backward, twelve lookups of one volume would each make a gradient as large as the volume, nearly all
of it zero, and autograd would add them up. Here all of them add to one, in place: a lookup hangs on
`token`, a scalar that stands for the volume in autograd's graph, so that autograd calls the
volume's own backward pass after theirs.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from gmaflow.model.correlation import Window


@dataclass
class Held:
    """The volume, and the gradient that the lookups' backward passes gather."""

    volume: Tensor | None = None
    gradient: Tensor | None = None


class _Volume(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows1: Tensor, rows2: Tensor, held: Held) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(rows1, rows2)
        ctx.held = held
        held.volume = rows1 @ rows2.transpose(1, 2)
        return rows1.new_zeros((), dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: ANN401
        rows1, rows2 = ctx.saved_tensors
        gathered, ctx.held.gradient, ctx.held.volume = ctx.held.gradient, None, None
        if gathered is None:
            return None, None, None
        # bfloat16, not float16: gradients span more orders of magnitude than float16 holds.
        dtype = torch.float32 if rows1.dtype == torch.float32 else torch.bfloat16
        gathered, first, second = gathered.to(dtype), rows1.to(dtype), rows2.to(dtype)
        for_first, for_second = gathered @ second, gathered.transpose(1, 2) @ first
        return for_first.to(rows1.dtype), for_second.to(rows2.dtype), None


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, coords: Tensor, held: Held, window: Window) -> Tensor:  # noqa: ANN401
        from gmaflow.model.lookup_kernels import lookup

        assert held.volume is not None
        ctx.save_for_backward(coords)
        ctx.held, ctx.window = held, window
        return lookup(held.volume, coords, radius=window.radius, num_levels=window.num_levels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        from gmaflow.model.lookup_kernels import add_lookup_gradient

        (coords,) = ctx.saved_tensors
        held, window = ctx.held, ctx.window
        if held.gradient is None:
            held.gradient = torch.zeros_like(held.volume, dtype=torch.float32)
        add_lookup_gradient(
            gradient,
            coords,
            held.gradient,
            radius=window.radius,
            num_levels=window.num_levels,
        )
        return gradient.new_zeros((), dtype=torch.float32), None, None, None


@dataclass(frozen=True)
class FusedCorrelation:
    """All correlations, computed once, and looked up by one kernel."""

    token: Float[Tensor, ""]
    window: Window
    held: Held = field(repr=False)

    @classmethod
    def build(
        cls, rows1: Float[Tensor, "b n c"], rows2: Float[Tensor, "b m c"], window: Window
    ) -> "FusedCorrelation":
        """Take all dot products, in the type of the rows."""
        held = Held()
        return cls(_Volume.apply(rows1, rows2, held), window, held)  # type: ignore[no-untyped-call]

    def lookup(self, coords: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b lkk h w"]:
        """Return the correlations in a window around `coords` (x, y) on every level."""
        windows: Tensor = _Lookup.apply(self.token, coords, self.held, self.window)  # type: ignore[no-untyped-call]
        return windows.permute(0, 3, 1, 2)
