import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.evaluation.figures import attention_figures, choose_queries
from gmaflow.inference import FlowEstimator
from tests.evaluation.conftest import random_estimator
from tests.evaluation.samples import make_sample

SIZE = (40, 56)
STILL = np.zeros((*SIZE, 2))


@given(st.integers(0, 35), st.integers(0, 50), st.integers(1, 12), st.integers(1, 12))
def test_hidden_pixels_are_asked_where_there_are_any(
    top: int, left: int, tall: int, wide: int
) -> None:
    hidden = np.zeros(SIZE, bool)
    hidden[top : top + tall, left : left + wide] = True
    queries = choose_queries(make_sample(STILL, occluded=hidden))
    asked = [bool(hidden[int(y), int(x)]) for x, y in queries]
    assert len(set(queries)) == 3
    # As many as there are, and a hidden point never stands behind one that only fills up.
    assert asked[: hidden.sum()] == [True] * min(3, hidden.sum())


def test_two_regions_are_both_asked_and_specks_are_not() -> None:
    hidden = np.zeros(SIZE, bool)
    hidden[5:15, 5:15] = hidden[25:35, 40:50] = True
    hidden[0, 55] = True
    queries = choose_queries(make_sample(STILL, occluded=hidden))
    assert {x > 30 for x, _ in queries} == {False, True}
    assert (55.0, 0.0) not in queries


@pytest.mark.parametrize("occluded", [None, np.zeros(SIZE, bool)])
def test_points_are_spread_where_nothing_is_hidden(occluded: np.ndarray | None) -> None:
    queries = choose_queries(make_sample(STILL, occluded=occluded))
    assert queries == ((14.0, 20.0), (28.0, 20.0), (42.0, 20.0))


def test_a_row_as_in_the_paper() -> None:
    sample = make_sample(STILL)
    queries = choose_queries(sample)
    figures = attention_figures(
        random_estimator(model="gma"), sample, STILL.astype(np.float32), queries, name="mine"
    )
    assert len(figures) == 5
    assert "query points of mine" in figures[0].caption
    assert all("attention map" in figure.caption for figure in figures[1:4])


def test_a_network_without_attention_shows_none(estimator: FlowEstimator) -> None:
    sample = make_sample(STILL)
    still = STILL.astype(np.float32)
    assert attention_figures(estimator, sample, still, choose_queries(sample)) == []
