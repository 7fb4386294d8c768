"""The fast network gives what the network gives, for every model."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from gmaflow.inference.fast import FastNetwork, fast_network
from gmaflow.model import MODELS, FlowNetwork, MemoryPlan, NetworkConfig
from tests.conftest import random_images

Make = Callable[[str | NetworkConfig], FlowNetwork]
STREAMED = MemoryPlan(store_correlation=False, store_attention=False)
VARIANTS = (
    replace(MODELS["gma"], num_heads=2),
    replace(MODELS["gma"], combination="replace", learned_alpha=False),
    replace(MODELS["gma-p"], residual=False),
)

pytestmark = pytest.mark.usefixtures("no_gradients")


def with_statistics(network: FlowNetwork) -> FlowNetwork:
    """Give batch norms something to fold."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 2)
            module.weight.uniform_(0.5, 1.5)
            module.bias.uniform_(-0.3, 0.3)
    return network


@pytest.mark.parametrize("model", [*MODELS, *VARIANTS], ids=str)
@pytest.mark.parametrize("plan", [MemoryPlan(), STREAMED], ids=["stored", "streamed"])
def test_the_fast_network_agrees_with_the_network(
    model: str | NetworkConfig, plan: MemoryPlan, make_network: Make
) -> None:
    network = with_statistics(make_network(model))
    images = random_images(2, 56, 72)
    expected = network(*images, iters=3)
    actual = FastNetwork(network)(*images, iters=3, plan=plan)
    torch.testing.assert_close(actual.flow, expected.flow, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(actual.low, expected.low, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (16, 136), (72, 24)])
def test_odd_sizes_and_warm_starts(height: int, width: int, make_network: Make) -> None:
    network = make_network("gma")
    images = random_images(1, height, width)
    start = torch.randn(1, 2, height // 8, width // 8)
    expected = network(*images, iters=2, flow_init=start).flow
    actual = FastNetwork(network)(*images, iters=2, flow_init=start).flow
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-5)


def test_encoded_frames_give_the_same_flow(make_network: Make) -> None:
    fast = FastNetwork(make_network("gma"))
    image1, image2 = random_images(1, 40, 48)
    whole = fast(image1, image2, iters=2).flow
    first, second = fast.encode_frame(image1), fast.encode_frame(image2)
    for _ in range(2):  # the second time finds them as they were
        assert torch.equal(fast.match(first, second.features, iters=2).flow, whole)


def test_only_large_images_release_freed_memory(
    make_network: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(fast_network, "release_freed_memory", lambda: given_back.append(1))
    fast, images = FastNetwork(make_network("gma")), random_images(1, 40, 48)
    fast(*images, iters=1)
    assert not given_back
    monkeypatch.setattr(fast_network, "MANY_CELLS", 30)
    fast(*images, iters=1)
    assert given_back


def test_a_network_keeps_its_weights(make_network: Make) -> None:
    network = make_network("gma")
    before = {name: value.clone() for name, value in network.state_dict().items()}
    FastNetwork(network, dtype=torch.float16)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
