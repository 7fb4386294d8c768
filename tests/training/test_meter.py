import pytest
import torch

from gmaflow.training import StepPlan
from gmaflow.training.distributed import ALONE
from gmaflow.training.meter import Meter
from tests.training.conftest import tiny_batch, tiny_step

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
