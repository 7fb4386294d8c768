import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.errors import FlowError
from gmaflow.viz.attention import attention_overlay, attention_panel

IMAGE = np.full((64, 96, 3), 90, np.uint8)


@given(st.integers(0, 7), st.integers(0, 11))
def test_it_is_brightest_where_the_attention_is(row: int, column: int) -> None:
    attention = np.full((8, 12), 0.01, np.float32)
    attention[row, column] = 1
    query = (95.0, 63.0) if row < 4 else (0.0, 0.0)
    picture = attention_overlay(IMAGE, attention, query).sum(axis=2)
    # The marker is bright, too.
    far = np.hypot(np.arange(96) - query[0], np.arange(64)[:, None] - query[1]) > 9
    brightest = int(np.where(far, picture, 0).argmax())
    assert (brightest // 96 // 8, brightest % 96 // 8) == (row, column)


def test_only_ratios_matter() -> None:
    attention = np.random.default_rng(0).random((8, 12)).astype(np.float32)
    a, b = (attention_overlay(IMAGE, attention * f, (5.0, 5.0)).astype(int) for f in (1, 1 / 1024))
    assert np.array_equal(a, b)


def test_the_marker_is_at_the_query() -> None:
    none = np.zeros((8, 12), np.float32)
    plain = attention_overlay(IMAGE, none, (95.0, 63.0))
    marked = attention_overlay(IMAGE, none, (30.0, 20.0))
    y, x = np.nonzero((plain != marked)[:50, :80].any(axis=2))
    assert (x.mean(), y.mean()) == (30, 20)
    assert marked[20, 30].max() > 200


def test_weights_that_are_not_numbers_count_as_none() -> None:
    attention = np.ones((8, 12), np.float32)
    attention[0] = 0
    expected = attention_overlay(IMAGE, attention, (50.0, 50.0))
    attention[0, :4] = np.nan, np.inf, -np.inf, -3
    assert np.array_equal(attention_overlay(IMAGE, attention, (50.0, 50.0)), expected)


def test_an_image_of_one_pixel_is_no_exception() -> None:
    picture = attention_overlay(
        np.zeros((1, 1, 3), np.uint8), np.ones((1, 1), np.float32), (0.0, 0.0)
    )
    assert picture.shape == (1, 1, 3)


@pytest.mark.parametrize("query", [(-1.0, 0.0), (96.0, 0.0), (0.0, 64.0), (float("nan"), 0.0)])
def test_a_query_outside_the_image_is_refused(query: tuple[float, float]) -> None:
    with pytest.raises(
        FlowError, match=r"not in the image; give x from 0 to 95 and y from 0 to 63"
    ):
        attention_overlay(IMAGE, np.ones((8, 12), np.float32), query)


def test_a_map_without_cells_is_refused() -> None:
    with pytest.raises(FlowError, match=r"attention map of shape \(0, 12\)"):
        attention_overlay(IMAGE, np.ones((0, 12), np.float32), (0.0, 0.0))


def test_the_panel_shows_frame_maps_and_flow_in_a_row() -> None:
    maps = [np.eye(8, 12, dtype=np.float32)] * 3
    queries = [(10.0, 10.0), (40.0, 30.0), (80.0, 50.0)]
    without = attention_panel(IMAGE, maps, queries)
    flow = np.zeros((64, 96, 2), np.float32)
    assert without.shape[1] == 4 * (96 + 4) + 4
    assert attention_panel(IMAGE, maps, queries, flow=flow).shape[1] == 5 * (96 + 4) + 4


def test_the_panel_draws_flow_to_the_scale_it_is_given() -> None:
    maps, queries = [np.ones((8, 12), np.float32)], [(10.0, 10.0)]
    flow = np.full((64, 96, 2), 3, np.float32)
    pale, full = (
        attention_panel(IMAGE, maps, queries, flow=flow, max_length=length)
        for length in (100.0, 4.5)
    )
    np.testing.assert_array_equal(pale[:, :200], full[:, :200])
    assert pale[40, -50].min() > full[40, -50].min() + 50


def test_maps_and_queries_go_in_pairs() -> None:
    panel = inspect.unwrap(attention_panel)
    with pytest.raises(FlowError, match="0 attention maps for 0 query points"):
        panel(IMAGE, [], [])
    with pytest.raises(FlowError, match="1 attention maps for 2 query points"):
        panel(IMAGE, [np.ones((8, 12), np.float32)], [(0.0, 0.0), (1.0, 1.0)])
