"""Augmented training pairs for torch's DataLoader, in a reproducible order."""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from gmaflow.data.augmentation import Augmentation, augment
from gmaflow.data.dataset import FlowDataset
from gmaflow.data.pairs import Batch, FlowPair
from gmaflow.errors import DatasetError, FlowError

log = logging.getLogger(__name__)

# Separates the random numbers of the order from those of the augmentation.
_ORDER = 0x0D


class SampleKey(NamedTuple):
    """Identifies a sample: the epoch, and its index in the data set."""

    epoch: int
    number: int


class ShuffledEpochs(Sampler[SampleKey]):
    """An endless sequence of sample keys, shuffled anew in each epoch.

    With several processes, each takes every `world_size`-th key; together they visit the same
    samples as a single process.
    """

    def __init__(
        self, length: int, *, seed: int, start: int = 0, rank: int = 0, world_size: int = 1
    ) -> None:
        """Order epochs of `length` samples, of which all processes together visited `start`."""
        if length < 1 or not 0 <= rank < world_size:
            raise DatasetError(
                f"cannot order {length} samples for process {rank} of {world_size}; "
                "give at least one sample, and number the processes from 0"
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


class AugmentedDataset(Dataset[Batch]):
    """Pairs of one or more data sets, each with its own augmentation.

    `dataset[epoch, index]` depends only on the seed, the epoch and the index, not on the number of
    workers or earlier reads; `dataset[index]` is that of epoch 0. An unreadable pair is replaced by
    the next one.
    """

    def __init__(
        self,
        parts: Sequence[tuple[FlowDataset, Augmentation]],
        *,
        seed: int = 0,
        max_broken: int = 20,
    ) -> None:
        """Join data sets with their augmentations, which depend on the seed; see `open_mixture`.

        More than `max_broken` different unreadable pairs are an error.
        """
        _check_parts(parts)
        self.pairs = tuple(pair for dataset, _ in parts for pair in dataset)
        self.augmentations = tuple(augmentation for _, augmentation in parts)
        self.seed, self.max_broken = seed, max_broken
        self._part_ends = np.cumsum([len(dataset) for dataset, _ in parts])
        # A repeated pair is one object and has one entry in the list of broken pairs.
        numbers: dict[int, int] = {}
        self._numbers = np.array([numbers.setdefault(id(p), len(numbers)) for p in self.pairs])
        # In shared memory, so that the workers of a loader count together.
        self._broken = torch.zeros(len(numbers), dtype=torch.bool).share_memory_()

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, key: int | tuple[int, int]) -> Batch:
        epoch, index = key if isinstance(key, tuple) else SampleKey(0, key)
        if not 0 <= index < len(self.pairs):
            raise IndexError(f"index {index} is out of range for {len(self.pairs)} samples")
        rng = np.random.default_rng([self.seed, epoch, index])
        for place in range(index, index + len(self.pairs)):
            sample = self._read(place % len(self.pairs), rng)
            if sample is not None:
                return sample
        raise DatasetError(f"none of {len(self.pairs)} pairs can be read; {self._name_broken()}")

    @property
    def broken(self) -> tuple[FlowPair, ...]:
        """The unreadable pairs found so far, by this process or a worker."""
        places = np.unique(self._numbers, return_index=True)[1]
        return tuple(self.pairs[places[n]] for n in torch.nonzero(self._broken).flatten().tolist())

    def _read(self, index: int, rng: np.random.Generator) -> Batch | None:
        number = int(self._numbers[index])
        if self._broken[number]:
            return None
        pair = self.pairs[index]
        try:
            loaded = pair.load()
        except FlowError as err:
            self._broken[number] = True
            log.warning("skipping %s %s/%s: %s", pair.dataset, pair.scene, pair.frame, err)
            if int(self._broken.sum()) > self.max_broken:
                raise DatasetError(
                    f"more than {self.max_broken} pairs cannot be read; {self._name_broken()}"
                ) from err
            return None
        part = int(np.searchsorted(self._part_ends, index, side="right"))
        return augment(loaded, self.augmentations[part], rng)

    def _name_broken(self) -> str:
        names = ", ".join(str(pair.image1) for pair in self.broken)
        return f"run `gmaflow data check --deep` for details; the first images are {names}"


def _check_parts(parts: Sequence[tuple[FlowDataset, Augmentation]]) -> None:
    if not sum(len(dataset) for dataset, _ in parts):
        raise DatasetError("there are no pairs to train on; give a data set that has some")
    crops = {augmentation.crop for _, augmentation in parts}
    if len(crops) > 1:
        raise DatasetError(f"crops of a batch must have the same size, not {sorted(crops)}")
    for dataset, augmentation in parts:
        for pair in dataset:
            if pair.flow is None:
                raise DatasetError(
                    f"{dataset.name}: {pair.image1} has no ground truth; use another split"
                )
            if pair.sparse and not augmentation.sparse:
                raise DatasetError(
                    f"{dataset.name} has sparse ground truth, which must not be interpolated; "
                    "use sparse_augmentation"
                )
