"""Errors on held-out pairs, by region: noc, occ, occ-in, occ-out."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.data import Batch
from gmaflow.errors import TrainingError
from gmaflow.evaluation.examples import published_padding, spread
from gmaflow.inference.images import Padding, PaddingKind
from gmaflow.model import FlowNetwork
from gmaflow.training.config import DataSource, TrainConfig
from gmaflow.training.distributed import ALONE, World
from gmaflow.training.loss import SUMS, error_sums, mean_errors
from gmaflow.training.sources import from_scenes, open_pairs, open_renderer

HELD_OUT = 0x7E57
"""Added to the seed, so that validation uses other scenes than training."""


class ValidationSet(NamedTuple):
    """Pairs by number, read one at a time since their sizes may differ."""

    name: str
    size: int
    read: Callable[[int], Batch]
    padding: PaddingKind = "sintel"


class Validation:
    """The validation sets of a config, opened once."""

    def __init__(self, config: TrainConfig, device: torch.device, world: World = ALONE) -> None:
        self.config, self.device, self.world = config, device, world
        self.sets = [
            open_set(DataSource.parse(name), config, device) for name in config.validate_on
        ]

    def errors(self, network: FlowNetwork) -> dict[str, dict[str, float]]:
        """Return the mean errors on every set; the pairs are divided among the processes."""
        means = {}
        for validation_set in self.sets:
            sums = torch.zeros(SUMS, device=self.device)
            for number in range(self.world.rank, validation_set.size, self.world.size):
                pair = validation_set.read(number).to(self.device)
                sums += self.measure(network, pair, validation_set.padding)
            means[validation_set.name] = mean_errors(self.world.sum(sums))
        return means

    def measure(self, network: FlowNetwork, pair: Batch, kind: PaddingKind) -> Float[Tensor, " s"]:
        padding = Padding.of_kind(kind, *pair.image1.shape[-2:])
        image1, image2 = padding.pad(pair.image1), padding.pad(pair.image2)
        flow = padding.crop(network(image1, image2, iters=self.config.iters).flow)
        return error_sums(flow, pair.flow, pair.valid, pair.occluded)


def open_set(source: DataSource, config: TrainConfig, device: torch.device) -> ValidationSet:
    """Open scenes with another seed and other textures than training, or a data set."""
    if source.kind == "scenes":
        renderer = open_renderer(
            source, config, device, seed=config.seed + HELD_OUT, split="held-out"
        )
        return ValidationSet(
            str(source), config.validate_pairs, lambda i: from_scenes(renderer.render(i, 1))
        )
    dataset = open_pairs(config, source, held_out=True)
    if not len(dataset) or any(pair.flow is None for pair in dataset):
        raise TrainingError(f"{source} has no ground truth; validate on another set")
    # Spread over the whole set, to include every sequence.
    chosen = spread(len(dataset), config.validate_pairs)

    def read(number: int) -> Batch:
        sample = dataset.load(chosen[number])
        assert sample.flow is not None
        assert sample.valid is not None
        occluded = np.zeros_like(sample.valid) if sample.occluded is None else sample.occluded
        images = (sample.image1, sample.image2)
        pair = Batch.from_arrays(images, sample.flow, sample.valid, occluded)
        return Batch(*(tensor[None] for tensor in pair))

    return ValidationSet(str(source), len(chosen), read, published_padding(source.name))
