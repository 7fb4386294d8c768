"""Several processes under `torchrun`, or one alone: the same code."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from gmaflow.errors import TrainingError
from gmaflow.runtime.device import pick_device


@dataclass(frozen=True)
class World:
    """This process among all that train together."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def share(self, batch: int, *, parts: int = 1) -> int:
        """Return how many pairs of a step's batch are this process's.

        Raises:
            TrainingError: It cannot be divided equally.
        """
        if batch % (self.size * parts):
            raise TrainingError(
                f"batch={batch} cannot be divided equally among {self.size} processes with "
                f"{parts} parts each; choose a multiple of {self.size * parts}"
            )
        return batch // self.size

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, tensor: Tensor) -> Tensor:
        """Take the largest of each entry over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tensor

    def barrier(self) -> None:
        """Wait until all are here."""
        if self.size > 1:
            dist.barrier()


ALONE = World()


def is_first_process() -> bool:
    """Whether this process may speak for all, before or after they have joined."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined_world(device: str) -> Iterator[tuple[World, torch.device]]:
    """Join the processes that torchrun started, if it did; give this one's place and device."""
    picked = pick_device(device)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE, picked
        return
    if picked.type == "cuda":
        picked = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(picked)
    dist.init_process_group("nccl" if picked.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), size), picked
    finally:
        dist.destroy_process_group()
