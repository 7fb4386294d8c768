import pytest
import torch
from torch import Tensor, nn

from gmaflow.model import FlowNetwork, model_config
from gmaflow.training.half_precision_copy import HalfPrecisionCopy


def network_of(model: str) -> FlowNetwork:
    torch.manual_seed(0)
    return FlowNetwork(model_config(model)).train()


def error_of(network: FlowNetwork) -> Tensor:
    images = torch.rand(2, 2, 3, 64, 72, generator=torch.Generator().manual_seed(1))
    found = network(images[0], images[1], iters=3, all_iterations=True)
    return torch.stack([(flow - 2).abs().mean() for flow in found.flows]).sum()


@pytest.mark.parametrize("model", ["gma-p", "gma-affine", "raft-small"])
def test_the_weights_get_the_gradients_of_the_copy(model: str) -> None:
    network = network_of(model)
    expected = torch.autograd.grad(error_of(network), list(network.parameters()), allow_unused=True)

    half = HalfPrecisionCopy(network, torch.bfloat16)
    half.refresh()
    error_of(half.network).backward()
    half.hand_over_gradients()
    for own, plain in zip(network.parameters(), expected, strict=True):
        assert (own.grad is None) == (plain is None)
    found = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
    wanted = torch.cat([plain.flatten() for plain in expected if plain is not None])
    assert found.dtype == torch.float32
    assert (found - wanted).norm() < 0.1 * wanted.norm()


def test_refreshing_takes_over_new_weights_and_forgets_gradients() -> None:
    network = network_of("raft-small")
    half = HalfPrecisionCopy(network, torch.bfloat16)
    error_of(half.network).backward()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    half.refresh()
    for own, copied in zip(network.parameters(), half.network.parameters(), strict=True):
        assert torch.equal(copied, own.to(torch.bfloat16))
        assert copied.grad is None


def test_batch_statistics_are_kept_in_float32_by_the_network_itself() -> None:
    network = network_of("raft")
    half = HalfPrecisionCopy(network, torch.bfloat16)
    before = {name: value.clone() for name, value in network.named_buffers()}
    error_of(half.network)
    layers = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert layers
    for layer in layers:
        assert layer.running_mean is not None
        assert layer.running_mean.dtype == torch.float32
    after = dict(network.named_buffers())
    assert all(not torch.equal(after[name], value) for name, value in before.items())


def test_the_continuation_stays_float32_and_is_shared() -> None:
    network = network_of("gma-affine")
    half = HalfPrecisionCopy(network, torch.bfloat16)
    assert half.network.continuation is network.continuation
    assert network.continuation is not None
    assert {p.dtype for p in network.continuation.parameters()} == {torch.float32}
