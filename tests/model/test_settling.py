"""Refining stops where the flow has settled, for each pair on its own."""

from collections.abc import Callable

import pytest
import torch

from gmaflow import FlowEstimator
from gmaflow.inference.fast import FastNetwork, RecordedNetwork
from gmaflow.model import FlowNetwork, NetworkConfig, Prediction
from gmaflow.model.settling import CHECK_EVERY, MAX_ITERS, MIN_ITERS, Refined, refine_until_settled
from tests.conftest import random_images
from tests.inference.fast.test_recorded_network import Tape

Make = Callable[[str | NetworkConfig], FlowNetwork]
THRESHOLD = 0.1


class Halving:
    """Pairs whose flow goes half of its way in each iteration."""

    def __init__(self, *distances: float) -> None:
        self.distances = torch.tensor(distances)
        self.done = 0

    def flow(self, done: int) -> torch.Tensor:
        left = self.distances * (1 - 0.5**done)
        return torch.stack([left, torch.zeros_like(left)], dim=1)[..., None, None].clone()

    def advance(self, count: int) -> Refined:
        self.done += count
        self.last = Refined(self.flow(self.done), self.flow(self.done - 1), self.flow(self.done))
        return self.last


@pytest.mark.parametrize("distances", [(1.0,), (100.0,), (0.0,), (1e9,), (1.0, 50.0, 0.0)])
def test_each_pair_stops_at_the_first_check_with_a_small_change(
    distances: tuple[float, ...],
) -> None:
    batch = Halving(*distances)
    found = refine_until_settled(batch.advance, iters=20, threshold=THRESHOLD)
    checks = range(MIN_ITERS, 21, CHECK_EVERY)
    for pair, distance in enumerate(distances):
        settled = [check for check in checks if 8 * distance * 0.5**check < THRESHOLD]
        assert found[pair] == min(settled, default=20)
        assert batch.last.flow[pair, 0].item() == pytest.approx(distance * (1 - 0.5 ** found[pair]))
        assert torch.equal(batch.last.flow[pair], batch.last.hidden[pair])


@pytest.mark.parametrize("iters", [1, 3, 5, 6, 7])
def test_there_are_never_more_iterations_than_requested(iters: int) -> None:
    batch = Halving(1e9)
    assert refine_until_settled(batch.advance, iters=iters, threshold=THRESHOLD) == (iters,)
    assert batch.done == iters


def images() -> list[torch.Tensor]:
    """A batch of two pairs."""
    return list(random_images(2, 40, 48))


def run(network: object, pairs: slice, threshold: float) -> Prediction:
    first, second = (image[pairs] for image in images())
    return network(first, second, iters=8, settled=threshold)  # type: ignore[operator]


@torch.inference_mode()
@pytest.mark.parametrize("model", ["raft-small", "gma-affine"])
def test_all_back_ends_stop_at_the_same_iteration(model: str, make_network: Make) -> None:
    network = make_network(model)
    fast = FastNetwork(network)
    never = run(network, slice(None), 0.0)
    assert never.iterations == (8, 8)
    assert torch.equal(never.flow, network(*images(), iters=8).flow)
    # A threshold between the changes of the two pairs, so that one of them settles first.
    changes = last_changes(network)
    threshold = changes.mean().item()
    reference = run(network, slice(None), threshold)
    first, last = sorted(reference.iterations)
    assert first == MIN_ITERS < last
    tape = Tape()
    recorded = RecordedNetwork(fast, tape.record)
    for runner in (fast, recorded, recorded, recorded):
        actual = run(runner, slice(None), threshold)
        assert actual.iterations == reference.iterations
        torch.testing.assert_close(actual.flow, reference.flow, atol=1e-4, rtol=1e-4)
        for pair in range(2):
            single = run(runner, slice(pair, pair + 1), threshold)
            assert single.iterations == reference.iterations[pair : pair + 1]
            torch.testing.assert_close(single.flow[0], actual.flow[pair], atol=1e-4, rtol=1e-4)
    assert tape.replayed > 0


def last_changes(network: FlowNetwork) -> torch.Tensor:
    """The mean change of each pair in iteration MIN_ITERS, in pixels."""
    flows = [network(*images(), iters=MIN_ITERS - more).low for more in (1, 0)]
    return 8 * (flows[1] - flows[0]).norm(dim=1).mean(dim=(1, 2))


@pytest.mark.parametrize("model", ["raft-small", "gma-affine"])
def test_settled_pairs_have_the_gradients_of_their_iterations(
    model: str, make_network: Make
) -> None:
    network = make_network(model)
    with torch.no_grad():
        threshold = last_changes(network).mean().item()
    network.requires_grad_(True)
    settled = network(*images(), iters=8, settled=threshold)
    first, last = settled.iterations
    assert first != last
    expected = [
        network(*images(), iters=iters).flow[pair] for pair, iters in enumerate(settled.iterations)
    ]
    parameters = list(network.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(settled.flow.sum(), parameters, allow_unused=True),
        torch.autograd.grad(torch.stack(expected).sum(), parameters, allow_unused=True),
        atol=1e-3,
        rtol=1e-3,
    )


def test_an_estimator_stops_by_itself() -> None:
    estimator = FlowEstimator(model="gma", iters="auto", device="cpu")
    assert estimator.iters == MAX_ITERS
    frame = (random_images(1, 64, 72)[0][0].permute(1, 2, 0) * 255).byte().numpy()
    flow = estimator(frame, frame)
    assert flow.iterations is not None
    assert MIN_ITERS <= flow.iterations < MAX_ITERS
    assert estimator.with_iters(5)(frame, frame).iterations == 5
    both = estimator.bidirectional(frame, frame)
    assert both.forward.iterations == flow.iterations
