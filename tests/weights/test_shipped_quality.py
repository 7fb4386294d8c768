"""What the weights inside the package must do on any picture."""

import numpy as np
import pytest

from gmaflow.example import Example, load_example
from gmaflow.inference import FlowEstimator
from gmaflow.weights import shipped_weights

SHIFT, MARGIN = (7, 5), 24
SHIFT_ERROR = {"gma": 0.1, "raft": 0.35}
"""Pixels; the baseline has learned for 20,000 steps alone."""


@pytest.fixture(scope="module", params=sorted(shipped_weights()))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def estimator(name: str) -> FlowEstimator:
    return FlowEstimator(name, device="cpu")


@pytest.fixture(scope="module")
def example() -> Example:
    return load_example()


def test_a_static_pair_is_still(estimator: FlowEstimator, example: Example) -> None:
    assert estimator(example.image1, example.image1).length.mean() < 0.05


def test_a_change_of_brightness_moves_nothing(estimator: FlowEstimator, example: Example) -> None:
    darker = (0.8 * example.image1 + 10).astype(np.uint8)
    assert estimator(example.image1, darker).length.mean() < 0.1


def test_a_shifted_picture_moves_by_the_shift(
    name: str, estimator: FlowEstimator, example: Example
) -> None:
    (dx, dy), (height, width) = SHIFT, (256, 320)
    first = example.image1[dy : dy + height, dx : dx + width]
    second = example.image1[:height, :width]
    inside = slice(MARGIN, -MARGIN)
    found = estimator(first, second).array[inside, inside]
    assert np.linalg.norm(found - SHIFT, axis=2).mean() < SHIFT_ERROR[name]


def test_the_example_is_far_better_than_no_motion(
    estimator: FlowEstimator, example: Example
) -> None:
    found = estimator(example.image1, example.image2).array
    error = np.linalg.norm(found - example.flow.array, axis=2).mean()
    assert error < 0.2 * example.flow.length.mean()
