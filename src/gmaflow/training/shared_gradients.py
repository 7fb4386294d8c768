"""The gradients of several processes, averaged between two parts of a step.

Each part can be recorded as a CUDA graph; the exchange in between is not. It is one sum of one
tensor: 24 MB for `gma`, of which the last gradients are known only when the backward pass ends.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.training.distributed import World


class SharedGradients:
    """One flat tensor of all that the processes average: gradients, running statistics, the loss.

    Each process's batch norm uses its own share of the batch. The average of the running statistics
    keeps the networks of all processes equal. The loss is exchanged so that all processes skip a
    step if it is not finite in one of them.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], buffers: Iterable[Tensor], world: World
    ) -> None:
        self.world = world
        self._parameters = list(parameters)
        self._statistics = [buffer for buffer in buffers if buffer.is_floating_point()]
        tensors = [*self._parameters, *self._statistics]
        self._flat = torch.zeros(
            sum(tensor.numel() for tensor in tensors) + 1, device=tensors[0].device
        )
        self._loss = self._flat[-1]
        views, begin = [], 0
        for tensor in tensors:  # in the memory layout of the tensor
            views.append(self._flat.as_strided(tensor.size(), tensor.stride(), begin))
            begin += tensor.numel()
        self._gradients = views[: len(self._parameters)]
        self._averages = views[len(self._parameters) :]

    @torch.no_grad()
    def collect(self, loss: Float[Tensor, ""]) -> None:
        """Copy what this process has found, and put the copies in place of the gradients."""
        copies, found = [*self._averages, self._loss], [*self._statistics, loss]
        for parameter, view in zip(self._parameters, self._gradients, strict=True):
            if parameter.grad is not None:
                copies.append(view)
                found.append(parameter.grad)
                parameter.grad = view
        torch._foreach_copy_(copies, found)

    def exchange(self) -> None:
        """Sum over all processes. This cannot be recorded."""
        self.world.sum(self._flat)

    @torch.no_grad()
    def distribute(self) -> Float[Tensor, ""]:
        """Turn the sums into means, and set the running statistics; return the mean loss."""
        self._flat.div_(self.world.size)
        if self._statistics:
            torch._foreach_copy_(self._statistics, self._averages)
        return self._loss
