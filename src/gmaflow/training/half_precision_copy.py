"""Training in half precision: a half-precision copy computes, float32 weights are optimised.

Autocast would convert the weights again in each iteration of a step, forward and backward. The copy
is filled once a step, and its gradients accumulate in its own type.
"""

import copy

import torch
from torch import Tensor, nn

from gmaflow.model import FlowNetwork
from gmaflow.model.continuation import Continuation


class HalfPrecisionCopy:
    """A copy of a network in half precision, channels last for tensor cores.

    Batch norm layers and the continuation are shared with the original: statistics, and sums of
    positions and flow, need float32.

    The weights of the float32 network become channels last, too.
    """

    def __init__(self, network: FlowNetwork, dtype: torch.dtype) -> None:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        shared = {
            id(part): part
            for layer in network.modules()
            if isinstance(layer, nn.BatchNorm2d | Continuation)
            for part in layer.modules()
        }
        self.network = copy.deepcopy(network, memo=dict(shared))
        for layer in self.network.modules():
            if id(layer) not in shared:
                for parameter in layer.parameters(recurse=False):
                    parameter.data = parameter.data.to(dtype)
        pairs = zip(network.parameters(), self.network.parameters(), strict=True)
        copied = [(own, half) for own, half in pairs if own is not half]
        self._own: list[Tensor] = [own for own, _ in copied]
        self._half: list[Tensor] = [half for _, half in copied]

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the current weights of the network and clear the gradients."""
        torch._foreach_copy_(self._half, self._own)
        for half in self._half:
            half.grad = None

    @torch.no_grad()
    def hand_over_gradients(self) -> None:
        """Copy the accumulated gradients to the network."""
        for own, half in zip(self._own, self._half, strict=True):
            own.grad = None if half.grad is None else half.grad.to(own.dtype)
