import logging
import sys
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowError
from gmaflow.viz import Series, line_plot, save_plot

BLUE = (0, 114, 178)  # of the first curve


def ramp(label: str = "ramp") -> Series:
    x = np.linspace(1, 5, 5)
    return Series(label, x, x)


def pixels(picture: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    """Rows and columns of the pixels of exactly that colour."""
    return np.argwhere((picture == color).all(axis=2))


def test_a_curve_rises_from_left_to_right() -> None:
    picture = line_plot([ramp()])
    assert picture.shape == (420, 840, 3)
    curve = pixels(picture, BLUE)
    rows, columns = curve[curve[:, 1] < 700].T
    assert np.corrcoef(rows, columns)[0, 1] < -0.95
    assert rows.max() - rows.min() > 120


def test_a_log_axis_makes_equal_factors_equal_steps() -> None:
    def middle(**more: bool) -> float:
        """Where the middle point lies between the other two, from 0 to 1."""
        x, y = np.array([1.0, 10.0, 100.0]), np.array([1.0, 0.0, 1.0])
        rows, columns = pixels(line_plot([Series("a", x, y)], **more), BLUE).T  # type: ignore[arg-type]
        lowest = columns[rows == rows.max()].mean()
        curve = np.unique(columns)
        curve = curve[: int(np.argmax(np.diff(curve))) + 1]  # without the legend
        return float((lowest - curve.min()) / (curve.max() - curve.min()))

    assert middle(log_x=True) == pytest.approx(0.5, abs=0.03)
    assert middle() == pytest.approx(0.1, abs=0.03)


def test_every_series_has_its_own_colour_and_label() -> None:
    one = line_plot([ramp("first")])
    both = line_plot([ramp("first"), Series("second", np.array([1.0, 5.0]), np.array([4.0, 4.0]))])
    assert (one != both).any()
    colors = {tuple(c) for c in both.reshape(-1, 3).tolist()}
    assert {(0, 114, 178), (213, 94, 0)} <= colors


def test_a_dashed_curve_has_gaps() -> None:
    flat = {"x": np.array([1.0, 9.0]), "y": np.array([3.0, 3.0])}
    solid = pixels(line_plot([Series("a", **flat)]), BLUE)  # type: ignore[arg-type]
    dashed = pixels(line_plot([Series("a", dashed=True, **flat)]), BLUE)
    assert 0.4 < len(dashed) / len(solid) < 0.7


def test_points_that_are_few_are_seen() -> None:
    def ink(n: int) -> int:
        flat = Series("a", np.linspace(1, 9, n), np.full(n, 3.0))
        return len(pixels(line_plot([flat]), BLUE))

    assert ink(12) > 1.2 * ink(13)


def test_words_appear_where_they_are_asked_for() -> None:
    bare = line_plot([ramp()])
    for words in ({"title": "t"}, {"x_label": "pixels"}, {"y_label": "share"}):
        assert (line_plot([ramp()], **words) != bare).any()  # type: ignore[arg-type]


def test_equal_values_still_have_an_axis() -> None:
    line_plot([Series("flat", np.array([2.0, 2.0]), np.zeros(2))], log_x=True)


def test_without_matplotlib_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert save_plot(tmp_path / "a.png", [ramp()])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(FlowError, match=r"pip install 'gmaflow\[plots\]'"):
        line_plot([ramp()])
    assert not save_plot(tmp_path / "b.png", [ramp()])
    assert "b.png is left out: a plot needs matplotlib" in caplog.text
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]
