"""The plain way gives the same flow: only then is it worth a comparison."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gmaflow.bench.published_network import PublishedNetwork
from gmaflow.errors import FlowError
from gmaflow.model import MODELS, FlowNetwork, NetworkConfig
from tests.conftest import random_images
from tests.model.parity import VARIANTS
from tests.model.test_parity import Fixture

Make = Callable[[str | NetworkConfig], FlowNetwork]
PUBLISHED = [name for name, config in MODELS.items() if not config.continues]
TWO_HEADS = replace(MODELS["gma-p"], num_heads=2)


@pytest.mark.parametrize("model", [*PUBLISHED, TWO_HEADS], ids=str)
def test_the_same_flow(model: str | NetworkConfig, make_network: Make) -> None:
    network = make_network(model)
    images = random_images(2, 128, 136)
    start = torch.randn(2, 2, 16, 17, generator=torch.Generator().manual_seed(1))
    ours = network(*images, iters=4, flow_init=start, all_iterations=True)
    plain = PublishedNetwork(network)(*images, iters=4, flow_init=start)
    assert len(plain.flows) == 4
    for flow, expected in zip(plain.flows, ours.flows, strict=True):
        torch.testing.assert_close(flow, expected, atol=1e-3, rtol=0)
    torch.testing.assert_close(plain.low, ours.low, atol=1e-3, rtol=0)


def test_gma_affine_has_no_published_algorithm(make_network: Make) -> None:
    with pytest.raises(FlowError, match="the published code has no gma-affine"):
        PublishedNetwork(make_network("gma-affine"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_agrees_with_the_published_code(variant: str, material: Path) -> None:
    fixture = Fixture(material / "parity", variant)
    prediction = PublishedNetwork(fixture.network)(*fixture.images(), iters=12)
    for iteration in (1, 6, 12):
        fixture.check(prediction.flows[iteration - 1], f"flow_iter{iteration}")
