"""Learning in half precision: a copy of the network computes, the float32 weights learn.

Autocast would convert the weights anew in each of a step's iterations, forward and backward. The
copy is filled once a step, and its gradients add up in its own type.
"""

import copy

import torch
from torch import Tensor, nn

from gmaflow.model import FlowNetwork


class HalfCopy:
    """A network's copy in half precision, its channels last as tensor cores like them.

    Batch norm is not copied: the copy uses the network's own layers, so that their statistics stay
    float32 and are kept in one place.

    Args:
        network: The float32 network; its weights are laid out channels last, too.
        dtype: The type to compute in.
    """

    def __init__(self, network: FlowNetwork, dtype: torch.dtype) -> None:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        shared = {id(layer): layer for layer in network.modules() if is_shared(layer)}
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
        """Take over the network's weights as they are now, and forget the gradients."""
        torch._foreach_copy_(self._half, self._own)
        for half in self._half:
            half.grad = None

    @torch.no_grad()
    def hand_over_gradients(self) -> None:
        """Give the network's weights the gradients that the copy has gathered."""
        for own, half in zip(self._own, self._half, strict=True):
            own.grad = None if half.grad is None else half.grad.to(own.dtype)


def is_shared(layer: nn.Module) -> bool:
    """Tell whether a layer serves the network and its copy."""
    return isinstance(layer, nn.BatchNorm2d)
