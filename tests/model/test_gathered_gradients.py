"""The gathered gradient is the sum of the products' gradients, however backward passes are run."""

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gmaflow.model import FlowNetwork, MemoryPlan, NetworkConfig
from gmaflow.model.gathered_gradients import SharedFactor
from tests.conftest import random_images
from tests.model.backward_passes import SCENARIOS, Graph, Scenario

Make = Callable[[str | NetworkConfig], FlowNetwork]


def build(seed: int, *, shared: bool, checkpointed: bool = False) -> Graph:
    random = torch.Generator().manual_seed(seed)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(3, 2, *shape, dtype=torch.float64, generator=random).requires_grad_()

    scores, values = leaf(5, 5), [leaf(5, 3) for _ in range(4)]
    matrix = scores.softmax(dim=-1)
    factor = SharedFactor(matrix)

    def step(state: Tensor, value: Tensor) -> Tensor:
        # Each product's values depend on the product before, as in the network's iterations.
        state = torch.tanh(value + state)
        return state + (factor.times(state) if shared else matrix @ state)

    states = [torch.zeros(3, 2, 5, 3, dtype=torch.float64)]
    for value in values:
        last = states[-1]
        made = checkpoint(step, last, value, use_reentrant=False) if checkpointed else None
        states.append(step(last, value) if made is None else made)
    return Graph([scores, *values], states[1:])


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_gradients_are_those_of_plain_products(scenario: Scenario, checkpointed: bool) -> None:
    expected = scenario(lambda seed: build(seed, shared=False))
    actual = scenario(lambda seed: build(seed, shared=True, checkpointed=checkpointed))
    torch.testing.assert_close(actual, expected)


def test_contributions_are_dropped_after_a_pass_that_did_not_need_the_matrix() -> None:
    scores = torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
    factor = SharedFactor(scores * 2)
    values = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)
    product = factor.times(values)
    gradient = torch.ones_like(product)
    kept = weakref.ref(gradient)
    torch.autograd.grad(product, values, gradient, retain_graph=True)
    del gradient
    assert kept() is None


def test_a_matrix_that_is_not_multiplied_has_no_gradient() -> None:
    scores = torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
    matrix = scores * 2
    SharedFactor(matrix)
    (found,) = torch.autograd.grad(matrix.sum(), scores)
    assert torch.equal(found, torch.full_like(scores, 2))


def test_second_derivatives_are_refused() -> None:
    scores = torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
    values = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)
    product = SharedFactor(scores * 2).times(values).square().sum()
    first = torch.autograd.grad(product, [scores, values], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first[0].sum().backward()


def test_partial_gradients_before_a_full_backward_pass(make_network: Make) -> None:
    def gradients(*, stored: bool) -> list[Tensor]:
        network = make_network("gma").requires_grad_(True)
        images = random_images(2, 32, 40)
        plan = MemoryPlan(store_attention=stored)
        loss = network(*images, iters=3, plan=plan).flow.square().mean()
        assert network.aggregate is not None
        parameters = [network.aggregate.to_value.weight]
        parts = torch.autograd.grad(loss, parameters, retain_graph=True)
        loss.backward()
        learned = [p.grad for p in network.parameters() if p.grad is not None]
        return [*parts, *learned]

    for actual, expected in zip(gradients(stored=True), gradients(stored=False), strict=True):
        close = 1e-4 * float(expected.abs().max())
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=close)
