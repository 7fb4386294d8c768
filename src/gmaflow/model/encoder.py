"""The encoders: images to features at an eighth of their size.

Legend: b batch, c channels, H W rows and columns of the image, h w those at 1/8.
"""

from collections.abc import Sequence
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.model.config import NetworkConfig

NormKind = Literal["instance", "batch", "none"]


def make_norm(kind: NormKind, channels: int) -> nn.Module:
    """Return a normalisation layer; instance norm has neither parameters nor running statistics."""
    match kind:
        case "instance":
            return nn.InstanceNorm2d(channels)
        case "batch":
            return nn.BatchNorm2d(channels)
        case "none":
            return nn.Identity()


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int, norm: NormKind) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1)
        self.norm1 = make_norm(norm, out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.norm2 = make_norm(norm, out_channels)
        self.shortcut = make_shortcut(in_channels, out_channels, stride=stride, norm=norm)

    def forward(self, x: Float[Tensor, "b c y x"]) -> Float[Tensor, "b d v u"]:
        """Refine the features, and halve their size if the stride is 2."""
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        # The published block has this ReLU before the sum as well as the one after it.
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        return F.relu(self.shortcut(x) + y, inplace=True)


class BottleneckBlock(nn.Module):
    """A 3x3 convolution at a quarter of the width, around a shortcut (RAFT-small)."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int, norm: NormKind) -> None:
        super().__init__()
        narrow = out_channels // 4
        self.conv1 = nn.Conv2d(in_channels, narrow, 1)
        self.norm1 = make_norm(norm, narrow)
        self.conv2 = nn.Conv2d(narrow, narrow, 3, stride, padding=1)
        self.norm2 = make_norm(norm, narrow)
        self.conv3 = nn.Conv2d(narrow, out_channels, 1)
        self.norm3 = make_norm(norm, out_channels)
        self.shortcut = make_shortcut(in_channels, out_channels, stride=stride, norm=norm)

    def forward(self, x: Float[Tensor, "b c y x"]) -> Float[Tensor, "b d v u"]:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        y = F.relu(self.norm3(self.conv3(y)), inplace=True)
        return F.relu(self.shortcut(x) + y, inplace=True)


def make_shortcut(in_channels: int, out_channels: int, *, stride: int, norm: NormKind) -> nn.Module:
    """Return the identity, or a strided 1x1 convolution if the block changes the size."""
    if stride == 1:
        return nn.Identity()
    conv = nn.Conv2d(in_channels, out_channels, 1, stride)
    return nn.Sequential(conv, make_norm(norm, out_channels))


class Encoder(nn.Module):
    """A small residual network from an image to features at 1/8 of its size."""

    def __init__(
        self,
        *,
        block: type[ResidualBlock] | type[BottleneckBlock],
        widths: Sequence[int],
        out_channels: int,
        norm: NormKind,
    ) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(3, widths[0], 7, stride=2, padding=3)
        self.norm_in = make_norm(norm, widths[0])
        stages = []
        in_channels = widths[0]
        for width, stride in zip(widths, (1, 2, 2), strict=True):
            first = block(in_channels, width, stride=stride, norm=norm)
            stages.append(nn.Sequential(first, block(width, width, stride=1, norm=norm)))
            in_channels = width
        self.stages = nn.Sequential(*stages)
        self.conv_out = nn.Conv2d(in_channels, out_channels, 1)

        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """Encode images that are scaled to -1..1."""
        x = F.relu(self.norm_in(self.conv_in(image)), inplace=True)
        return self.conv_out(self.stages(x))


def make_encoder(config: NetworkConfig, out_channels: int, *, for_context: bool) -> Encoder:
    """Return the feature encoder (instance norm) or the context encoder (batch norm, or none)."""
    if config.small:
        return Encoder(
            block=BottleneckBlock,
            widths=(32, 64, 96),
            out_channels=out_channels,
            norm="none" if for_context else "instance",
        )
    return Encoder(
        block=ResidualBlock,
        widths=(64, 96, 128),
        out_channels=out_channels,
        norm="batch" if for_context else "instance",
    )
