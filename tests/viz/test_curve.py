import numpy as np
import pytest

from gmaflow.viz.curve import draw_curves


def test_a_falling_curve_falls() -> None:
    picture = draw_curves({"error": [(0, 10.0), (500, 1.0), (1000, 0.1)]}, title="an error")
    assert picture.shape == (540, 960, 3)
    blue = (picture[..., 2].astype(int) - picture[..., 0]) > 100
    columns = [80, 500, 900]
    # Below the legend: the curve's own ink.
    heights = [np.nonzero(blue[90:, column])[0].mean() for column in columns[1:]]
    assert heights[0] < heights[1]


@pytest.mark.parametrize("points", [[], [(1, float("nan")), (2, 0.0)]])
def test_nothing_to_draw_is_an_empty_picture(points: list[tuple[float | int, float]]) -> None:
    for curves in ({}, {"error": points}):
        assert draw_curves(curves, title="").shape == (540, 960, 3)


def test_a_single_point_has_its_place() -> None:
    empty = draw_curves({}, title="")
    assert (draw_curves({"error": [(5, 2.0)]}, title="") != empty).any()
