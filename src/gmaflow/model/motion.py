"""Flow and correlation to motion features: what the current guess looks like.

Legend: b batch, h w rows and columns at 1/8.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


class MotionEncoder(nn.Module):
    """Encode the current flow together with the correlations found around it."""

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
