"""Convex upsampling on a GPU: the same numbers as `convex_upsample`, by Triton kernels.

The plain way spreads the weights of all fine pixels, 576 for each cell, over several float32
copies; a kernel reads them once.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


class _Upsample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flow: Tensor, logits: Tensor, sharpness: float) -> Tensor:  # noqa: ANN401
        from gmaflow.model.upsample_kernels import upsample

        ctx.save_for_backward(flow, logits)
        ctx.sharpness = sharpness
        return upsample(flow, logits, sharpness=sharpness)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        from gmaflow.model.upsample_kernels import upsample_backward

        flow, logits = ctx.saved_tensors
        found = upsample_backward(flow, logits, gradient.contiguous(), sharpness=ctx.sharpness)
        return *found, None


def fused_upsample(
    flow: Float[Tensor, "b 2 h w"], logits: Float[Tensor, "b 576 h w"], sharpness: float
) -> Float[Tensor, "b 2 H W"]:
    """Make every fine pixel a convex combination of its cell's 3x3 coarse neighbours."""
    channels_last = logits.permute(0, 2, 3, 1).contiguous()
    fine: Tensor = _Upsample.apply(flow.contiguous(), channels_last, sharpness)  # type: ignore[no-untyped-call]
    return fine
