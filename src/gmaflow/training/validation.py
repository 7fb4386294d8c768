"""Errors on pairs that are not learned from, by region: noc, occ, occ-in, occ-out."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import TrainingError
from gmaflow.inference.images import Padding
from gmaflow.model import FlowNetwork
from gmaflow.training.batch import Batch
from gmaflow.training.config import TrainConfig
from gmaflow.training.distributed import ALONE, World
from gmaflow.training.metrics import SUMS, error_sums, mean_errors
from gmaflow.training.places import Place
from gmaflow.training.sources import from_scenes, open_pairs, open_renderer

HELD_OUT = 0x7E57
"""Added to the seed, so that validation sees other scenes than training."""


class ValidationSet(NamedTuple):
    """Pairs by number, one at a time since their sizes may differ."""

    name: str
    size: int
    read: Callable[[int], Batch]


class Validation:
    """The sets that a config validates on, opened once.

    Raises:
        FlowError: One of them is not there.
    """

    def __init__(self, config: TrainConfig, device: torch.device, world: World = ALONE) -> None:
        self.config, self.device, self.world = config, device, world
        names = config.validate_on if config.validate_every else ()
        self.sets = [open_set(Place.parse(name), config, device) for name in names]

    def errors(self, network: FlowNetwork) -> dict[str, dict[str, float]]:
        """Return the mean errors on every set; the processes share the pairs."""
        found = {}
        for each in self.sets:
            sums = torch.zeros(SUMS, device=self.device)
            for number in range(self.world.rank, each.size, self.world.size):
                sums += self.measure(network, each.read(number).to(self.device))
            found[each.name] = mean_errors(self.world.sum(sums))
        return found

    def measure(self, network: FlowNetwork, pair: Batch) -> Float[Tensor, " s"]:
        """Return the sums of errors on a pair."""
        height, width = pair.image1.shape[-2:]
        padding = Padding.to_stride(height, width)
        image1, image2 = padding.pad(pair.image1), padding.pad(pair.image2)
        flow = padding.crop(network(image1, image2, iters=self.config.iters).flow)
        return error_sums(flow, pair.flow, pair.valid, pair.occluded)


def open_set(place: Place, config: TrainConfig, device: torch.device) -> ValidationSet:
    """Open scenes of another seed than the training's, or a data set."""
    if place.kind == "scenes":
        renderer = open_renderer(place, config, device, seed=config.seed + HELD_OUT)
        return ValidationSet(
            str(place), config.validate_pairs, lambda i: from_scenes(renderer.render(i, 1))
        )
    dataset = open_pairs(config, place)
    if not len(dataset) or any(pair.flow is None for pair in dataset):
        raise TrainingError(f"{place} has no truth to validate on; take another set")
    # Spread over the whole set, so that every sequence has its say.
    last, wanted = len(dataset) - 1, min(len(dataset), config.validate_pairs)
    chosen = [round(index) for index in np.linspace(0, last, wanted).tolist()]

    def read(number: int) -> Batch:
        sample = dataset.load(chosen[number])
        assert sample.flow is not None
        assert sample.valid is not None
        occluded = np.zeros_like(sample.valid) if sample.occluded is None else sample.occluded
        images = (sample.image1 / np.float32(255), sample.image2 / np.float32(255))
        channels_first = (
            torch.from_numpy(a).permute(2, 0, 1)[None] for a in (*images, sample.flow)
        )
        masks = (torch.from_numpy(mask)[None] for mask in (sample.valid, occluded))
        return Batch(*channels_first, *masks)

    return ValidationSet(str(place), wanted, read)
