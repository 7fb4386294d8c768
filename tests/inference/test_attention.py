import numpy as np
import pytest

from tests.inference.test_engine import make_estimator
from tests.inference.test_estimator import arrays

SIZE = (34, 45)  # padded to 40 x 48: a grid of 5 x 6 cells


def test_attention_of_a_point_sums_to_one() -> None:
    attention = make_estimator().attend(arrays(*SIZE)[0])
    cells = attention.cells([(0.0, 0.0), (44.0, 33.0)])
    assert cells.shape == (2, 5, 6)
    assert cells.min() >= 0
    assert np.allclose(cells.sum(dim=(1, 2)).numpy(), 1)


def test_pixels_of_one_cell_attend_alike() -> None:
    attention = make_estimator().attend(arrays(*SIZE)[0])
    left, top = attention.padding.left, attention.padding.top
    corner, inside, next_door = (
        attention.cells([(8.0 - left + x, 8.0 - top)]) for x in (0.0, 7.0, 8.0)
    )
    assert corner.equal(inside)
    assert not corner.equal(next_door)
    # A pixel reaches half a pixel to either side of its centre.
    assert next_door.equal(attention.cells([(16.0 - left - 0.4, 8.0 - top)]))
    assert corner.equal(attention.cells([(8.0 - left - 0.4, 8.0 - top)]))


@pytest.mark.parametrize("points", [[(3.0, 4.0)], [(3.0, 4.0), (40.0, 30.0)]])
def test_attention_of_an_encoded_frame_equals_that_of_its_image(
    points: list[tuple[float, float]],
) -> None:
    estimator = make_estimator()
    frame = arrays(*SIZE)[0]
    maps = estimator.attend(frame).maps(points)
    assert maps.shape == (len(points), *SIZE)
    assert np.array_equal(maps, estimator.attention(frame, points))


def test_a_map_is_where_the_image_lies_in_its_padding() -> None:
    estimator, frame = make_estimator(), arrays(*SIZE)[0]
    (height, width), pads = SIZE, estimator.attend(frame).padding
    sides = ((pads.top, pads.bottom), (pads.left, pads.right), (0, 0))
    padded = np.pad(frame, sides, mode="edge")
    x, y = 7.0, 29.0
    [expected] = estimator.attention(padded, [(x + pads.left, y + pads.top)])
    [found] = estimator.attention(frame, [(x, y)])
    expected = expected[pads.top : pads.top + height, pads.left : pads.left + width]
    assert np.array_equal(found, expected)


def test_no_points_give_no_maps() -> None:
    assert make_estimator().attention(arrays(*SIZE)[0], []).shape == (0, *SIZE)
