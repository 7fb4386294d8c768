import numpy as np
import pytest
from jaxtyping import Float32, UInt8

from gmaflow.errors import FlowError
from gmaflow.viz.arrows import flow_arrows


def gray(height: int, width: int) -> UInt8[np.ndarray, "h w 3"]:
    return np.full((height, width, 3), 100, np.uint8)


def constant(height: int, width: int, u: float, v: float) -> Float32[np.ndarray, "h w 2"]:
    return np.broadcast_to(np.array([u, v], np.float32), (height, width, 2)).copy()


def test_an_arrow_points_where_the_flow_goes() -> None:
    # One arrow only, from the middle: its ink lies on the side of the motion.
    image = gray(41, 41)
    valid = np.zeros((41, 41), np.bool_)
    valid[20, 20] = True
    for u, v in ((1, 0), (-1, 0), (0, 1), (0, -1), (-0.7071, 0.7071), (0.7071, 0.7071)):
        picture = flow_arrows(image, constant(41, 41, u, v), spacing=20, valid=valid)
        y, x = np.nonzero((picture != picture[0, 0]).any(axis=2))
        along, across = (x - 20) * u + (y - 20) * v, (x - 20) * v - (y - 20) * u
        assert along.max() >= 17
        assert along.min() >= -3
        assert 4 <= across.max() <= 7
        assert -7 <= across.min() <= -4


def test_the_image_is_dimmed_where_there_is_no_arrow() -> None:
    picture = flow_arrows(gray(60, 60), constant(60, 60, 1, 0), valid=np.zeros((60, 60), np.bool_))
    assert (picture == 70).all()


@pytest.mark.parametrize("level", [0, 128, 255])
def test_arrows_show_on_any_ground(level: int) -> None:
    image = np.full((128, 192, 3), level, np.uint8)
    picture = flow_arrows(image, constant(128, 192, 0, -3)).astype(int)
    apart = np.abs(picture - picture[0, 0]).max(axis=2) > 60
    assert 0.05 < apart.mean() < 0.6


def test_arrows_have_soft_edges() -> None:
    image = np.full((64, 64, 3), 255, np.uint8)
    picture = flow_arrows(image, constant(64, 64, 1, 0.4))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10


def test_unknown_flow_has_no_arrows_and_does_no_harm() -> None:
    flow = constant(60, 60, 2, 1)
    expected = flow_arrows(gray(60, 60), flow, valid=np.arange(60)[None] < np.full((60, 1), 30))
    flow[:, 30:] = np.nan
    flow[:10, 30:] = 1e10
    assert np.array_equal(flow_arrows(gray(60, 60), flow), expected)


def test_no_motion_is_dots() -> None:
    picture = flow_arrows(gray(60, 60), constant(60, 60, 0, 0))
    assert 0 < (picture != 70).any(axis=2).mean() < 0.25


def test_a_lone_mover_among_the_still_is_seen() -> None:
    flow = constant(100, 100, 0, 0)
    still = flow_arrows(gray(100, 100), flow, spacing=20)
    flow[30:60, 30:60] = (5, 0)
    assert not np.array_equal(flow_arrows(gray(100, 100), flow, spacing=20), still)


@pytest.mark.parametrize("size", [(0, 0), (0, 5), (1, 1), (3, 200)])
def test_tiny_images_are_no_exception(size: tuple[int, int]) -> None:
    assert flow_arrows(gray(*size), constant(*size, 1, 1)).shape == (*size, 3)


def test_large_images_are_drawn_too() -> None:
    assert flow_arrows(gray(1000, 1001), constant(1000, 1001, 1, 1)).shape == (1000, 1001, 3)


def test_a_spacing_without_room_is_refused() -> None:
    with pytest.raises(FlowError, match="spacing of 3"):
        flow_arrows(gray(9, 9), constant(9, 9, 1, 1), spacing=3)


def test_nine_of_ten_arrows_fit_their_space_and_none_is_much_longer() -> None:
    flow = constant(100, 100, 1, 0)
    flow[:, 80:] *= 4
    expected = flow_arrows(gray(100, 100), flow, spacing=20, max_length=4.0)
    np.testing.assert_array_equal(flow_arrows(gray(100, 100), flow, spacing=20), expected)
    valid = np.zeros((41, 81), np.bool_)
    valid[20, 20] = True
    far = constant(41, 81, 100, 0)
    picture = flow_arrows(gray(41, 81), far, spacing=20, max_length=1.0, valid=valid)
    assert 44 <= np.nonzero((picture != picture[0, 0]).any(axis=2))[1].max() <= 47


def test_a_fixed_scale_makes_frames_comparable() -> None:
    image = np.zeros((60, 60, 3), np.uint8)
    slow, fast = (np.full((60, 60, 2), length, np.float32) for length in (1, 4))
    np.testing.assert_array_equal(flow_arrows(image, slow), flow_arrows(image, fast))
    drawn = [flow_arrows(image, flow, max_length=6.0) for flow in (slow, fast)]
    assert drawn[0].astype(bool).sum() < drawn[1].astype(bool).sum()
