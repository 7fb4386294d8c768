"""Curves in a frame with axes: enough to compare distributions, and no more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

from gmaflow.errors import FlowError
from gmaflow.viz._axes import Axis
from gmaflow.viz._draw import INK, WHITE, font, shorten, text_width

Color = tuple[int, int, int]

# Okabe and Ito's palette without its yellow, which is lost on white: told apart with any colour
# vision. The last is ours, for one more.
_COLORS: tuple[Color, ...] = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (230, 159, 0),
    (110, 110, 110),
    (90, 50, 150),
)
_GRID = (226, 226, 230)
_SHARP = 3  # drawn this many times larger, then reduced: Pillow's own lines are jagged
_SMALLEST = (160, 240)
_FEW = 12  # points of a curve that are worth a dot each: those were measured, the line was not


@dataclass(frozen=True, eq=False)
class Series:
    """One curve.

    Attributes:
        label: what the legend calls it.
        x: where its points stand, in order.
        y: how high.
        dashed: drawn with gaps, to tell one kind of curve from another.
        color: RGB; by default the next of the palette.
    """

    label: str
    x: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " m"]
    dashed: bool = False
    color: Color | None = None


class _Frame(NamedTuple):
    """The rectangle of the curves in pixels, and the axes along it."""

    left: float
    top: float
    right: float
    bottom: float
    across: Axis
    up: Axis

    def points(self, x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> np.ndarray:
        """Where in the picture points lie, as rows of x and y."""
        columns = self.left + self.across.place(x) * (self.right - self.left)
        rows = self.bottom - self.up.place(y) * (self.bottom - self.top)
        return np.stack([columns, rows], axis=1)


def line_plot(
    series: Sequence[Series],
    *,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
    log_x: bool = False,
    size: tuple[int, int] = (420, 840),
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Draw curves with axes, ticks and a legend.

    The vertical axis begins at 0 unless a value is below it.

    Args:
        series: one or more.
        x_label: what the horizontal axis measures, written below it.
        y_label: what the vertical axis measures, written above it.
        title: written at the top.
        log_x: equal steps to the right multiply x; every x must then be above 0.
        size: height and width of the picture.

    Returns:
        The picture.
    """
    _check(series, log_x, size)
    height, width = size
    text = int(np.clip(height / 30, 11, 26))
    legend = min(max(text_width(s.label, text) for s in series) + 4 * text, width // 3)
    heights = np.concatenate([[0.0], *(s.y for s in series)])
    frame = _Frame(
        left=5.0 * text,
        top=(4.5 if title else 2.5) * text,
        right=float(width - legend - text),
        bottom=height - 3.6 * text,
        across=Axis.around(np.concatenate([s.x for s in series]), log=log_x),
        up=Axis.around(heights),
    )
    colors = [s.color or _COLORS[i % len(_COLORS)] for i, s in enumerate(series)]
    picture = _curves(frame, series, colors, size, text)
    draw = ImageDraw.Draw(picture)
    _write_ticks(draw, frame, text)
    line = font(text)
    middle = (frame.left + frame.right) / 2
    draw.text((middle, height - text / 2), x_label, INK, line, anchor="mb")
    draw.text((text / 2, frame.top - text), y_label, INK, line, anchor="ls")
    draw.text((width / 2, text / 2), title, INK, font(round(1.2 * text)), anchor="mt")
    for i, one in enumerate(series):
        words = shorten(one.label, width=legend - 3 * text, size=text)
        at = (frame.right + 3.5 * text, frame.top + (1.6 * i + 0.6) * text)
        draw.text(at, words, INK, line, anchor="lm")
    return np.array(picture)


def _curves(
    frame: _Frame, series: Sequence[Series], colors: list[Color], size: tuple[int, int], text: int
) -> Image.Image:
    """Draw all that is no text."""
    picture = Image.new("RGB", (size[1] * _SHARP, size[0] * _SHARP), WHITE)
    draw = ImageDraw.Draw(picture)
    columns, rows = _tick_marks(frame, text)
    for x, _ in columns:
        _stroke(draw, [(x, frame.top), (x, frame.bottom)], _GRID, 1)
    for y, _ in rows:
        _stroke(draw, [(frame.left, y), (frame.right, y)], _GRID, 1)
    for i, (one, color) in enumerate(zip(series, colors, strict=True)):
        points = [(float(x), float(y)) for x, y in frame.points(one.x, one.y)]
        y = frame.top + (1.6 * i + 0.6) * text
        sample = [(frame.right + text, y), (frame.right + 3 * text, y)]
        for path in (points, sample):
            for piece in _dashes(path, text / 2) if one.dashed else [path]:
                _stroke(draw, piece, color, 2)
        if len(points) <= _FEW:
            for point in points:
                _dot(draw, point, color, text / 4)
    _stroke(
        draw,
        [(frame.left, frame.top), (frame.left, frame.bottom), (frame.right, frame.bottom)],
        INK,
        1,
    )
    return picture.reduce(_SHARP)


def _stroke(
    draw: ImageDraw.ImageDraw, path: list[tuple[float, float]], color: Color, width: int
) -> None:
    sharp = [((x + 0.5) * _SHARP, (y + 0.5) * _SHARP) for x, y in path]
    draw.line(sharp, fill=color, width=width * _SHARP, joint="curve")


def _dot(
    draw: ImageDraw.ImageDraw, point: tuple[float, float], color: Color, radius: float
) -> None:
    (left, right), (top, bottom) = (
        ((at + 0.5 - radius) * _SHARP, (at + 0.5 + radius) * _SHARP) for at in point
    )
    draw.ellipse((left, top, right, bottom), fill=color)


def _dashes(path: list[tuple[float, float]], dash: float) -> list[list[tuple[float, float]]]:
    """Cut a path into strokes with gaps, both about `dash` long."""
    points = np.array(path)
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    pieces = []
    for begin in np.arange(0, along[-1], 2 * dash):
        end = min(begin + dash, along[-1])
        inside = along[(along > begin) & (along < end)]
        at = np.concatenate([[begin], inside, [end]])
        where = (np.interp(at, along, points[:, c]).tolist() for c in (0, 1))
        pieces.append(list(zip(*where, strict=True)))
    return pieces


def _tick_marks(
    frame: _Frame, text: int
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Position and value of the ticks along both axes."""
    columns = np.array(frame.across.ticks(max(2, int((frame.right - frame.left) / (4 * text)))))
    rows = np.array(frame.up.ticks(max(2, int((frame.bottom - frame.top) / (3 * text)))))
    x = frame.left + frame.across.place(columns) * (frame.right - frame.left)
    y = frame.bottom - frame.up.place(rows) * (frame.bottom - frame.top)
    across = list(zip(x.tolist(), columns.tolist(), strict=True))
    return across, list(zip(y.tolist(), rows.tolist(), strict=True))


def _write_ticks(draw: ImageDraw.ImageDraw, frame: _Frame, text: int) -> None:
    columns, rows = _tick_marks(frame, text)
    for x, value in columns:
        draw.text((x, frame.bottom + text / 2), f"{value:g}", INK, font(text), anchor="mt")
    for y, value in rows:
        draw.text((frame.left - text / 2, y), f"{value:g}", INK, font(text), anchor="rm")


def _check(series: Sequence[Series], log_x: bool, size: tuple[int, int]) -> None:
    if not series:
        raise FlowError("got no series to plot; give at least one")
    if size[0] < _SMALLEST[0] or size[1] < _SMALLEST[1]:
        raise FlowError(
            f"a plot of {size[0]}x{size[1]} cannot be read; give at least "
            f"{_SMALLEST[0]}x{_SMALLEST[1]} (height x width)"
        )
    for one in series:
        if len(one.x) != len(one.y) or len(one.x) < 2:
            raise FlowError(
                f"series {one.label!r} has {len(one.x)} x and {len(one.y)} y; "
                "give as many of one as of the other, and at least two"
            )
        if not (np.isfinite(one.x).all() and np.isfinite(one.y).all()):
            raise FlowError(
                f"series {one.label!r} holds values that are not finite; leave them out"
            )
        if log_x and one.x.min() <= 0:
            raise FlowError(
                f"series {one.label!r} has an x of {one.x.min():g}; a log axis needs them above 0"
            )
