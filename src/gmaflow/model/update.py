"""One refinement: encode the flow and its correlations, predict a change of flow, upsample it.

Legend: b batch, c channels, h w rows and columns at 1/8, H W = 8 h, 8 w.
"""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.runtime.device import has_kernels

STRIDE = 8
"""Image pixels in one cell of the low resolution grid, along each axis."""

SHARPNESS = 0.25
"""Balances gradients, according to RAFT's authors; the published weights depend on it."""


class MotionEncoder(nn.Module):
    """Encodes the current flow together with the correlations around it."""

    def __init__(
        self,
        *,
        correlation_channels: int,
        correlation_widths: Sequence[int],
        flow_widths: tuple[int, int],
        out_channels: int,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        in_channels, kernel = correlation_channels, 1
        for width in correlation_widths:
            layers += [nn.Conv2d(in_channels, width, kernel, padding=kernel // 2), nn.ReLU()]
            in_channels, kernel = width, 3
        self.correlation = nn.Sequential(*layers)
        self.flow = nn.Sequential(
            nn.Conv2d(2, flow_widths[0], 7, padding=3),
            nn.ReLU(),
            nn.Conv2d(flow_widths[0], flow_widths[1], 3, padding=1),
            nn.ReLU(),
        )
        # The flow itself takes the last two of the output's channels.
        merged = nn.Conv2d(in_channels + flow_widths[1], out_channels - 2, 3, padding=1)
        self.merge = nn.Sequential(merged, nn.ReLU())

    def forward(
        self, flow: Float[Tensor, "b 2 h w"], correlation: Float[Tensor, "b lkk h w"]
    ) -> Float[Tensor, "b c h w"]:
        """Return motion features whose last two channels are the flow."""
        both = torch.cat([self.correlation(correlation), self.flow(flow)], dim=1)
        return torch.cat([self.merge(both), flow], dim=1)


class GRUPass(nn.Module):
    """One pass of a convolutional gated recurrent unit.

    The inputs of its convolutions are (state, inputs, context). The context is the same in every
    iteration, and a convolution is a sum over its input channels, so the context's share is a
    separate layer that runs once for a pair. The two gates have the same inputs and are one
    convolution.
    """

    def __init__(
        self,
        *,
        hidden_channels: int,
        context_channels: int,
        input_channels: int,
        kernel: tuple[int, int],
    ) -> None:
        super().__init__()
        padding = (kernel[0] // 2, kernel[1] // 2)
        in_channels = hidden_channels + input_channels
        self.gates = nn.Conv2d(
            in_channels, 2 * hidden_channels, kernel, padding=padding, bias=False
        )
        self.candidate = nn.Conv2d(
            in_channels, hidden_channels, kernel, padding=padding, bias=False
        )
        self.context = nn.Conv2d(context_channels, 3 * hidden_channels, kernel, padding=padding)

        # Initialise as one undivided convolution: torch's default, with the whole fan-in.
        bound = ((in_channels + context_channels) * kernel[0] * kernel[1]) ** -0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self,
        hidden: Float[Tensor, "b c h w"],
        inputs: Float[Tensor, "b d h w"],
        context_terms: Float[Tensor, "b ccc h w"],
    ) -> Float[Tensor, "b c h w"]:
        """Return the new state; `context_terms` is `self.context` of the context."""
        channels = hidden.shape[1]
        for_gates, for_candidate = context_terms.split([2 * channels, channels], dim=1)
        gates = self.gates(torch.cat([hidden, inputs], dim=1)) + for_gates
        update, reset = torch.sigmoid(gates).chunk(2, dim=1)
        candidate = self.candidate(torch.cat([reset * hidden, inputs], dim=1)) + for_candidate
        return torch.lerp(hidden, torch.tanh(candidate), update)


class UpdateBlock(nn.Module):
    """The recurrent unit, and the head that predicts a change of flow from its state."""

    def __init__(
        self,
        *,
        hidden_channels: int,
        context_channels: int,
        input_channels: int,
        kernels: Sequence[tuple[int, int]],
        head_channels: int,
    ) -> None:
        super().__init__()
        self.passes = nn.ModuleList(
            GRUPass(
                hidden_channels=hidden_channels,
                context_channels=context_channels,
                input_channels=input_channels,
                kernel=kernel,
            )
            for kernel in kernels
        )
        self.flow_head = nn.Sequential(
            nn.Conv2d(hidden_channels, head_channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(head_channels, 2, 3, padding=1),
        )

    def prepare_context(self, context: Float[Tensor, "b c h w"]) -> list[Float[Tensor, "b _ h w"]]:
        """Compute the context's share of every convolution, once for all iterations."""
        return [cast(GRUPass, gru).context(context) for gru in self.passes]

    def forward(
        self,
        hidden: Float[Tensor, "b c h w"],
        inputs: Float[Tensor, "b d h w"],
        context_terms: list[Float[Tensor, "b _ h w"]],
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b 2 h w"]]:
        """Return the new state and the change of flow."""
        for gru, context in zip(self.passes, context_terms, strict=True):
            hidden = gru(hidden, inputs, context)
        return hidden, self.flow_head(hidden)


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
