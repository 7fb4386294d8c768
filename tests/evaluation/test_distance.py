import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmaflow.evaluation.distance import boundary_of, distance_to
from tests.evaluation import plain


def test_a_knights_move_is_the_root_of_5() -> None:
    mask = np.zeros((5, 6), bool)
    mask[2, 2] = True
    distance = distance_to(mask, limit=10)
    assert distance[2, 2] == 0
    assert distance[0, 1] == pytest.approx(5**0.5)
    assert distance[2, 5] == 3


def test_beyond_the_limit_is_infinitely_far() -> None:
    mask = np.zeros((1, 9), bool)
    mask[0, 0] = True
    assert distance_to(mask, limit=3)[0].tolist() == [0, 1, 2, 3, *[np.inf] * 5]


def test_nothing_is_near_nothing() -> None:
    assert np.isinf(distance_to(np.zeros((4, 5), bool), limit=100)).all()


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    height=st.integers(1, 14),
    width=st.integers(1, 14),
    share=st.floats(0, 1),
)
def test_it_is_what_trying_all_pixels_gives(
    seed: int, height: int, width: int, share: float
) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < share
    assert distance_to(mask, limit=40) == pytest.approx(plain.nearest(mask))
    assert (boundary_of(mask) == plain.boundary(mask)).all()


def test_the_border_of_the_image_is_no_boundary() -> None:
    assert not boundary_of(np.ones((3, 4), bool)).any()
