import inspect
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import UInt8

from gmaflow import viz
from gmaflow.errors import FlowError, ImageError
from gmaflow.io.images import check_flow, check_image, check_positive
from gmaflow.viz.flow_colors import strips, text_width
from gmaflow.viz.maps import EMBER, REEF, blend, colorize
from gmaflow.viz.panels import shorten

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)


@given(PRINTABLE, st.integers(0, 300), st.integers(10, 30))
def test_a_shortened_line_fits(text: str, width: int, size: int) -> None:
    short = shorten(text, width=width, size=size)
    assert text_width(short, size) <= width
    assert short == "" or short.split() == text.split() or short.endswith("…")


def test_a_line_that_fits_is_not_changed() -> None:
    assert shorten("Flow", width=200, size=12) == "Flow"
    assert shorten("two\nlines", width=200, size=20) == "two lines"
    assert shorten("two lines", width=200, size=12) == "two  lines"  # its space is too narrow
    assert shorten("Frame number one", width=50, size=12).startswith("Fr")


def test_blending_goes_from_below_to_above() -> None:
    below, above = np.full((2, 2, 3), 10, np.uint8), np.full((2, 2, 3), 210, np.uint8)
    assert (blend(below, above, 0.0) == below).all()
    assert (blend(below, above, 1.0) == above).all()
    assert (blend(below, above, 0.25) == 60).all()


IMAGE = np.zeros((4, 5, 3), np.uint8)
FLOW = np.zeros((4, 5, 2), np.float32)
WIDE = np.zeros((4, 6, 2), np.float32)
MASK = np.zeros((4, 5), np.bool_)
WIDE_MASK = np.zeros((4, 6), np.bool_)
MAP = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    ("function", "arguments", "options"),
    [
        (viz.flow_to_image, (FLOW,), {"valid": WIDE_MASK}),
        (viz.largest_length, (FLOW,), {"valid": WIDE_MASK}),
        (viz.flow_arrows, (IMAGE, WIDE), {}),
        (viz.flow_arrows, (IMAGE, FLOW), {"valid": WIDE_MASK}),
        (viz.warp_back, (IMAGE, WIDE), {}),
        (viz.error_map, (FLOW, WIDE), {}),
        (viz.error_map, (FLOW, FLOW), {"valid": WIDE_MASK}),
        (viz.occlusion_overlay, (IMAGE, MASK, WIDE_MASK), {}),
        (viz.attention_panel, (IMAGE, [MAP], [(0.0, 0.0)]), {"flow": WIDE}),
    ],
)
def test_sizes_that_differ_are_refused_with_both_of_them(
    function: Callable[..., object], arguments: tuple[object, ...], options: dict[str, object]
) -> None:
    # Unwrapped, as users call it: the shape checks of the test run would speak up first.
    with pytest.raises(FlowError, match=r"4x5 .* 4x6 .*height x width.*crop or resize"):
        inspect.unwrap(function)(*arguments, **options)


@pytest.mark.parametrize("function", [viz.flow_to_image, viz.largest_length])
def test_a_flow_with_its_channels_in_front_is_refused(function: Callable[..., object]) -> None:
    with pytest.raises(FlowError, match=r"\(2, 4, 5\)"):
        inspect.unwrap(function)(FLOW.transpose(2, 0, 1))


def test_check_flow_names_the_expected_shape() -> None:
    check_flow(FLOW)
    with pytest.raises(
        FlowError, match=r"a truth of shape \(2, 4, 5\); give it as \(height, width"
    ):
        check_flow(FLOW.transpose(2, 0, 1), name="truth")


@pytest.mark.parametrize("image", [IMAGE[..., 0], IMAGE[..., :2], IMAGE.astype(np.float32)])
def test_only_rgb_bytes_are_images(image: np.ndarray) -> None:
    with pytest.raises(ImageError, match=r"give an RGB image as uint8"):
        check_image(image)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_are_above_zero(value: float) -> None:
    with pytest.raises(FlowError, match=r"max_length is .*; give a number above 0"):
        check_positive("max_length", value)


@pytest.mark.parametrize(
    ("function", "arguments", "scale"),
    [
        (viz.flow_to_image, (FLOW,), "max_length"),
        (viz.add_legend, (IMAGE,), "max_length"),
        (viz.flow_arrows, (IMAGE, FLOW), "max_length"),
        (viz.error_map, (FLOW, FLOW), "max_error"),
    ],
)
def test_every_scale_is_checked(
    function: Callable[..., object], arguments: tuple[object, ...], scale: str
) -> None:
    with pytest.raises(FlowError, match=f"{scale} is 0; give a number above 0"):
        function(*arguments, **{scale: 0.0})


@pytest.mark.parametrize("ramp", [EMBER, REEF])
def test_more_is_always_lighter_and_nothing_is_near_black(ramp: UInt8[np.ndarray, "256 3"]) -> None:
    linear = (ramp / 255.0) ** 2.2
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    assert np.all(np.diff(luminance[::3]) > 0)
    assert ramp.max(axis=1).min() > 64


def test_values_outside_are_clipped_and_nan_is_black() -> None:
    values = np.array([-1, 0, 1, 7, np.inf, np.nan], np.float32)
    low, high = EMBER[0].tolist(), EMBER[-1].tolist()
    assert colorize(values, EMBER).tolist() == [low, low, high, high, high, [0, 0, 0]]


@given(st.integers(0, 3000), st.integers(0, 200_000))
def test_every_row_is_met_once_and_in_order(height: int, width: int) -> None:
    rows = list(range(height))
    assert [row for part in strips(height, width) for row in rows[part]] == rows
