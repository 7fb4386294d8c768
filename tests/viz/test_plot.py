import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmaflow.errors import FlowError
from gmaflow.viz import Series, line_plot
from gmaflow.viz._axes import Axis

RED, BLUE = (255, 0, 0), (0, 0, 255)


def ramp(label: str = "ramp", n: int = 5, **more: object) -> Series:
    x = np.linspace(1, n, n)
    return Series(label, x, x, **more)  # type: ignore[arg-type]


def pixels(picture: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    """Rows and columns of the pixels of exactly that colour."""
    return np.argwhere((picture == color).all(axis=2))


def test_a_curve_rises_from_left_to_right() -> None:
    picture = line_plot([ramp(color=RED)], size=(300, 600))
    assert picture.shape == (300, 600, 3)
    curve = pixels(picture[:, :450], RED)
    rows, columns = curve[curve[:, 1] < 430].T
    assert np.corrcoef(rows, columns)[0, 1] < -0.95
    assert rows.max() - rows.min() > 120


def test_a_log_axis_makes_equal_factors_equal_steps() -> None:
    x = np.array([1.0, 10.0, 100.0])
    assert np.allclose(Axis(1.0, 100.0, log=True).place(x), [0, 0.5, 1])
    assert np.allclose(Axis(0.0, 100.0).place(x), [0.01, 0.1, 1])


def test_every_series_has_its_own_colour_and_label() -> None:
    one = line_plot([ramp("first")])
    both = line_plot([ramp("first"), Series("second", np.array([1.0, 5.0]), np.array([4.0, 4.0]))])
    assert (one != both).any()
    colors = {tuple(c) for c in both.reshape(-1, 3).tolist()}
    assert {(0, 114, 178), (213, 94, 0)} <= colors


def test_a_dashed_curve_has_gaps() -> None:
    flat = {"x": np.array([1.0, 9.0]), "y": np.array([3.0, 3.0]), "color": RED}
    solid = pixels(line_plot([Series("a", **flat)]), RED)  # type: ignore[arg-type]
    dashed = pixels(line_plot([Series("a", dashed=True, **flat)]), RED)  # type: ignore[arg-type]
    assert 0.4 < len(dashed) / len(solid) < 0.7


def test_points_that_are_few_are_seen() -> None:
    def ink(n: int) -> int:
        flat = Series("a", np.linspace(1, 9, n), np.full(n, 3.0), color=RED)
        return len(pixels(line_plot([flat]), RED))

    assert ink(12) > 1.2 * ink(13)


def test_words_appear_where_they_are_asked_for() -> None:
    bare = line_plot([ramp()])
    for words in ({"title": "t"}, {"x_label": "pixels"}, {"y_label": "share"}):
        assert (line_plot([ramp()], **words) != bare).any()  # type: ignore[arg-type]


@settings(max_examples=200)
@given(
    st.floats(-1e6, 1e6, allow_subnormal=False),
    st.floats(1e-3, 1e6),
    st.integers(2, 12),
)
def test_linear_ticks_are_few_round_and_inside(low: float, span: float, most: int) -> None:
    ticks = Axis(low, low + span).ticks(most)
    assert 1 <= len(ticks) <= most
    slack = 1e-6 * span + 1e-9 * abs(low)
    assert low - slack <= ticks[0]
    assert ticks[-1] <= low + span + slack


@settings(max_examples=200)
@given(st.floats(-8, 6), st.floats(0.1, 9), st.integers(2, 12))
def test_log_ticks_are_few_and_inside(power: float, decades: float, most: int) -> None:
    low, high = 10**power, 10 ** (power + decades)
    ticks = Axis(low, high, log=True).ticks(most)
    assert len(ticks) <= most
    assert all(low * 0.999 <= tick <= high * 1.001 for tick in ticks)
    assert ticks or decades < 1.5


def test_ticks_are_the_numbers_a_person_would_choose() -> None:
    assert Axis(0.0, 1.0).ticks(6) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert Axis(0.1, 0.4).ticks(4) == [0.1, 0.2, 0.3, 0.4]
    assert Axis(0.1, 200.0, log=True).ticks(12)[:5] == [0.1, 0.2, 0.5, 1, 2]
    assert Axis(0.01, 1000.0, log=True).ticks(6) == [0.01, 0.1, 1, 10, 100, 1000]


def test_equal_values_still_have_an_axis() -> None:
    for log in (False, True):
        axis = Axis.around(np.array([3.0, 3.0]), log=log)
        assert axis.low <= 3 < axis.high
    line_plot([Series("flat", np.array([2.0, 2.0]), np.zeros(2))], log_x=True)


@pytest.mark.parametrize(
    ("series", "sentence"),
    [
        ([], "no series"),
        ([Series("a", np.ones(3), np.ones(2))], "3 x and 2 y"),
        ([Series("a", np.ones(1), np.ones(1))], "at least two"),
        ([Series("a", np.array([1.0, np.nan]), np.ones(2))], "not finite"),
        ([Series("a", np.array([0.0, 1.0]), np.ones(2))], "log axis needs them above 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(series: list[Series], sentence: str) -> None:
    with pytest.raises(FlowError, match=sentence):
        line_plot(series, log_x=True)


def test_a_tiny_plot_is_refused() -> None:
    with pytest.raises(FlowError, match="50x50 cannot be read"):
        line_plot([ramp()], size=(50, 50))
