import numpy as np
import pytest

from gmaflow.errors import FlowError
from gmaflow.export.checking import check_room, compare, example_batch, example_previous
from gmaflow.export.formats import Inputs
from gmaflow.inference import FlowEstimator
from gmaflow.model import MODELS
from tests.export.conftest import MakeCheckpoint, estimated

SIZE = (40, 56)


def test_the_difference_is_a_length_in_pixels(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("raft-small")
    estimator = FlowEstimator(checkpoint, iters=1, device="cpu")

    def off_in_one_place(inputs: Inputs) -> np.ndarray:
        flow = estimated(checkpoint, (inputs[0], inputs[1]), 1)
        flow[0, :, 7, 5] += np.array([3.0, 4.0])
        return flow

    found = compare(off_in_one_place, estimator, batch=1, size=SIZE)
    assert (found.height, found.width, found.batch) == (*SIZE, 1)
    assert found.largest == pytest.approx(5, abs=1e-3)
    assert found.mean == pytest.approx(5 / (40 * 56), abs=1e-5)


@pytest.mark.parametrize("wrong", [0.02, float("nan")])
def test_another_flow_is_refused(wrong: float, make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("raft-small")
    estimator = FlowEstimator(checkpoint, iters=1, device="cpu")

    def off(inputs: Inputs) -> np.ndarray:
        return estimated(checkpoint, (inputs[0], inputs[1]), 1) + np.float32(wrong)

    with pytest.raises(FlowError, match="off the estimator's on average at 40x56"):
        compare(off, estimator, batch=1, size=SIZE)


def test_half_precision_may_be_a_little_further_off(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("raft-small")
    estimator = FlowEstimator(checkpoint, iters=1, device="cpu")

    def off(inputs: Inputs) -> np.ndarray:
        return estimated(checkpoint, (inputs[0], inputs[1]), 1) + np.float32(0.02)

    assert compare(off, estimator, batch=1, size=SIZE, precision="fp16").mean > 0.02


def test_the_flow_of_the_pair_before_is_not_the_same_for_all() -> None:
    flow = example_previous(3, SIZE)
    assert np.abs(flow[0]).max() > 5
    assert not flow[1:].any()


def test_pairs_of_a_batch_differ() -> None:
    first, second = example_batch(3, SIZE)
    assert first.shape == (3, 3, *SIZE)
    assert (first[0] == second[1]).all()
    assert (first[0] != first[1]).any()


def test_a_size_that_cannot_be_tried_is_refused() -> None:
    with pytest.raises(FlowError, match=r"at 9000x9000 a run takes about .* GB.* smaller --size"):
        check_room(MODELS["gma"], batch=1, size=(9000, 9000))
    check_room(MODELS["gma"], batch=1, size=(64, 64), warm_start=True)
