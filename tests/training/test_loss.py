import math

import pytest
import torch

from gmaflow.model.continuation import Continued
from gmaflow.training.loss import continuation_loss, loss_weights, sequence_loss

ONE = torch.tensor(1.0)


def test_the_loss_by_hand() -> None:
    # One pixel of two is known. The first guess is off by (3, 1), the second by (1, 0).
    truth = torch.tensor([[[[1.0, 9.0]], [[2.0, 9.0]]]])
    first = truth + torch.tensor([3.0, -1.0]).view(1, 2, 1, 1)
    second = truth + torch.tensor([-1.0, 0.0]).view(1, 2, 1, 1)
    weights = torch.tensor([[[1.0, 0.0]]])
    loss = sequence_loss([first, second], truth, weights, gamma=0.8)
    assert loss.item() == pytest.approx(0.8 * (3 + 1) / 4 + 1 / 4)


def test_what_does_not_count_may_hold_anything() -> None:
    truth = torch.tensor([[[[1.0, float("nan")]], [[2.0, float("inf")]]]])
    guess = torch.zeros(1, 2, 1, 2, requires_grad=True)
    loss = sequence_loss([guess], truth, torch.tensor([[[1.0, 0.0]]]), gamma=0.8)
    loss.backward()
    assert loss.item() == pytest.approx(3 / 4)
    assert guess.grad is not None
    assert guess.grad.isfinite().all()


def test_unknown_and_very_large_motion_does_not_count() -> None:
    flow = torch.tensor([[[[0.0, 399.0, 400.0, 300.0]], [[0.0, 0.0, 0.0, 300.0]]]])
    valid = torch.tensor([[[False, True, True, True]]])
    weights = loss_weights(flow, valid, torch.zeros_like(valid), ONE)
    assert weights.tolist() == [[[0, 1, 0, 0]]]


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_occluded_pixels_can_be_held_back(weight: float) -> None:
    valid = torch.tensor([[[True, True, False]]])
    occluded = torch.tensor([[[False, True, True]]])
    found = loss_weights(torch.zeros(1, 2, 1, 3), valid, occluded, torch.tensor(weight))
    assert found.tolist() == [[[1, weight, 0]]]


def test_the_loss_of_continued_motion_by_hand() -> None:
    flow = torch.zeros(1, 2, 8, 16)
    flow[..., 4, 4], flow[..., 4, 12] = 8.0, 16.0  # the pixels that cells are judged by
    valid = torch.ones(1, 8, 16, dtype=torch.bool)
    occluded = ~valid
    occluded[0, 4, 12] = True
    before = torch.tensor([[1.0, 0.0]]).expand(1, 2, 1, 2)  # the first cell is right, in cells
    one = Continued(before + 1, torch.zeros(1, 1, 1, 2), before)
    # Errors of e: 8 px in both components of the first, 8 of the second cell, which is hidden.
    errors = (0.1 * 2 * 8 + 2 * 8) / 4
    expected = errors + 0.2 * math.log(2)
    found = continuation_loss([one], flow, valid, occluded, gamma=0.8)
    torch.testing.assert_close(found, torch.tensor(expected))
    twice = continuation_loss([one, one], flow, valid, occluded, gamma=0.8)
    torch.testing.assert_close(twice, torch.tensor(1.8 * expected))
    nothing = continuation_loss([one], flow / 0, ~valid, occluded, gamma=0.8)
    assert nothing == 0
