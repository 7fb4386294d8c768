"""Upsampling of the flow from the 1/8 grid to full size.

Legend: b batch, h w rows and columns at 1/8, H W = 8 h, 8 w.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.runtime.device import has_kernels

STRIDE = 8
"""Image pixels in one cell of the low resolution grid, along each axis."""

SHARPNESS = 0.25
"""Balances gradients, according to RAFT's authors; the published weights depend on it."""


def pixel_grid(like: Float[Tensor, "b _ h w"]) -> Float[Tensor, "1 2 h w"]:
    """Return the x and y coordinate of every pixel."""
    height, width = like.shape[-2:]
    y = torch.arange(height, device=like.device, dtype=torch.float32)
    x = torch.arange(width, device=like.device, dtype=torch.float32)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"))[None]


def convex_upsample(
    flow: Float[Tensor, "b 2 h w"], logits: Float[Tensor, "b 576 h w"]
) -> Float[Tensor, "b 2 H W"]:
    """Make every fine pixel a convex combination of its cell's 3x3 coarse neighbours.

    The channels of `logits` are (neighbour, fine row, fine column). They are multiplied by
    `SHARPNESS` before the softmax over the nine neighbours.
    """
    batch, _, height, width = flow.shape
    logits = SHARPNESS * logits.float()
    weights = logits.view(batch, 1, 9, STRIDE, STRIDE, height, width).softmax(dim=2)
    neighbours = F.unfold(STRIDE * flow, kernel_size=3, padding=1)
    neighbours = neighbours.view(batch, 2, 9, 1, 1, height, width)
    fine = (weights * neighbours).sum(dim=2)  # [b, 2, fine row, fine column, h, w]
    return fine.permute(0, 1, 4, 2, 5, 3).reshape(batch, 2, STRIDE * height, STRIDE * width)


class ConvexUpsampler(nn.Module):
    """Upsamples with weights that are predicted from the recurrent state."""

    def __init__(self, *, hidden_channels: int) -> None:
        super().__init__()
        self.weights = nn.Sequential(
            nn.Conv2d(hidden_channels, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 9 * STRIDE**2, 1),
        )

    def forward(
        self, flow: Float[Tensor, "b 2 h w"], hidden: Float[Tensor, "b c h w"]
    ) -> Float[Tensor, "b 2 H W"]:
        """Return the flow at full size, in full-size pixels."""
        logits = self.weights(hidden)
        if has_kernels(logits.device):
            from gmaflow.model.upsample_kernels import fused_upsample

            return fused_upsample(flow, logits)
        return convex_upsample(flow, logits)


class BilinearUpsampler(nn.Module):
    """Upsamples bilinearly (RAFT-small)."""

    def forward(
        self, flow: Float[Tensor, "b 2 h w"], hidden: Float[Tensor, "b c h w"]
    ) -> Float[Tensor, "b 2 H W"]:
        """Return the flow at full size, in full-size pixels; the state is not used."""
        return STRIDE * F.interpolate(
            flow, scale_factor=STRIDE, mode="bilinear", align_corners=True
        )
