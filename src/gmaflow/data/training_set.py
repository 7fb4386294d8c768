"""Augmented samples as tensors, for torch's DataLoader; broken files are skipped and told of."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor
from torch.utils.data import Dataset

from gmaflow.data.augmentation import Augmentation, AugmentedSample, augment
from gmaflow.data.dataset import FlowDataset
from gmaflow.data.ordering import SampleKey
from gmaflow.data.pairs import FlowPair
from gmaflow.errors import DatasetError, FlowError

log = logging.getLogger(__name__)


class TrainingSample(NamedTuple):
    """A sample, or a batch of them.

    Attributes:
        image1: the first frame, RGB in 0..1.
        image2: the second frame.
        flow: the truth in pixels, 0 where unknown.
        valid: where it is known.
        occluded: pixels known to be hidden in, or to have left, the second frame.
    """

    image1: Float[Tensor, "*batch 3 h w"]
    image2: Float[Tensor, "*batch 3 h w"]
    flow: Float[Tensor, "*batch 2 h w"]
    valid: Bool[Tensor, "*batch h w"]
    occluded: Bool[Tensor, "*batch h w"]


class AugmentedDataset(Dataset[TrainingSample]):
    """Pairs of one or more data sets, each with its own augmentation.

    `dataset[epoch, index]` is the same whatever the number of workers and whatever was read before;
    `dataset[index]` is that of epoch 0. A pair that cannot be read is replaced by the next one.
    """

    def __init__(
        self,
        parts: Sequence[tuple[FlowDataset, Augmentation]],
        *,
        seed: int = 0,
        max_broken: int = 20,
    ) -> None:
        """Join data sets.

        Args:
            parts: data sets with their augmentations, such as `open_mixture` returns.
            seed: another one gives other augmentations.
            max_broken: the number of different pairs that may turn out broken before it gives up.

        Raises:
            DatasetError: there is no pair, one has no truth, or crops or augmentations do not fit.
        """
        _check_parts(parts)
        self.pairs = tuple(pair for dataset, _ in parts for pair in dataset)
        self.augmentations = tuple(augmentation for _, augmentation in parts)
        self.seed, self.max_broken = seed, max_broken
        self._part_ends = np.cumsum([len(dataset) for dataset, _ in parts])
        # Repeated pairs are one object; each has one place in the list of the broken.
        numbers: dict[int, int] = {}
        self._numbers = np.array([numbers.setdefault(id(p), len(numbers)) for p in self.pairs])
        # Shared, so that the workers of a loader count together.
        self._broken = torch.zeros(len(numbers), dtype=torch.bool).share_memory_()

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, key: int | tuple[int, int]) -> TrainingSample:
        epoch, index = key if isinstance(key, tuple) else SampleKey(0, key)
        if not 0 <= index < len(self.pairs):
            raise IndexError(f"there are {len(self.pairs)} samples, so none has number {index}")
        rng = np.random.default_rng([self.seed, epoch, index])
        for place in range(index, index + len(self.pairs)):
            sample = self._read(place % len(self.pairs), rng)
            if sample is not None:
                return _to_tensors(sample)
        raise DatasetError(f"none of {len(self.pairs)} pairs can be read; {self._name_broken()}")

    @property
    def broken(self) -> tuple[FlowPair, ...]:
        """The pairs that could not be read so far, by this process or a worker."""
        places = np.unique(self._numbers, return_index=True)[1]
        return tuple(self.pairs[places[n]] for n in torch.nonzero(self._broken).flatten().tolist())

    def _read(self, index: int, rng: np.random.Generator) -> AugmentedSample | None:
        number = int(self._numbers[index])
        if self._broken[number]:
            return None
        pair = self.pairs[index]
        try:
            loaded = pair.load()
        except FlowError as err:
            self._broken[number] = True
            log.warning("left out %s %s/%s: %s", pair.dataset, pair.scene, pair.frame, err)
            if int(self._broken.sum()) > self.max_broken:
                raise DatasetError(
                    f"more than {self.max_broken} pairs cannot be read; {self._name_broken()}"
                ) from err
            return None
        part = int(np.searchsorted(self._part_ends, index, side="right"))
        return augment(loaded, self.augmentations[part], rng)

    def _name_broken(self) -> str:
        names = ", ".join(str(pair.image1) for pair in self.broken)
        return f"`gmaflow data check --deep` tells what is wrong with those of {names}"


def _check_parts(parts: Sequence[tuple[FlowDataset, Augmentation]]) -> None:
    if not sum(len(dataset) for dataset, _ in parts):
        raise DatasetError("there is no pair to train on; give a data set that has some")
    crops = {augmentation.crop for _, augmentation in parts}
    if len(crops) > 1:
        raise DatasetError(f"crops of several sizes cannot be one batch: {sorted(crops)}")
    for dataset, augmentation in parts:
        for pair in dataset:
            if pair.flow is None:
                raise DatasetError(
                    f"{dataset.name}: {pair.image1} has no truth to train on; take another split"
                )
            if pair.sparse and not augmentation.sparse:
                raise DatasetError(
                    f"{dataset.name} is sparse, and interpolating it would make up motion; "
                    "use sparse_augmentation"
                )


def _to_tensors(sample: AugmentedSample) -> TrainingSample:
    return TrainingSample(
        _image(sample.image1),
        _image(sample.image2),
        torch.from_numpy(sample.flow.transpose(2, 0, 1).copy()),
        torch.from_numpy(sample.valid),
        torch.from_numpy(sample.occluded),
    )


def _image(image: Float32[np.ndarray, "h w 3"]) -> Float32[Tensor, "3 h w"]:
    return torch.from_numpy(image.transpose(2, 0, 1) / np.float32(255))
