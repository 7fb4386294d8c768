import colorsys
import inspect
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float32, UInt8

from gmaflow.errors import FlowError
from gmaflow.viz.flow_colors import (
    _WHEEL,
    add_legend,
    color_wheel,
    flow_to_image,
    format_length,
    largest_length,
    valid_mask,
    zero_invalid,
)

ANGLES = st.floats(0.05, 2 * np.pi - 0.05)  # the code has a seam at 0, where the hue jumps a little
LENGTHS = st.floats(0.01, 1000)


def toward(angle: float, length: float = 1.0) -> Float32[np.ndarray, "1 1 2"]:
    return np.array([[[length * np.cos(angle), length * np.sin(angle)]]], np.float32)


def color_of(u: float, v: float, max_length: float = 1.0) -> tuple[int, ...]:
    picture = flow_to_image(np.array([[[u, v]]], np.float32), max_length=max_length)
    return tuple(picture[0, 0].tolist())


def random_flow(seed: int = 0) -> Float32[np.ndarray, "6 7 2"]:
    return np.random.default_rng(seed).normal(size=(6, 7, 2)).astype(np.float32)


def hue(picture: UInt8[np.ndarray, "1 1 3"]) -> float:
    return colorsys.rgb_to_hsv(*(picture[0, 0] / 255))[0]


def test_the_wheel_has_the_published_hues() -> None:
    assert _WHEEL.shape == (55, 3)
    corners = {
        0: (255, 0, 0),
        1: (255, 17, 0),
        15: (255, 255, 0),
        16: (213, 255, 0),
        21: (0, 255, 0),
        25: (0, 255, 255),
        36: (0, 0, 255),
        37: (19, 0, 255),
        49: (255, 0, 255),
        54: (255, 0, 43),
    }
    assert {i: tuple(_WHEEL[i].tolist()) for i in corners} == corners


def test_the_four_directions_have_the_published_colors() -> None:
    assert color_of(1, 0) == (255, 0, 0)  # entry 0
    assert color_of(0, 1) in {(255, 229, 0), (255, 230, 0)}  # half way from entry 13 to 14
    assert color_of(-1, 0) == (0, 209, 255)  # entry 27
    assert color_of(0, -1) == (88, 0, 255)  # half way from entry 40 to 41


def test_negative_zero_is_zero() -> None:
    assert color_of(1, -0.0) == color_of(1, 0.0)


def test_half_the_length_is_half_way_to_white() -> None:
    assert color_of(0.5, 0) in {(255, 127, 127), (255, 128, 128)}
    assert color_of(0.55, 0) == (255, 115, 115)  # 114.75


def test_beyond_the_scale_colors_are_darker_and_stay_so() -> None:
    assert color_of(2, 0) == color_of(50, 0) == (191, 0, 0)


def test_rounding_does_not_darken_the_longest_motion() -> None:
    longest = [-8.423566818237305, -18.06132698059082]  # above 1 when divided by its own length
    assert flow_to_image(np.array([[longest]], np.float32)).max() == 255


def test_no_motion_is_white() -> None:
    assert (flow_to_image(np.zeros((3, 4, 2), np.float32)) == 255).all()
    assert (flow_to_image(np.zeros((3, 4, 2), np.float32), max_length=2.0) == 255).all()


@given(ANGLES, LENGTHS)
def test_length_does_not_change_the_hue(angle: float, length: float) -> None:
    weak = flow_to_image(toward(angle, length), max_length=length * 1.01)
    strong = flow_to_image(toward(angle, 2 * length), max_length=2 * length * 1.01)
    assert np.abs(weak.astype(int) - strong).max() <= 1


@given(ANGLES)
def test_opposite_directions_look_unlike(angle: float) -> None:
    there, back = (flow_to_image(toward(a)).astype(int) for a in (angle, angle + np.pi))
    assert np.abs(there - back).max() > 100


def test_turning_the_flow_turns_the_hue_once_around() -> None:
    angles = np.linspace(0.01, 2 * np.pi - 0.2, 60)
    hues = [hue(flow_to_image(toward(angle), max_length=1.001)) for angle in angles]
    assert np.all(np.diff(hues) > 0)
    assert hues[0] < 0.01
    assert hues[-1] > 0.9


@given(st.floats(1e-3, 1e3), st.integers(0, 5))
def test_by_itself_the_scale_follows_the_flow(factor: float, seed: int) -> None:
    flow = random_flow(seed)
    scaled = flow_to_image(flow * np.float32(factor)).astype(int)
    assert np.abs(scaled - flow_to_image(flow)).max() <= 1


def test_a_fixed_scale_keeps_colors_from_picture_to_picture() -> None:
    small, large = random_flow(), random_flow() * 3
    small[0, 0] = large[0, 0] = (0.5, -1)
    a, b = (flow_to_image(flow, max_length=8.0)[0, 0].tolist() for flow in (small, large))
    assert a == b


def test_the_largest_length_is_the_default_scale() -> None:
    flow = random_flow()
    flow[2, 3] = (3, -4)
    assert largest_length(flow) == pytest.approx(5)
    assert np.array_equal(flow_to_image(flow), flow_to_image(flow, max_length=largest_length(flow)))


