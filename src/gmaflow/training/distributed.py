"""One process, or several started by `torchrun`, with the same code."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.errors import TrainingError
from gmaflow.runtime.device import pick_device


@dataclass(frozen=True)
class World:
    """This process and the number of processes that train together."""

    rank: int = 0
    size: int = 1
    grouped: bool = False
    """Use the code for several processes even with one, to measure its cost."""

    @property
    def exchanges(self) -> bool:
        """Whether values are exchanged with other processes."""
        return self.size > 1 or self.grouped

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def share(self, batch: int, *, parts: int = 1) -> int:
        """Return the number of pairs of a batch that belong to this process."""
        if batch % (self.size * parts):
            raise TrainingError(
                f"batch={batch} cannot be divided equally among {self.size} processes with "
                f"{parts} parts each; choose a multiple of {self.size * parts}"
            )
        return batch // self.size

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.exchanges:
            dist.all_reduce(tensor)
        return tensor

    def any(self, tensor: Tensor) -> Tensor:
        """Take the maximum of a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tensor

    @torch.no_grad()
    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Fill tensors with those of the first process."""
        if self.exchanges:
            for tensor in tensors:
                copy = tensor.contiguous()
                dist.broadcast(copy, 0)
                tensor.copy_(copy)

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


ALONE = World()
"""A single process."""


def is_first_process() -> bool:
    """Return whether this process prints, even before or after the processes are connected."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined_world(device: str) -> Iterator[tuple[World, torch.device]]:
    """Connect to the other processes of torchrun, if any; yield this process's world and device."""
    picked = pick_device(device)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE, picked
        return
    backend = "gloo"
    if picked.type == "cuda":
        devices = torch.cuda.device_count()
        # NCCL refuses two processes on one GPU.
        backend = "nccl" if int(os.environ["LOCAL_WORLD_SIZE"]) <= devices else "gloo"
        picked = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % devices)
        torch.cuda.set_device(picked)
    dist.init_process_group(backend)
    try:
        yield World(dist.get_rank(), size), picked
    finally:
        dist.destroy_process_group()


class SharedGradients:
    """One flat tensor of everything that is averaged: gradients, running statistics, the loss.

    The parts of a step before and after the exchange can be recorded as CUDA graphs; the exchange
    is not. It is one all-reduce of one tensor: 24 MB for `gma`. The last gradients are known only
    when the backward pass ends.

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
        """Copy this process's gradients, statistics and loss; the copies replace the gradients."""
        copies, values = [*self._averages, self._loss], [*self._statistics, loss]
        for parameter, view in zip(self._parameters, self._gradients, strict=True):
            if parameter.grad is not None:
                copies.append(view)
                values.append(parameter.grad)
                parameter.grad = view
        torch._foreach_copy_(copies, values)

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
