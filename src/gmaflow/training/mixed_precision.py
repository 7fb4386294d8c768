"""Training in half precision: a half-precision copy computes, float32 weights are optimised.

Autocast would convert the weights again in each iteration of a step, forward and backward. The copy
is filled once a step, and its gradients accumulate in its own type.
"""

import copy

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gmaflow.model import FlowNetwork

FIRST_SCALE = 2.0**16
GROWTH_INTERVAL = 2000


class HalfPrecisionCopy:
    """A copy of a network in half precision, channels last for tensor cores.

    Batch norm layers are shared with the original, so that their statistics stay in float32 and in
    one place.

    Args:
        network: The float32 network; its weights become channels last, too.
        dtype: The type to compute in.
    """

    def __init__(self, network: FlowNetwork, dtype: torch.dtype) -> None:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        shared = {
            id(layer): layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)
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


class LossScale:
    """A factor on the loss that keeps small gradients representable in half precision.

    It halves when a gradient overflows and doubles after 2,000 good steps, like torch's GradScaler.
    GradScaler keeps part of its state in Python; here everything is a tensor, so that a step can be
    recorded as a CUDA graph.
    """

    def __init__(self, device: torch.device, *, enabled: bool) -> None:
        self.enabled = enabled
        self.scale = torch.tensor(FIRST_SCALE if enabled else 1.0, device=device)
        self.good_steps = torch.zeros((), device=device)

    def update(self, overflowed: Bool[Tensor, ""]) -> None:
        """Adapt the scale after a step."""
        if not self.enabled:
            return
        self.good_steps.add_(1).mul_(~overflowed)
        grown = self.good_steps >= GROWTH_INTERVAL
        factor = torch.where(overflowed, 0.5, torch.where(grown, 2.0, 1.0))
        self.scale.mul_(factor)
        self.good_steps.mul_(~grown)

    def state(self) -> dict[str, Float[Tensor, ""]]:
        """Return the state as tensors; filling them in place restores it."""
        return {"scale": self.scale, "good_steps": self.good_steps}