@pytest.mark.parametrize("unknown", [np.nan, np.inf, -np.inf, 1e10, 3e38])
def test_unknown_flow_is_black_and_does_not_set_the_scale(unknown: float) -> None:
    flow = random_flow()
    valid = np.ones((6, 7), np.bool_)
    valid[1, 1] = False
    expected = flow_to_image(flow, valid=valid)
    flow[1, 1, 0] = unknown
    picture = flow_to_image(flow)
    assert np.array_equal(picture, expected)
    assert picture[1, 1].tolist() == [0, 0, 0]


def test_invalid_pixels_are_black() -> None:
    flow = random_flow()
    valid = np.random.default_rng(1).random((6, 7)) > 0.5
    picture = flow_to_image(flow, valid=valid)
    assert (picture[~valid] == 0).all()
    assert picture[valid].any(axis=-1).all()
    assert not flow_to_image(flow, valid=np.zeros((6, 7), np.bool_)).any()


@pytest.mark.parametrize("size", [(0, 0), (0, 5), (5, 0), (1, 1)])
def test_tiny_flows_are_no_exception(size: tuple[int, int]) -> None:
    assert flow_to_image(np.zeros((*size, 2), np.float32)).shape == (*size, 3)
    assert largest_length(np.zeros((*size, 2), np.float32)) == 0


def test_a_scale_too_small_for_single_precision_is_survived() -> None:
    assert color_of(1, 0, max_length=1e-60) == (191, 0, 0)


@pytest.mark.filterwarnings("error")
def test_a_scale_too_large_for_single_precision_is_survived() -> None:
    assert (flow_to_image(np.ones((2, 2, 2), np.float32), max_length=1e300) == 255).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["f2", "f8", "i2", "u2"])
def test_other_kinds_of_numbers_do_not_overflow(dtype: str) -> None:
    flow = np.array([[[300, 0], [0, 200], [0, 0]]]).astype(dtype)
    mask = inspect.unwrap(valid_mask)(flow, None)  # without the tests' check of types
    u, v = inspect.unwrap(zero_invalid)(flow, mask)
    assert mask.all()
    np.testing.assert_array_equal(u * u + v * v, [[90_000, 40_000, 0]])


def test_rows_done_in_strips_are_the_same_rows() -> None:
    flow = np.random.default_rng(0).normal(size=(400, 700, 2)).astype(np.float32)
    whole = flow_to_image(flow, max_length=3.0)
    assert np.array_equal(whole[390:], flow_to_image(flow[390:], max_length=3.0))


def test_inputs_are_not_changed() -> None:
    flow = random_flow()
    flow[0, 0] = np.nan
    before = flow.copy()
    flow_to_image(flow)
    assert np.array_equal(flow, before, equal_nan=True)


def test_the_wheel_shows_each_motion_where_it_leads() -> None:
    wheel = color_wheel(101)
    assert wheel.shape == (101, 101, 3)
    assert wheel[50, 50].tolist() == [255, 255, 255]
    for corner in (wheel[0, 0], wheel[0, -1], wheel[-1, 0], wheel[-1, -1]):
        assert corner.tolist() == [255, 255, 255]
    for x, y in ((90, 50), (50, 80), (10, 50), (20, 30)):
        expected = color_of((x - 50) / 50.5, (y - 50) / 50.5)
        assert np.abs(wheel[y, x].astype(int) - expected).max() <= 1


def test_the_smallest_wheel_is_a_point() -> None:
    assert color_wheel(1).shape == (1, 1, 3)
    with pytest.raises(FlowError, match="0 pixels"):
        color_wheel(0)


def test_full_hd_is_quick() -> None:
    flow = np.zeros((1080, 1920, 2), np.float32)
    flow[..., 0] = 1
    start = time.perf_counter()
    flow_to_image(flow)
    assert time.perf_counter() - start < 2  # a tenth of it at rest; the rest is for busy machines


@pytest.mark.parametrize("size", [(72, 72), (128, 192), (436, 1024), (1080, 1920), (72, 2000)])
def test_the_legend_keeps_to_its_corner(size: tuple[int, int]) -> None:
    picture = np.full((*size, 3), 40, np.uint8)
    result = add_legend(picture, 12.3)
    rows, columns = (np.flatnonzero((result != picture).any(axis=(2, axis))) for axis in (1, 0))
    assert result.shape == picture.shape
    assert (
        0 < size[0] - 1 - rows[-1] == size[1] - 1 - columns[-1]
    )  # the same margin below and beside
    assert rows[0] > 0
    assert columns[0] > 0
    assert len(rows) < max(70, 0.4 * size[0])
    assert (picture == 40).all()


def test_the_label_is_not_clipped_by_its_plate() -> None:
    result = add_legend(np.full((200, 300, 3), 255, np.uint8), 123456.0)
    dark = np.flatnonzero((result.max(axis=2) < 100).any(axis=0))
    assert dark[-1] < 299 - 5
    assert dark[-1] - dark[0] > 30


def test_small_pictures_come_back_without_a_legend() -> None:
    for size in ((0, 0), (1, 1), (40, 300)):
        picture = np.full((*size, 3), 7, np.uint8)
        result = add_legend(picture, 1.0)
        assert np.array_equal(result, picture)
        assert result is not picture


def test_lengths_have_three_digits_at_most() -> None:
    lengths = (0.123, 1.0, 4.625, 12.34, 30.0, 99.96, 123.4, 12345.6)
    expected = ["0.123", "1", "4.62", "12.3", "30", "100", "123", "12346"]
    assert [format_length(length) for length in lengths] == expected
