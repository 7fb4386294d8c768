"""Text and blending, shared by the pictures that carry marks or words."""

from functools import cache

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageFont

WHITE = (255, 255, 255)
INK = (28, 28, 32)


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own scalable font: no file to find, the same on every machine."""
    return ImageFont.load_default(size=size)


def text_width(text: str, size: int) -> int:
    """Width of a line of text in whole pixels."""
    return int(np.ceil(font(size).getlength(text)))


def shorten(text: str, *, width: int, size: int) -> str:
    """Cut a line at the end, with an ellipsis, until it is no wider than `width` pixels."""
    line = " ".join(text.split())
    if text_width(line, size) <= width:
        return line
    for end in range(len(line) - 1, 0, -1):
        cut = line[:end].rstrip() + "…"
        if text_width(cut, size) <= width:
            return cut
    return ""


def blend(
    below: UInt8[np.ndarray, "h w 3"] | Float[np.ndarray, "h w 3"],
    above: UInt8[np.ndarray, "#h #w 3"] | Float[np.ndarray, "#h #w 3"],
    opacity: Float[np.ndarray, "#h #w 1"] | float,
) -> UInt8[np.ndarray, "h w 3"]:
    """Lay one picture over another; `opacity` 1 hides what is below."""
    over = np.asarray(opacity, dtype=np.float32)
    return np.rint(below * (1 - over) + above * over).astype(np.uint8)


def mark_point(
    picture: UInt8[np.ndarray, "h w 3"],
    point: tuple[float, float],
    *,
    color: tuple[int, int, int],
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw a ring with a dot at a point: a coloured line with dark edges shows on any ground."""
    height, width = picture.shape[:2]
    radius = max(4.0, min(height, width) / 20)
    sharp = 5  # drawn this many times larger, then reduced: Pillow's own circles are jagged

    side = 2 * int(np.ceil(radius * 1.5)) + 1
    left, top = (round(c) - side // 2 for c in point)
    middle = np.rint(np.subtract(point, (left, top)) * sharp).astype(int) + sharp // 2
    stamp = Image.new("RGBA", (side * sharp, side * sharp), (*INK, 0))
    draw = ImageDraw.Draw(stamp)
    line = radius * 0.3

    def ring(reach: float, thickness: float, tint: tuple[int, int, int]) -> None:
        # Whole numbers on both sides: Pillow cuts fractions off, and the ring would lean.
        extent = round(reach * sharp)
        box = [*(middle - extent).tolist(), *(middle + extent).tolist()]
        draw.ellipse(box, outline=tint, width=round(thickness * sharp))

    ring(radius + 0.5 * line, 2 * line, INK)
    ring(radius, line, color)
    ring(0.42 * radius, radius, INK)
    ring(0.26 * radius, radius, color)

    result = Image.fromarray(picture)
    small = stamp.reduce(sharp)
    result.paste(small, (left, top), small)
    return np.array(result)
