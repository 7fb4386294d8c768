"""In which order samples are visited: shuffled anew each epoch, and without end."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from torch.utils.data import Sampler

from gmaflow.errors import DatasetError

# Keeps the order's random numbers apart from those of the samples.
_ORDER = 0x0D


class SampleKey(NamedTuple):
    """Names a sample once and for all: the epoch, and its number within it."""

    epoch: int
    number: int


class ShuffledEpochs(Sampler[SampleKey]):
    """Keys of samples without end, each epoch in an order of its own.

    With several processes, each takes every `world_size`-th key, so that together they see what one
    would see.
    """

    def __init__(
        self,
        length: int,
        *,
        seed: int,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Set up the order.

        Args:
            length: the number of samples in an epoch.
            seed: another one gives another order.
            start: how many samples all processes together have seen already, to go on from there.
            rank: the number of this process.
            world_size: the number of processes.
        """
        if length < 1 or not 0 <= rank < world_size:
            raise DatasetError(
                f"{length} samples for process {rank} of {world_size} cannot be ordered; "
                "give at least one sample, and processes counted from 0"
            )
        self.length, self.seed, self.start = length, seed, start
        self.rank, self.world_size = rank, world_size

    def __iter__(self) -> Iterator[SampleKey]:
        position = self.start + self.rank
        while True:
            epoch = position // self.length
            order = np.random.default_rng([_ORDER, self.seed, epoch]).permutation(self.length)
            while position // self.length == epoch:
                yield SampleKey(epoch, int(order[position % self.length]))
                position += self.world_size
