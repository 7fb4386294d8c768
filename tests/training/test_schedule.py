import pytest
import torch

from gmaflow.training import plan_at, preset
from gmaflow.training.schedule import iters_at, lr_at, occluded_at, one_cycle
from tests.training.conftest import tiny_config


@pytest.mark.parametrize(("steps", "peak"), [(1, 1e-3), (10, 4e-4), (500, 2.5e-4), (1777, 1.0)])
def test_the_rate_is_torchs_one_cycle_value_by_value(steps: int, peak: float) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=peak,
        total_steps=steps + 100,
        pct_start=0.05,
        cycle_momentum=False,
        anneal_strategy="linear",
    )
    for step in range(steps):
        expected = theirs.get_last_lr()[0]
        assert one_cycle(step, steps=steps, peak=peak) == pytest.approx(expected, rel=1e-12)
        optimizer.step()
        theirs.step()


def test_a_start_in_the_middle_warms_up_to_the_schedule() -> None:
    whole = tiny_config(steps=1000)
    later = tiny_config(steps=1000, init="w", start_step=400, warm_up=100)
    assert lr_at(400, later) == pytest.approx(lr_at(400, whole) / 100)
    assert lr_at(449, later) == pytest.approx(lr_at(449, whole) / 2)
    assert lr_at(499, later) == lr_at(499, whole)
    assert lr_at(700, later) == lr_at(700, whole)


def test_iterations_grow() -> None:
    config = tiny_config(steps=100, iters_growth="0:4 0.5:8 0.8:12")
    assert [iters_at(step, config) for step in (0, 49, 50, 79, 80, 99)] == [4, 4, 8, 8, 12, 12]
    assert iters_at(99, tiny_config(steps=100, iters=3)) == 3


def test_occluded_pixels_are_let_in() -> None:
    config = tiny_config(steps=100, occluded_from=0.3)
    assert [occluded_at(step, config) for step in (0, 29, 30, 99)] == [False, False, True, True]
    assert occluded_at(0, tiny_config())


def test_a_plan_has_it_all() -> None:
    config = preset("chairs")
    assert plan_at(0, config) == (2.5e-4 / 25, 12, True)
