"""`torch.hub.load` on the folder of the project."""

from pathlib import Path

import pytest
import torch

from gmaflow import FlowError, FlowEstimator, FlowNetwork
from gmaflow.model import MODELS
from gmaflow.weights import find_checkpoint, fingerprint

ROOT = str(Path(__file__).parent.parent)


def load(entry: str, **options: object) -> object:
    return torch.hub.load(ROOT, entry, source="local", **options)


@pytest.mark.parametrize("model", ["gma", "raft"])
def test_shipped_weights_are_loaded(model: str) -> None:
    network = load(model, pretrained=True)
    assert isinstance(network, FlowNetwork)
    assert fingerprint(network) == fingerprint(find_checkpoint(model).build())
    assert not network.training


def test_without_weights_the_network_is_random() -> None:
    for model, config in MODELS.items():
        network = load(model.replace("-", "_"), pretrained=False)
        assert isinstance(network, FlowNetwork)
        assert network.config == config
    with pytest.raises(FlowError, match="no trained weights for gma-p: there are gma"):
        load("gma_p", pretrained=True)


def test_the_estimator_takes_its_own_arguments() -> None:
    estimator = load("estimator", weights="raft", iters=4, device="cpu")
    assert isinstance(estimator, FlowEstimator)
    assert estimator.iters == 4
