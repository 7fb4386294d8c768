"""Curves over steps, as a picture."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, log10

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from gmaflow.viz._draw import INK, WHITE, font, text_width

_SIZE = (960, 540)
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 24, 56, 44
_GRID = (222, 222, 226)
_COLORS = ((20, 108, 190), (222, 110, 24), (34, 140, 82), (150, 70, 170), (190, 40, 60))
_SHARP = 3


def draw_curves(
    curves: Mapping[str, Sequence[tuple[float | int, float]]], *, title: str
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw named curves of (x, y) points; y is positive and on a logarithmic scale."""
    shown = {
        name: [(x, y) for x, y in points if np.isfinite(y) and y > 0]
        for name, points in curves.items()
    }
    shown = {name: points for name, points in shown.items() if points}
    width, height = _SIZE
    # Drawn larger, then reduced: Pillow's own lines are jagged.
    picture = Image.new("RGB", (width * _SHARP, height * _SHARP), WHITE)
    draw = ImageDraw.Draw(picture)
    _write(draw, (_LEFT, 14), title, 17)
    if shown:
        frame = _Frame(shown)
        frame.draw_grid(draw)
        for number, (name, points) in enumerate(shown.items()):
            color = _COLORS[number % len(_COLORS)]
            places = [frame.place(x, y) for x, y in points]
            for begin, end in pairwise(places):
                draw.line([*begin, *end], fill=color, width=2 * _SHARP)
            x, y = places[-1]
            draw.ellipse([x - 9, y - 9, x + 9, y + 9], fill=color)
            label = f"{name}: {points[-1][1]:.3g}"
            left = width - _RIGHT - text_width(label, 14) - 8
            _write(draw, (left, _TOP + 8 + 20 * number), label, 14, color)
    return np.array(picture.reduce(_SHARP))


class _Frame:
    """From values to places in the picture."""

    def __init__(self, curves: Mapping[str, Sequence[tuple[float | int, float]]]) -> None:
        xs = [x for points in curves.values() for x, _ in points]
        ys = [log10(y) for points in curves.values() for _, y in points]
        self.x0, self.x1 = min(xs), max(*xs, min(xs) + 1)
        self.y0, self.y1 = min(ys) - 0.05, max(ys) + 0.05

    def place(self, x: float, y: float) -> tuple[float, float]:
        width, height = _SIZE
        across = (x - self.x0) / (self.x1 - self.x0)
        up = (log10(y) - self.y0) / (self.y1 - self.y0)
        left = _LEFT + across * (width - _LEFT - _RIGHT)
        top = height - _BOTTOM - up * (height - _TOP - _BOTTOM)
        return left * _SHARP, top * _SHARP

    def draw_grid(self, draw: ImageDraw.ImageDraw) -> None:
        width, height = _SIZE
        for y in self.levels():
            row = self.place(self.x0, y)[1]
            draw.line([_LEFT * _SHARP, row, (width - _RIGHT) * _SHARP, row], _GRID, _SHARP)
            label = f"{y:g}"
            _write(draw, (_LEFT - 8 - text_width(label, 13), row / _SHARP - 8), label, 13)
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            x = self.x0 + share * (self.x1 - self.x0)
            label = f"{x:,.0f}"
            column = self.place(x, 10**self.y0)[0] / _SHARP
            _write(draw, (column - text_width(label, 13) / 2, height - _BOTTOM + 10), label, 13)

    def levels(self) -> list[float]:
        """The values 1, 2 and 5 times powers of ten within the frame."""
        powers = range(floor(self.y0), ceil(self.y1) + 1)
        values = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        return [value for value in values if self.y0 <= log10(value) <= self.y1]


def _write(
    draw: ImageDraw.ImageDraw,
    at: tuple[float | int, float | int],
    text: str,
    size: int,
    color: tuple[int, int, int] = INK,
) -> None:
    draw.text((at[0] * _SHARP, at[1] * _SHARP), text, color, font(size * _SHARP))
