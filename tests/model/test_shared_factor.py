"""The gathered gradient is the sum of the products' gradients."""

import torch
from torch import Tensor

from gmaflow.model.shared_factor import SharedFactor


def gradients(*, shared: bool, used: int) -> list[Tensor]:
    torch.manual_seed(0)
    scores = torch.randn(2, 1, 5, 5, dtype=torch.float64, requires_grad=True)
    values = [torch.randn(2, 1, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(4)]
    matrix = scores.softmax(dim=-1)
    factor = SharedFactor(matrix)
    state = torch.zeros(2, 1, 5, 3, dtype=torch.float64)
    for value in values[:used]:
        # Each product's values depend on the product before, as in the network's iterations.
        state = torch.tanh(value + state)
        state = state + (factor.times(state) if shared else matrix @ state)
    asked = [scores, *values[:used]]
    return list(torch.autograd.grad(state.square().sum(), asked))


def test_gradients_are_those_of_plain_products() -> None:
    for used in (1, 4):
        expected = gradients(shared=False, used=used)
        found = gradients(shared=True, used=used)
        torch.testing.assert_close(found, expected)


def test_a_second_backward_pass_gathers_anew() -> None:
    scores = torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
    values = torch.randn(1, 4, 2, dtype=torch.float64)
    factor = SharedFactor(scores * 2)
    total = factor.times(values).sum()
    (once,) = torch.autograd.grad(total, scores, retain_graph=True)
    (again,) = torch.autograd.grad(total, scores)
    torch.testing.assert_close(again, once)


def test_a_matrix_that_nobody_multiplied_has_no_gradient() -> None:
    scores = torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
    matrix = scores * 2
    SharedFactor(matrix)
    (found,) = torch.autograd.grad(matrix.sum(), scores)
    assert torch.equal(found, torch.full_like(scores, 2))
