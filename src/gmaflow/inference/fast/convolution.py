"""Convolutions ready to run: norms folded in, weights in the working type and laid out for it."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.inference.fast.winograd import Winograd, is_worth_it

LANES = 8
"""Tensor cores want channels in multiples of this, in half precision."""


@dataclass(frozen=True)
class Working:
    """Where and in which type a network computes."""

    device: torch.device
    dtype: torch.dtype

    def channels(self, count: int) -> int:
        """Return how many channels a buffer for `count` has: more, where that is faster."""
        padded = self.device.type == "cuda" and self.dtype != torch.float32
        return -(-count // LANES) * LANES if padded else count


PLAIN_CPU = Working(torch.device("cpu"), torch.float32)


@dataclass(frozen=True)
class Convolution:
    """A convolution of channels-last maps `[b, h, w, c]`."""

    weight: Float[Tensor, "o i ky kx"]
    bias: Float[Tensor, " o"] | None
    stride: tuple[int, int]
    padding: tuple[int, int]
    winograd: Winograd | None = None
    """Another way to compute it, where that is faster."""

    @classmethod
    def of(
        cls,
        layer: nn.Conv2d,
        working: Working,
        *,
        norm: nn.Module | None = None,
        pad_output: bool = False,
    ) -> "Convolution":
        """Take over a layer, and a batch norm after it.

        Args:
            layer: The layer; its input channels are padded with zeros as the working type likes.
            working: Where and in which type it will run.
            norm: What follows it; a batch norm is folded in, anything else left alone.
            pad_output: Pad the output channels too.
        """
        weight = layer.weight.detach().double()
        bias = torch.zeros(len(weight), dtype=torch.float64, device=weight.device)
        if layer.bias is not None:
            bias = layer.bias.detach().double()
        if isinstance(norm, nn.BatchNorm2d):
            weight, bias = fold(weight, bias, norm)
        outputs, inputs = weight.shape[:2]
        more_inputs = working.channels(inputs) - inputs
        more_outputs = working.channels(outputs) - outputs if pad_output else 0
        weight = F.pad(weight, (0, 0, 0, 0, 0, more_inputs, 0, more_outputs))
        bias = F.pad(bias, (0, more_outputs))
        has_bias = layer.bias is not None or isinstance(norm, nn.BatchNorm2d)
        # A constant that is added before an instance norm is what that norm takes away.
        wanted = has_bias and not isinstance(norm, nn.InstanceNorm2d)
        stride = _pair(layer.stride)
        other_way = working == PLAIN_CPU and is_worth_it(weight, stride)
        return cls(
            weight.to(working.device, working.dtype).contiguous(memory_format=torch.channels_last),
            bias.to(working.device, working.dtype) if wanted else None,
            stride,
            _pair(layer.padding),
            Winograd(weight) if other_way else None,
        )

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a product of matrices."""
        return self.weight.shape[2:] == (1, 1) and self.stride == (1, 1)


def fold(
    weight: Float[Tensor, "o i ky kx"], bias: Float[Tensor, " o"], norm: nn.BatchNorm2d
) -> tuple[Float[Tensor, "o i ky kx"], Float[Tensor, " o"]]:
    """Return the convolution that does what a convolution and its batch norm (in use) do."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    spread = (norm.running_var.double() + norm.eps).sqrt()
    gain = norm.weight.detach().double() / spread
    bias = (bias - norm.running_mean.double()) * gain + norm.bias.detach().double()
    return weight * gain[:, None, None, None], bias


def _pair(sides: object) -> tuple[int, int]:
    assert isinstance(sides, tuple)
    return int(sides[0]), int(sides[1])
