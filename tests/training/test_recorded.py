"""The recorded step against the plain one; needs a GPU."""

from dataclasses import replace

import pytest
import torch

from gmaflow.model import FlowNetwork
from gmaflow.training.batch import Batch
from gmaflow.training.config import TrainConfig
from gmaflow.training.recorded import RecordedStep
from gmaflow.training.schedule import StepPlan
from gmaflow.training.step import TrainStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def make_step(precision: str) -> TrainStep:
    torch.manual_seed(0)
    config = replace(TrainConfig(), model="gma", batch=2, crop=(128, 160), precision=precision)
    return TrainStep(FlowNetwork(config.network).cuda(), config)


def make_batch(seed: int) -> Batch:
    random = torch.Generator("cuda").manual_seed(seed)
    images = torch.rand(2, 2, 3, 128, 160, device="cuda", generator=random)
    flow = 3 * torch.randn(2, 2, 128, 160, device="cuda", generator=random)
    known = torch.ones(2, 128, 160, dtype=torch.bool, device="cuda")
    return Batch(images[0], images[1], flow, known, ~known)


@pytest.mark.parametrize(("precision", "within"), [("fp32", 1e-3), ("fp16", 2e-2)])
def test_recorded_steps_learn_the_same(precision: str, within: float) -> None:
    plain, recorded = make_step(precision), make_step(precision)
    learn = RecordedStep(recorded)
    for number in range(4):
        plan = StepPlan(lr=1e-4, iters=3 + number % 2, occluded=True)
        expected = plain(make_batch(number), plan).loss
        found = learn(make_batch(number), plan).loss
        torch.testing.assert_close(found, expected, rtol=within, atol=within)
    assert int(recorded.skipped) == int(plain.skipped)


def test_recording_itself_changes_nothing() -> None:
    step = make_step("fp16")
    before = {name: value.clone() for name, value in step.state().items()}
    RecordedStep(step)(make_batch(0), StepPlan(lr=0.0, iters=2, occluded=True))
    after = step.state()
    assert all(torch.equal(after[f"network.{n}"], before[f"network.{n}"]) for n in step.learned)
