import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float32, UInt8

from gmaflow.errors import FlowError
from gmaflow.viz.warp import sample_bilinear, warp_back

HEIGHT, WIDTH = 9, 12


def noise() -> UInt8[np.ndarray, "9 12 3"]:
    return np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)


def shift(u: float, v: float) -> Float32[np.ndarray, "9 12 2"]:
    return np.broadcast_to(np.array([u, v], np.float32), (HEIGHT, WIDTH, 2)).copy()


@given(st.integers(-WIDTH - 2, WIDTH + 2), st.integers(-HEIGHT - 2, HEIGHT + 2))
def test_whole_pixels_are_copied_and_the_rest_is_grey(u: int, v: int) -> None:
    image = noise()
    warped = warp_back(image, shift(u, v))
    for y in range(HEIGHT):
        for x in range(WIDTH):
            inside = 0 <= x + u < WIDTH and 0 <= y + v < HEIGHT
            expected = image[y + v, x + u].tolist() if inside else [128, 128, 128]
            assert warped[y, x].tolist() == expected


def test_half_a_pixel_is_the_mean_of_two() -> None:
    image = noise()
    mean = (image[:, :-1].astype(np.float32) + image[:, 1:]) / 2
    assert np.array_equal(warp_back(image, shift(0.5, 0))[:, :-1], np.rint(mean))
    assert (warp_back(image, shift(0.5, 0))[:, -1] == 128).all()


def test_flow_that_is_not_finite_leads_nowhere() -> None:
    flow = shift(0, 0)
    flow[0, 0], flow[1, 1], flow[2, 2] = np.nan, np.inf, 1e30
    warped = warp_back(noise(), flow)
    assert (warped[[0, 1, 2], [0, 1, 2]] == 128).all()
    assert np.array_equal(warped[3:], noise()[3:])


@pytest.mark.parametrize("size", [(0, 0), (0, 4), (1, 1)])
def test_tiny_images_are_no_exception(size: tuple[int, int]) -> None:
    image = np.full((*size, 3), 9, np.uint8)
    assert np.array_equal(warp_back(image, np.zeros((*size, 2), np.float32)), image)


@given(st.floats(0, WIDTH - 1, width=32), st.floats(0, HEIGHT - 1, width=32))
def test_a_plane_is_read_exactly(x: float, y: float) -> None:
    columns, rows = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT))
    plane = np.stack([columns, rows, 2 * columns - 3 * rows], axis=-1).astype(np.float32)
    values = sample_bilinear(plane, np.array([x], np.float32), np.array([y], np.float32))
    assert values[0] == pytest.approx([x, y, 2 * x - 3 * y], abs=1e-4)


def test_beyond_the_border_the_border_is_read() -> None:
    image = noise()
    far = np.array([-5, 100, np.inf], np.float32)
    values = sample_bilinear(image, far, np.zeros(3, np.float32))
    assert np.array_equal(values, image[0, [0, -1, -1]])


def test_nan_reads_nan() -> None:
    nowhere = np.array([np.nan], np.float32)
    assert np.isnan(sample_bilinear(noise(), nowhere, np.zeros(1, np.float32))).all()


def test_an_empty_image_cannot_be_read() -> None:
    with pytest.raises(FlowError, match="no pixels"):
        sample_bilinear(np.zeros((0, 3, 3), np.uint8), *np.zeros((2, 1), np.float32))
