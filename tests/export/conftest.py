"""Networks that are exported, and what they should compute."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gmaflow.inference import FlowEstimator
from gmaflow.model import FlowNetwork, NetworkConfig
from gmaflow.weights import Checkpoint
from tests.conftest import random_images

MakeNetwork = Callable[[str | NetworkConfig], FlowNetwork]
MakeCheckpoint = Callable[[str], Checkpoint]


@pytest.fixture
def make_checkpoint(make_network: MakeNetwork) -> MakeCheckpoint:
    """Checkpoints with seeded random weights."""

    def make(model: str) -> Checkpoint:
        network = make_network(model)
        return Checkpoint(config=network.config, tensors=network.state_dict())

    return make


def byte_images(batch: int, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Two images as programs have them."""
    first, second = ((255 * image).byte() for image in random_images(batch, height, width))
    return first.numpy(), second.numpy()


def estimated(
    checkpoint: Checkpoint, images: tuple[np.ndarray, np.ndarray], iters: int
) -> np.ndarray:
    """What gmaflow says of such images."""
    estimator = FlowEstimator(checkpoint, iters=iters, device="cpu")
    first, second = (torch.from_numpy(image).float() / 255 for image in images)
    return estimator.batch(first, second).flow.numpy()
