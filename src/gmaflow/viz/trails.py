"""Tracks as trails drawn over a frame."""

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image, ImageDraw

from gmaflow.io.images import check_image
from gmaflow.viz.flow_colors import INK
from gmaflow.viz.maps import blend, paste_reduced

_DOT_EVERY = 3.5
"""Thicknesses of a line from one dot of a hidden stretch to the next."""
_LONGEST_GUESS = 16
"""Where a hidden point jumps by more than this part of the shorter side, nothing is drawn."""


def position_colors(
    points: Float32[np.ndarray, "k 2"], *, height: int, width: int
) -> UInt8[np.ndarray, "k 3"]:
    """Give every point a colour by its position, so that neighbours stay recognisable.

    The hue runs from left to right, and points are lighter towards the top.
    """
    across = np.clip(points[:, 0] / max(1, width - 1), 0, 1)
    down = np.clip(points[:, 1] / max(1, height - 1), 0, 1)
    # Three waves that are a third apart; the full turn is left open, so that the ends differ.
    turn = 2 * np.pi * (0.83 * across[:, None] - np.array([0, 1, 2]) / 3)
    hue = np.clip(0.5 + 0.75 * np.cos(turn), 0, 1)
    light = (0.45 * (1 - down))[:, None]
    shade = (1 - 0.25 * down)[:, None]
    return np.rint(255 * (hue + (1 - hue) * light) * shade).astype(np.uint8)


def draw_trails(
    image: UInt8[np.ndarray, "h w 3"],
    positions: Float32[np.ndarray, "n k 2"],
    visible: Bool[np.ndarray, "n k"],
    colors: UInt8[np.ndarray, "k 3"],
    *,
    dim: float = 0.25,
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw the past positions of points; the last of the n frames is the one in the image.

    Trails get thinner and fainter towards the past. Stretches on which the point is hidden are
    dotted, and a point that is hidden now is a ring. Nothing is drawn where positions are NaN.

    Args:
        image: The last frame.
        positions: Where the points are, in pixels.
        visible: Where they are visible.
        colors: The colour of each point.
        dim: How much the image is darkened, from 0 to 1.
    """
    check_image(image)
    height, width = image.shape[:2]
    ground = blend(image, np.zeros((1, 1, 3), np.uint8), dim)
    if not positions.size:
        return ground
    # Large images need less anti-aliasing.
    sharp = 3 if height * width < 1_000_000 else 2
    layer = Image.new("RGBA", (width * sharp, height * sharp), (*INK, 0))
    draw = ImageDraw.Draw(layer)
    thickness = max(1.0, min(height, width) / 320)
    places = (positions.astype(np.float64) + 0.5) * sharp - 0.5
    tints = [tuple(tint) for tint in colors.tolist()]
    count = len(places)
    longest_guess = sharp * min(height, width) / _LONGEST_GUESS
    for n in range(count - 1):
        share = (n + 1) / max(1, count - 1)
        opacity = round(40 + 215 * share)
        line = max(1, round(sharp * thickness * (0.35 + 0.65 * share)))
        solid = visible[n] & visible[n + 1]
        for k in np.flatnonzero(np.isfinite(places[n : n + 2]).all(axis=(0, 2))):
            begin, end = places[n, k], places[n + 1, k]
            color = (*tints[k], opacity)
            if solid[k]:
                draw.line([*begin, *end], fill=color, width=line)
            elif np.hypot(*(end - begin)) < longest_guess:
                _dots(draw, begin, end, color, line)
    _heads(draw, places[-1], visible[-1], tints, sharp * thickness)
    return paste_reduced(ground, layer, sharp)


def _dots(
    draw: ImageDraw.ImageDraw,
    begin: np.ndarray,
    end: np.ndarray,
    color: tuple[int, ...],
    thickness: int,
) -> None:
    """Draw a dotted line; at least one dot, so that slow points leave a trail too."""
    steps = max(1, round(float(np.hypot(*(end - begin))) / (_DOT_EVERY * thickness)))
    radius = 0.5 * thickness
    for step in range(steps):
        x, y = begin + (end - begin) * (step / steps)
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=color)


def _heads(
    draw: ImageDraw.ImageDraw,
    places: np.ndarray,
    visible: np.ndarray,
    tints: list[tuple[int, ...]],
    unit: float,
) -> None:
    """Draw the points themselves: a dot where visible, a ring where hidden."""
    for k in np.flatnonzero(np.isfinite(places).all(axis=1)):
        x, y = places[k]
        radius = (1.9 if visible[k] else 2.4) * unit  # room for the last dot of a trail
        box = [x - radius, y - radius, x + radius, y + radius]
        rim = unit * 0.5  # dark, so that points are visible on bright images
        edge = [x - radius - rim, y - radius - rim, x + radius + rim, y + radius + rim]
        if visible[k]:
            draw.ellipse(edge, fill=(*INK, 160))
            draw.ellipse(box, fill=(*tints[k], 255))
        else:
            draw.ellipse(edge, outline=(*INK, 160), width=max(1, round(1.8 * unit)))
            draw.ellipse(box, outline=(*tints[k], 255), width=max(1, round(0.8 * unit)))
