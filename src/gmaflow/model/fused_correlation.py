"""The correlation on a GPU: the same numbers as `StoredCorrelation`, by Triton kernels.

In half precision the volume is stored in half precision too (its products are summed in float32).

In a backward pass each of twelve lookups would make a gradient as large as the volume, nearly all
of it zero. Here all of them add to one, in place; see `gathered_gradients`.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from gmaflow.model.correlation import Window
from gmaflow.model.gathered_gradients import PerBackwardPass


class _Volume(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        rows1: Tensor,
        rows2: Tensor,
        gathered: PerBackwardPass[Tensor],
    ) -> Tensor:
        ctx.save_for_backward(rows1, rows2)
        ctx.gathered = gathered
        return rows1.new_zeros((), dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: ANN401
        rows1, rows2 = ctx.saved_tensors
        gradient = ctx.gathered.take()
        if gradient is None:
            return None, None, None
        # bfloat16, not float16: gradients span more orders of magnitude than float16 holds.
        dtype = torch.float32 if rows1.dtype == torch.float32 else torch.bfloat16
        gradient, first, second = gradient.to(dtype), rows1.to(dtype), rows2.to(dtype)
        for_first, for_second = gradient @ second, gradient.transpose(1, 2) @ first
        return for_first.to(rows1.dtype), for_second.to(rows2.dtype), None


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        token: Tensor,
        coords: Tensor,
        volume: Tensor,
        gathered: PerBackwardPass[Tensor],
        window: Window,
    ) -> Tensor:
        from gmaflow.model.lookup_kernels import lookup

        ctx.save_for_backward(coords)
        ctx.gathered, ctx.window = gathered, window
        return lookup(volume, coords, radius=window.radius, num_levels=window.num_levels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        from gmaflow.model.lookup_kernels import add_lookup_gradient

        (coords,) = ctx.saved_tensors
        add_lookup_gradient(
            gradient,
            coords,
            ctx.gathered.current(),
            radius=ctx.window.radius,
            num_levels=ctx.window.num_levels,
        )
        return gradient.new_zeros((), dtype=torch.float32), None, None, None, None


@dataclass(frozen=True)
class FusedCorrelation:
    """All correlations, computed once, and looked up by one kernel."""

    volume: Float[Tensor, "b n m"] = field(repr=False)
    """Outside of autograd's graph, which does not need it: it is free after the last lookup."""
    window: Window
    token: Float[Tensor, ""]
    gathered: PerBackwardPass[Tensor]
    """The volume's gradient in float32."""

    @classmethod
    def build(
        cls, rows1: Float[Tensor, "b n c"], rows2: Float[Tensor, "b m c"], window: Window
    ) -> "FusedCorrelation":
        """Take all dot products, in the type of the rows."""
        volume = rows1.detach() @ rows2.detach().transpose(1, 2)
        gathered = PerBackwardPass(
            partial(torch.zeros, volume.shape, dtype=torch.float32, device=volume.device)
        )
        token: Tensor = _Volume.apply(rows1, rows2, gathered)  # type: ignore[no-untyped-call]
        return cls(volume, window, token, gathered)

    def lookup(self, coords: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b lkk h w"]:
        """Return the correlations in a window around `coords` (x, y) on every level."""
        windows: Tensor = _Lookup.apply(  # type: ignore[no-untyped-call]
            self.token, coords, self.volume, self.gathered, self.window
        )
        return windows.permute(0, 3, 1, 2)
