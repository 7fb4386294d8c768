"""Both ways at once: the same as a batch that happens to hold every pair in both directions."""

import pytest
import torch

from gmaflow.errors import TrainingError
from gmaflow.model import FlowNetwork
from gmaflow.training.batch import Batch
from gmaflow.training.both_ways import both_ways, exchange_halves
from gmaflow.training.schedule import StepPlan
from gmaflow.training.step import TrainStep
from tests.training.conftest import tiny_batch, tiny_config

PLAN = StepPlan(lr=1e-3, iters=2, occluded=True)


def turned(batch: Batch) -> Batch:
    """The batch with its frames exchanged; its truth is some other."""
    return batch._replace(image1=batch.image2, image2=batch.image1, flow=-batch.flow)


@pytest.mark.parametrize("model", ["raft-small", "gma"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_what_is_learned_is_the_same(model: str, accumulate: int) -> None:
    pairs = tiny_batch(4, seed=3, size=(32, 40))
    batch = both_ways(pairs, turned(pairs), accumulate)
    learned = []
    for ways in (True, False):
        config = tiny_config(model=model, batch=8, accumulate=accumulate, both_ways=ways)
        torch.manual_seed(0)
        step = TrainStep(FlowNetwork(config.network), config)
        told = step(batch, PLAN)
        learned.append((told, step.state()))
    (told, state), (plainly_told, plain) = learned
    torch.testing.assert_close(told.loss, plainly_told.loss)
    torch.testing.assert_close(told.errors, plainly_told.errors)
    torch.testing.assert_close(told.gradient_norm, plainly_told.gradient_norm, rtol=1e-3, atol=0)
    assert state.keys() == plain.keys()
    for name, value in state.items():
        if "exp_avg" not in name:  # Adam's first step is the gradient's sign, wherever that is 0
            continue
        torch.testing.assert_close(value, plain[name], rtol=1e-2, atol=1e-5, msg=name)


def test_exchanging_keeps_the_layout() -> None:
    features = torch.randn(4, 8, 5, 6).to(memory_format=torch.channels_last)
    exchanged = exchange_halves(features)
    assert torch.equal(exchanged, features.roll(2, dims=0))
    assert exchanged.is_contiguous(memory_format=torch.channels_last)


def test_a_batch_must_be_of_whole_pairs() -> None:
    with pytest.raises(TrainingError, match=r"batch=6 .* each forward and backward; .* of 4"):
        tiny_config(batch=6, accumulate=2, both_ways=True)


def test_files_have_no_truth_backward() -> None:
    with pytest.raises(TrainingError, match="set:sintel has none"):
        tiny_config(data="set:sintel", both_ways=True)
