"""What the pictures share: input checks, colour ramps, text, blending and markers."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Float32, UInt8
from PIL import Image, ImageDraw, ImageFont

from gmaflow.errors import FlowError, ImageError

WHITE = (255, 255, 255)
INK = (28, 28, 32)

# Lightness grows from 0 to 1, so that more looks like more. Both ramps start well above black,
# which means unknown, and run from blue to yellow, which every kind of colour vision separates.
_EMBER = (
    (38, 34, 98),
    (102, 36, 130),
    (178, 48, 118),
    (232, 86, 78),
    (250, 160, 56),
    (255, 246, 178),
)
_REEF = (
    (52, 24, 72),
    (56, 70, 132),
    (34, 118, 142),
    (44, 164, 130),
    (138, 206, 92),
    (250, 242, 130),
)
# Large pictures are computed in strips that fit the processor's cache: about twice as fast.
_STRIP_PIXELS = 65_536


def check_image(image: npt.NDArray[Any]) -> None:
    """Refuse anything but a (height, width, 3) image of uint8."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ImageError(
            f"got an image of {image.dtype} {image.shape}; "
            "give an RGB image as uint8 (height, width, 3)"
        )


def check_flow(flow: npt.NDArray[Any], *, name: str = "flow") -> None:
    """Refuse anything but (height, width, 2), such as a flow with its channels first."""
    if flow.ndim != 3 or flow.shape[2] != 2:
        raise FlowError(
            f"got a {name} of shape {flow.shape}; give it as (height, width, 2), x before y"
        )


def check_positive(name: str, value: float) -> None:
    """Refuse a scale that is zero, negative or not a number."""
    if not (math.isfinite(value) and value > 0):
        raise FlowError(f"{name} is {value}; give a number above 0, or omit it")


def _table(stops: tuple[tuple[int, int, int], ...]) -> UInt8[np.ndarray, "256 3"]:
    at = np.linspace(0, 1, 256)
    where = np.linspace(0, 1, len(stops))
    channels = [np.interp(at, where, channel) for channel in zip(*stops, strict=True)]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8)


EMBER = _table(_EMBER)
"""The ramp of errors and attention."""
REEF = _table(_REEF)
"""The ramp of confidence."""


def colorize(
    values: Float32[np.ndarray, "*shape"], ramp: UInt8[np.ndarray, "256 3"]
) -> UInt8[np.ndarray, "*shape 3"]:
    """Map values from 0 to 1 to colours; values outside are clipped and NaN becomes black."""
    known = ~np.isnan(values)
    index = np.rint(np.clip(np.where(known, values, 0), 0, 1) * 255).astype(np.intp)
    picture = ramp.take(index, axis=0)
    picture[~known] = 0
    return picture


def strips(height: int, width: int) -> Iterator[slice]:
    """Split the rows of a picture into slices that fit the processor's cache."""
    rows = max(1, _STRIP_PIXELS // max(1, width))
    return (slice(top, top + rows) for top in range(0, height, rows))


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Load Pillow's built-in scalable font, which is the same on every machine."""
    return ImageFont.load_default(size=size)


def text_width(text: str, size: int) -> int:
    """Width of a line of text in whole pixels."""
    return int(np.ceil(font(size).getlength(text)))


def shorten(text: str, *, width: int, size: int) -> str:
    """Cut a line at the end, with an ellipsis, until it is at most `width` pixels wide."""
    # Hinting leaves a space of small letters only two or three pixels.
    line = ("  " if size <= 16 else " ").join(text.split())
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
    """Draw one picture over another; with an opacity of 1 only `above` is visible."""
    over = np.asarray(opacity, dtype=np.float32)
    return np.rint(below * (1 - over) + above * over).astype(np.uint8)


def mark_point(
    picture: UInt8[np.ndarray, "h w 3"],
    point: tuple[float, float],
    *,
    color: tuple[int, int, int],
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw a ring with a dot at a point, outlined so that it is visible on any background."""
    height, width = picture.shape[:2]
    radius = max(4.0, min(height, width) / 20)
    sharp = 5  # drawn at this scale, then reduced: Pillow's own circles are jagged

    side = 2 * int(np.ceil(radius * 1.5)) + 1
    left, top = (round(c) - side // 2 for c in point)
    middle = np.rint(np.subtract(point, (left, top)) * sharp).astype(int) + sharp // 2
    stamp = Image.new("RGBA", (side * sharp, side * sharp), (*INK, 0))
    draw = ImageDraw.Draw(stamp)
    line = radius * 0.3

    def ring(reach: float, thickness: float, tint: tuple[int, int, int]) -> None:
        # Whole numbers on both sides: Pillow truncates fractions, and the ring would be off centre.
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
