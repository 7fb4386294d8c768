"""The network in half precision, and what happens where that is not enough."""

import numpy as np
import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.inference import FlowEstimator
from gmaflow.inference.backend import Backend
from gmaflow.inference.planning import Computation, bytes_needed
from gmaflow.model import MemoryPlan
from tests.conftest import random_images
from tests.inference.test_estimator import arrays, checkpoint


def test_frames_that_overflow_are_computed_again_in_float32(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = checkpoint()
    # Too much for float16 after the last layer, which no norm tames; not for float32.
    given.tensors["features.conv_out.weight"] = 3e5 * given.tensors["features.conv_out.weight"]
    first, second = arrays(32, 40)
    half = FlowEstimator(given, iters=1, device="cpu", precision="fp16")
    flow = half(half.encode(first), half.encode(second))
    assert "overflowed" in caplog.text
    full = FlowEstimator(given, iters=1, device="cpu", precision="fp32")
    np.testing.assert_allclose(flow.array, full(first, second).array, atol=1e-2)


def test_what_is_computed_again_is_planned_again(caplog: pytest.LogCaptureFixture) -> None:
    given = checkpoint()
    given.tensors["features.conv_out.weight"] = 3e5 * given.tensors["features.conv_out.weight"]
    enough = bytes_needed(
        Computation(given.config, half=True), MemoryPlan(), batch=2, height=32, width=40
    )
    half = FlowEstimator(given, iters=1, device="cpu", precision="fp16", max_memory=enough)
    first, second = (half.encode(array) for array in arrays(32, 40))
    with caplog.at_level("INFO"):
        half.bidirectional(first, second)
    plans = [record.message for record in caplog.records if "at once" in record.message]
    assert [plan.partition(" of ")[0] for plan in plans] == ["2 pairs", "1 pair"]


@pytest.mark.parametrize("backend", ["fast", "reference"])
def test_the_callers_autocast_changes_nothing(backend: Backend) -> None:
    estimator = FlowEstimator(checkpoint("gma"), iters=2, device="cpu", backend=backend)
    first, second = arrays(32, 40)

    def everything() -> list[np.ndarray]:
        frames = estimator.encode(first), estimator.encode(second)
        flows = [estimator(first, second), estimator(*frames)]
        return [*(flow.array for flow in flows), estimator.attention(first, [(20.0, 9.0)])]

    expected = everything()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = everything()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_first_guess_that_is_not_finite_is_not_the_weights_fault() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    with pytest.raises(FlowError, match="first guess"):
        estimator.batch(*random_images(1, 32, 40), start=torch.full((1, 2, 4, 5), torch.nan))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("backend", ["fast", "reference"])
def test_the_current_gpu_need_not_be_the_one_that_computes(backend: Backend) -> None:
    pair = arrays(32, 40)
    here, there = (
        FlowEstimator(checkpoint("gma"), iters=2, device=f"cuda:{n}", backend=backend)(*pair)
        for n in (0, 1)
    )
    np.testing.assert_allclose(there.array, here.array, atol=1e-2)
