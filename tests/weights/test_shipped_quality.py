"""What the weights inside the package must do on any picture."""

import numpy as np
import pytest

from gmaflow.example import ExamplePair, load_example
from gmaflow.inference import FlowEstimator
from gmaflow.weights import shipped_weights

HEIGHT, WIDTH = 256, 320
"""Of the part of the example that most tests look at: they would take thrice as long on all."""
SHIFT, MARGIN = (7, 5), 24
SHIFT_ERROR = {"gma": 0.1, "gma-affine": 0.1, "raft": 0.35}
"""Pixels; the baseline was trained for only 20,000 steps."""


@pytest.fixture(scope="module", params=sorted(shipped_weights()))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def estimator(name: str) -> FlowEstimator:
    return FlowEstimator(name, device="cpu")


@pytest.fixture(scope="module")
def example() -> ExamplePair:
    return load_example()


def test_a_static_pair_is_still(estimator: FlowEstimator, example: ExamplePair) -> None:
    part = example.image1[:HEIGHT, :WIDTH]
    assert estimator(part, part).length.mean() < 0.05


def test_a_change_of_brightness_moves_nothing(
    estimator: FlowEstimator, example: ExamplePair
) -> None:
    part = example.image1[:HEIGHT, :WIDTH]
    darker = (0.8 * part + 10).astype(np.uint8)
    assert estimator(part, darker).length.mean() < 0.1


def test_a_shifted_picture_moves_by_the_shift(
    name: str, estimator: FlowEstimator, example: ExamplePair
) -> None:
    dx, dy = SHIFT
    first = example.image1[dy : dy + HEIGHT, dx : dx + WIDTH]
    second = example.image1[:HEIGHT, :WIDTH]
    inside = slice(MARGIN, -MARGIN)
    found = estimator(first, second).array[inside, inside]
    assert np.linalg.norm(found - SHIFT, axis=2).mean() < SHIFT_ERROR[name]


def test_the_example_is_far_better_than_no_motion(
    estimator: FlowEstimator, example: ExamplePair
) -> None:
    found = estimator(example.image1, example.image2).array
    error = np.linalg.norm(found - example.flow.array, axis=2).mean()
    assert error < 0.2 * example.flow.length.mean()
