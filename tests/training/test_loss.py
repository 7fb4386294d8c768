import math

import pytest
import torch

from gmaflow.evaluation import ErrorSums, measure
from gmaflow.model.continuation import Continued
from gmaflow.training import StepPlan
from gmaflow.training.distributed import ALONE
from gmaflow.training.loss import (
    REGIONS,
    SUMS,
    continuation_loss,
    error_sums,
    loss_weights,
    mean_errors,
    sequence_loss,
)
from gmaflow.training.reporting import Meter
from tests.evaluation.samples import random_case
from tests.training.conftest import tiny_batch, tiny_step

ONE = torch.tensor(1.0)


def test_the_loss_by_hand() -> None:
    # One pixel of two is known. The first guess is off by (3, 1), the second by (1, 0).
    truth = torch.tensor([[[[1.0, 9.0]], [[2.0, 9.0]]]])
    first = truth + torch.tensor([3.0, -1.0]).view(1, 2, 1, 1)
    second = truth + torch.tensor([-1.0, 0.0]).view(1, 2, 1, 1)
    weights = torch.tensor([[[1.0, 0.0]]])
    loss = sequence_loss([first, second], truth, weights, gamma=0.8)
    assert loss.item() == pytest.approx(0.8 * (3 + 1) / 4 + 1 / 4)


@pytest.mark.parametrize(("error", "gradient"), [(0.01, 1.0), (16.0, 0.5), (-48.0, -0.25)])
def test_large_errors_of_a_robust_loss_have_small_gradients(error: float, gradient: float) -> None:
    truth = torch.ones(1, 2, 1, 1)
    guess = (truth + error).requires_grad_()
    loss = sequence_loss([guess], truth, torch.ones(1, 1, 1), gamma=0.8, robust=16.0)
    loss.backward()
    assert loss.item() == pytest.approx(16 * math.log1p(abs(error) / 16), rel=1e-4)
    assert guess.grad is not None
    assert (2 * guess.grad).flatten().tolist() == pytest.approx([gradient] * 2, rel=1e-3)


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


def test_errors_by_region_and_threshold() -> None:
    # Five pixels in a row: one unknown, two seen, one covered, one that leaves to the right.
    truth = torch.zeros(1, 2, 1, 5)
    truth[0, 0, 0, 4] = 3
    off = torch.tensor([100.0, 0.5, 2.0, 4.0, 6.0])
    estimate = truth.clone()
    estimate[0, 1, 0] = off
    valid = torch.tensor([[[False, True, True, True, True]]])
    occluded = torch.tensor([[[True, False, False, True, True]]])
    means = mean_errors(error_sums(estimate, truth, valid, occluded))
    assert means == pytest.approx(
        {
            "epe": 12.5 / 4,
            "epe-noc": 1.25,
            "epe-occ": 5,
            "epe-occ-in": 4,
            "epe-occ-out": 6,
            "1px": 0.25,
            "3px": 0.5,
            "5px": 0.75,
        }
    )


def test_sums_of_halves_are_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    estimate, truth = torch.randn(2, 4, 2, 8, 9, generator=generator).unbind()
    valid, occluded = (torch.rand(2, 4, 8, 9, generator=generator) > 0.5).unbind()
    parts = [
        error_sums(estimate[i], truth[i], valid[i], occluded[i]) for i in (slice(2), slice(2, 4))
    ]
    torch.testing.assert_close(sum(parts), error_sums(estimate, truth, valid, occluded))


def test_a_region_without_pixels_has_no_mean() -> None:
    assert mean_errors(torch.zeros(SUMS)) == {}


def test_they_are_what_evaluation_measures() -> None:
    """Two implementations, since a step counts on its device; one definition."""
    pairs = [random_case(seed) for seed in range(3)]
    sums, expected = torch.zeros(SUMS), ErrorSums.none()
    for estimate, sample in pairs:
        truth, guess = (
            torch.from_numpy(flow).permute(2, 0, 1)[None] for flow in (sample.flow, estimate)
        )
        valid, occluded = (torch.from_numpy(mask)[None] for mask in (sample.valid, sample.occluded))
        sums += error_sums(guess, truth, valid, occluded)
        expected += measure(estimate, sample)
    figures = expected.figures("pixels")
    means = mean_errors(sums)
    for region in REGIONS:
        name = "epe" if region == "all" else f"epe-{region}"
        assert means[name] == pytest.approx(figures[region].epe, rel=1e-5)
    whole = figures["all"]
    for name, share in (("1px", whole.px1), ("3px", whole.px3), ("5px", whole.px5)):
        assert means[name] == pytest.approx(1 - share / 100)


PLAN = StepPlan(lr=0.0, iters=2, occluded=True)


def test_means_are_over_the_steps_that_counted() -> None:
    step, meter = tiny_step(), Meter(torch.device("cpu"), ALONE)
    good = [step(tiny_batch(seed=seed), PLAN) for seed in range(2)]
    broken = tiny_batch()
    broken.image1.fill_(float("nan"))
    for result in (good[0], step(broken, PLAN), good[1]):
        meter.add(result, 2)
    means = meter.read()
    assert means["loss"] == pytest.approx((good[0].loss + good[1].loss).item() / 2)
    errors = good[0].errors + good[1].errors
    assert means["epe"] == pytest.approx((errors[1] / errors[0]).item())
    assert means["pairs/s"] > 0


def test_reading_begins_anew() -> None:
    meter = Meter(torch.device("cpu"), ALONE)
    meter.add(tiny_step()(tiny_batch(), PLAN), 2)
    assert "loss" in meter.read()
    assert meter.read() == {"pairs/s": 0.0}
