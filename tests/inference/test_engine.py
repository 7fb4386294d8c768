"""The network in half precision, and what happens where that is not enough."""

import numpy as np
import pytest

from gmaflow.inference import FlowEstimator
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
