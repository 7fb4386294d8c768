"""A running mean of the weights, which is often better than the last ones."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class WeightAverage:
    """Exponential moving average of a network's parameters."""

    def __init__(self, network: nn.Module, *, decay: float) -> None:
        self.decay = decay
        self.parameters = dict(network.named_parameters())
        self.mean = {name: value.detach().clone() for name, value in self.parameters.items()}

    @torch.no_grad()
    def update(self, changed: Float[Tensor, ""]) -> None:
        """Move towards the parameters; `changed` is 0 after a step that was skipped."""
        weight = (1 - self.decay) * changed
        for name, value in self.parameters.items():
            self.mean[name].lerp_(value.detach(), weight)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the mean and the parameters, in place."""
        for name, value in self.parameters.items():
            kept = value.detach().clone()
            value.copy_(self.mean[name])
            self.mean[name].copy_(kept)
