"""The encoders, with batch norm folded into the convolutions.

Legend: b batch, c channels, H W rows and columns of the image, h w those at 1/8.
"""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.inference.fast.convolution import Convolution, Working
from gmaflow.inference.fast.operations import Map, Operations
from gmaflow.model.encoder import BottleneckBlock, Encoder, ResidualBlock


@dataclass(frozen=True)
class FastLayer:
    """A convolution and what follows it: instance norm, or nothing that is not folded."""

    convolution: Convolution
    instance_norm: bool

    @classmethod
    def of(cls, layer: nn.Module, norm: nn.Module, working: Working) -> "FastLayer":
        """Take over a convolution and its norm."""
        assert isinstance(layer, nn.Conv2d)
        folded = Convolution.of(layer, working, norm=norm)
        return cls(folded, isinstance(norm, nn.InstanceNorm2d))

    def __call__(self, x: Map, operations: Operations, *, relu: bool) -> Tensor:
        """Return the normalised convolution, perhaps with ReLU."""
        if self.instance_norm:
            return operations.convolve_norm(x, self.convolution, relu=relu)
        return operations.convolve(x, self.convolution, relu=relu)

    def join(self, x: Map, shortcut: Map, operations: Operations) -> Tensor:
        """Return the normalised convolution with ReLU, joined to a shortcut."""
        if self.instance_norm:
            return operations.convolve_norm(x, self.convolution, relu=True, shortcut=shortcut)
        return operations.convolve_join(x, self.convolution, shortcut)


@dataclass(frozen=True)
class FastBlock:
    """Layers around a shortcut."""

    layers: tuple[FastLayer, ...]
    shortcut: FastLayer | None

    @classmethod
    def of(cls, block: ResidualBlock | BottleneckBlock, working: Working) -> "FastBlock":
        """Take over a block."""
        pairs = [(block.conv1, block.norm1), (block.conv2, block.norm2)]
        if isinstance(block, BottleneckBlock):
            pairs.append((block.conv3, block.norm3))
        shortcut = None
        if isinstance(block.shortcut, nn.Sequential):
            shortcut = FastLayer.of(block.shortcut[0], block.shortcut[1], working)
        return cls(tuple(FastLayer.of(conv, norm, working) for conv, norm in pairs), shortcut)

    def __call__(self, x: Map, operations: Operations) -> Tensor:
        """Refine the features, perhaps halving their size."""
        y = x
        for layer in self.layers[:-1]:
            y = layer(y, operations, relu=True)
        short = x if self.shortcut is None else self.shortcut(x, operations, relu=False)
        return self.layers[-1].join(y, short, operations)


@dataclass(frozen=True)
class FastEncoder:
    """An encoder, from images in 0..1 to channels-last features."""

    first: FastLayer
    blocks: tuple[FastBlock, ...]
    last: Convolution
    working: Working

    @classmethod
    def of(cls, encoder: Encoder, working: Working) -> "FastEncoder":
        """Take over an encoder in eval mode."""
        blocks = [block for stage in encoder.stages for block in cast(nn.Sequential, stage)]
        return cls(
            FastLayer.of(encoder.conv_in, encoder.norm_in, working),
            tuple(
                FastBlock.of(cast(ResidualBlock | BottleneckBlock, block), working)
                for block in blocks
            ),
            Convolution.of(encoder.conv_out, working),
            working,
        )

    def __call__(self, image: Float[Tensor, "b 3 H W"], operations: Operations) -> Tensor:
        """Return the features of images in 0..1, `[b, h, w, c]`."""
        x = self.first(self._signed(image), operations, relu=True)
        for block in self.blocks:
            x = block(x, operations)
        return operations.convolve(x, self.last)

    def _signed(self, image: Float[Tensor, "b 3 H W"]) -> Tensor:
        """Scale to -1..1, channels last, as many as the first convolution wants."""
        batch, _, height, width = image.shape
        shape = (batch, height, width, self.working.channels(3))
        signed = torch.zeros(shape, device=image.device, dtype=self.working.dtype)
        signed[..., :3] = (2 * image - 1).permute(0, 2, 3, 1)
        return signed
