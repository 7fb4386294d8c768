import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float32, UInt8

from gmaflow.errors import FlowError
from gmaflow.viz.maps import (
    attention_overlay,
    confidence_map,
    error_map,
    occlusion_layer,
    occlusion_overlay,
)


def errors_of(*errors: float) -> Float32[np.ndarray, "1 n 2"]:
    """A flow that is wrong by these lengths, if the truth is zero."""
    return np.array([[(0.6 * error, -0.8 * error) for error in errors]], np.float32)


def brightness(picture: UInt8[np.ndarray, "h w 3"]) -> Float32[np.ndarray, "h w"]:
    return ((picture / 255.0) ** 2.2 @ [0.2126, 0.7152, 0.0722]).astype(np.float32)


def test_a_larger_error_is_never_darker() -> None:
    flow = errors_of(*np.linspace(0, 80, 200))
    light = brightness(error_map(flow, np.zeros_like(flow)))[0]
    assert np.all(np.diff(light) >= 0)
    assert light[-1] > 10 * light[0]


def test_small_and_large_errors_are_distinguishable_in_one_picture() -> None:
    flow = errors_of(0, 0.5, 1, 3, 10, 30, 100)
    colors = error_map(flow, np.zeros_like(flow))[0].astype(int)
    assert np.abs(np.diff(colors, axis=0)).max(axis=1).min() > 20


def test_only_the_difference_counts() -> None:
    truth = np.random.default_rng(0).normal(size=(1, 4, 2)).astype(np.float32)
    wrong = errors_of(0, 1, 2, 4)
    expected = error_map(wrong, np.zeros_like(wrong), max_error=8.0)
    assert np.abs(error_map(truth + wrong, truth, max_error=8.0).astype(int) - expected).max() <= 1


def test_the_default_scale_ends_at_the_largest_error_or_at_one() -> None:
    zero = np.zeros((1, 2, 2), np.float32)
    for errors, last in (((1, 20), 20.0), ((0.1, 0.2), 1.0), ((0, 0), 1.0)):
        flow = errors_of(*errors)
        expected = error_map(flow, zero, max_error=last).astype(int)
        assert np.abs(error_map(flow, zero) - expected).max() <= 1


def test_unknown_pixels_are_black_on_either_side() -> None:
    flow, truth = errors_of(0, 1, 2, 3), errors_of(0, 0, 0, 0)
    flow[0, 0, 0], truth[0, 1, 1], truth[0, 2, 0] = np.nan, np.inf, 1e10
    valid = np.array([[True, True, True, False]])
    assert not error_map(flow, truth, valid=valid).any()
    assert error_map(flow, truth)[0, 3].any()


@pytest.mark.parametrize("size", [(0, 0), (0, 4), (1, 1)])
def test_tiny_pictures_are_no_exception(size: tuple[int, int]) -> None:
    flow = np.zeros((*size, 2), np.float32)
    assert error_map(flow, flow).shape == (*size, 3)
    assert confidence_map(np.zeros(size, np.float32)).shape == (*size, 3)


def test_more_confidence_is_lighter_and_nan_is_black() -> None:
    confidence = np.linspace(0, 1, 50, dtype=np.float32)[None]
    assert np.all(np.diff(brightness(confidence_map(confidence))[0]) > 0)
    unknown = np.array([[np.nan, -1, 2]], np.float32)
    picture = confidence_map(unknown)[0].tolist()
    ends = confidence_map(np.array([[0, 1]], np.float32))[0].tolist()
    assert picture == [[0, 0, 0], *ends]


def test_a_confidence_with_channels_is_refused() -> None:
    with pytest.raises(FlowError, match=r"confidence of shape \(2, 3, 1\)"):
        inspect.unwrap(confidence_map)(np.zeros((2, 3, 1), np.float32))


def test_each_kind_has_its_own_tint_and_the_rest_is_untouched() -> None:
    image = np.full((1, 4, 3), 100, np.uint8)
    inside = np.array([[False, True, False, True]])
    outside = np.array([[False, False, True, True]])
    plain, hidden, gone, both = occlusion_overlay(image, inside, outside)[0].astype(int)
    assert plain.tolist() == [100, 100, 100]
    assert hidden[0] > 150 > hidden[2]  # orange
    assert gone[2] > 150 > gone[0]  # blue
    assert both.tolist() == gone.tolist()


def test_the_image_shows_through() -> None:
    image = np.zeros((1, 2, 3), np.uint8)
    image[0, 1] = 255
    mask = np.ones((1, 2), np.bool_)
    dark, light = occlusion_overlay(image, mask, ~mask)[0].astype(int)
    assert (light - dark > 90).all()


def test_an_empty_image_stays_empty() -> None:
    mask = np.zeros((0, 0), np.bool_)
    assert occlusion_overlay(np.zeros((0, 0, 3), np.uint8), mask, mask).shape == (0, 0, 3)


def test_the_layer_laid_over_an_image_is_the_overlay() -> None:
    generator = np.random.default_rng(0)
    image = generator.integers(0, 256, (6, 8, 3), np.uint8)
    inside, outside = generator.random((2, 6, 8)) < 0.4
    layer = occlusion_layer(inside, outside).astype(float)
    opacity = layer[..., 3:] / 255
    laid = image * (1 - opacity) + layer[..., :3] * opacity
    assert np.abs(laid - occlusion_overlay(image, inside, outside)).max() <= 1
    assert not layer[~(inside | outside)].any()


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


def test_an_image_of_one_pixel_works() -> None:
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
