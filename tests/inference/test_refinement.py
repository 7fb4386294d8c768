import numpy as np
import pytest

from gmaflow.inference import FlowEstimator, Refinement
from gmaflow.inference.planning import CUT, Computation, candidates
from gmaflow.inference.tiles import tile_sizes
from gmaflow.model import MODELS
from gmaflow.runtime.device import Precision
from tests.inference.test_estimator import arrays, checkpoint


def make_estimator(model: str = "gma", *, iters: int = 3) -> FlowEstimator:
    return FlowEstimator(checkpoint(model), iters=iters, device="cpu")


@pytest.mark.parametrize("model", ["gma", "raft-small"])
def test_the_flow_shown_after_n_refinements_is_that_of_n_iterations(model: str) -> None:
    estimator = make_estimator(model)
    seen: list[Refinement] = []
    flows = []

    def watch(refinement: Refinement) -> None:
        flow = refinement.flow()
        assert flow is not None
        seen.append(refinement)
        flows.append(flow)

    both = estimator.bidirectional(*arrays(34, 45), watch=watch)
    assert [(step.number, step.total) for step in seen] == [(1, 3), (2, 3), (3, 3)]
    assert np.abs(flows[-1] - both.forward.array).max() < 1e-4
    for number, flow in enumerate(flows, start=1):
        expected = estimator.with_iters(number).bidirectional(*arrays(34, 45)).forward.array
        assert np.abs(flow - expected).max() < 1e-4


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_flow_of_a_refinement_may_be_asked_for_later(precision: Precision) -> None:
    estimator = FlowEstimator(
        checkpoint("gma"), iters=2, device="cpu", backend="reference", precision=precision
    )
    seen: list[Refinement] = []
    flow = estimator(*arrays(34, 45), watch=seen.append)
    last = seen[-1].flow()
    assert last is not None
    assert np.abs(last - flow.array).max() < (1e-4 if precision == "fp32" else 0.5)


def least_memory(model: str, height: int, width: int) -> float:
    """Bytes with which one pair of that size is estimated at once, by the fast back end."""
    computation = Computation(MODELS[model], fast=True)
    return min(plan.need for plan in candidates(computation, 1, (height, width)))


@pytest.mark.parametrize("encoded", [False, True])
def test_what_is_estimated_in_parts_is_watched_too(*, encoded: bool) -> None:
    (tile,) = tile_sizes(384, 520)
    memory = least_memory("raft-small", *tile) + CUT * 2 * 384 * 520
    estimator = FlowEstimator(
        checkpoint(), iters=2, device="cpu", backend="fast", max_memory=memory
    )
    pair = arrays(384, 520)
    frames = tuple(map(estimator.encode, pair)) if encoded else pair
    seen: list[Refinement] = []
    estimator.bidirectional(*frames, watch=seen.append)
    # Two tiles for each of two directions.
    assert [(step.number, step.total) for step in seen] == [(n, 8) for n in range(1, 9)]
    assert all(step.flow() is None for step in seen)

    def stop(refinement: Refinement) -> None:
        if refinement.number == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        estimator(*frames, watch=stop)


def test_what_a_watcher_raises_stops_the_estimate() -> None:
    numbers = []

    def watch(refinement: Refinement) -> None:
        numbers.append(refinement.number)
        if refinement.number == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        make_estimator(iters=9)(*arrays(34, 45), watch=watch)
    assert numbers == [1, 2]


def test_another_number_of_refinements_leaves_the_first_estimator_alone() -> None:
    estimator = make_estimator()
    twin = estimator.with_iters(1)
    assert (twin.iters, estimator.iters) == (1, 3)
    assert twin.network is estimator.network
