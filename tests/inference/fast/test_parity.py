"""What users get on a CPU is the published algorithm's flow, with any weights."""

from dataclasses import replace

import pytest
import torch

from gmaflow import FlowEstimator
from gmaflow.bench.published_network import PublishedNetwork
from gmaflow.model import MODELS, NetworkConfig
from tests.conftest import random_images
from tests.model.parity import drawn_checkpoint

TOLERANCE = 2e-4
"""Pixels."""


@pytest.mark.parametrize(
    ("config", "drawing", "alpha", "sharpness"),
    [
        (MODELS["gma"], "", 0.7, 1.0),
        (MODELS["gma"], "3", 2.0, 2.0),
        (MODELS["gma-p"], "3", 2.0, 2.0),
        (MODELS["gma-p-only"], "4", 2.0, 3.0),
        (replace(MODELS["gma"], num_heads=4), "4", 2.0, 3.0),
        (MODELS["raft"], "1", 0.7, 1.0),
    ],
    ids=["gma", "gma-sharp", "gma-p", "gma-p-only", "4-heads", "raft"],
)
def test_the_default_back_end_gives_the_published_flow(
    config: NetworkConfig, drawing: str, alpha: float, sharpness: float
) -> None:
    checkpoint = drawn_checkpoint(config, drawing=drawing, alpha=alpha, sharpness=sharpness)
    images = random_images(1, 128, 136)
    with torch.inference_mode():
        expected = PublishedNetwork(checkpoint.build())(*images, iters=12).flow
    estimator = FlowEstimator(checkpoint, iters=12, device="cpu", precision="fp32")
    actual = estimator.batch(*images).flow
    assert expected.abs().max() > 3
    assert (actual - expected).abs().max() < TOLERANCE
