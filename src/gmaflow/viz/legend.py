"""The colour wheel and its scale, laid into a picture."""

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image, ImageDraw

from gmaflow.viz._checks import check_image, check_positive
from gmaflow.viz._draw import INK, WHITE, font, text_width
from gmaflow.viz.color import color_wheel, flow_to_image, largest_length

_SMALLEST = 72


def add_legend(
    picture: UInt8[np.ndarray, "h w 3"], max_length: float
) -> UInt8[np.ndarray, "h w 3"]:
    """Lay the colour wheel into the lower right corner, with the length of its rim below it.

    Args:
        picture: a picture from `flow_to_image`. With a side under 72 pixels it comes back as it is:
            a legend would hide more than it tells.
        max_length: the length of the full colour, in pixels: what `flow_to_image` was given, or
            `largest_length` of the flow.

    Returns:
        A new picture.
    """
    check_image(picture)
    check_positive("max_length", max_length)
    height, width = picture.shape[:2]
    if min(height, width) < _SMALLEST:
        return picture.copy()

    wheel = int(np.clip(min(height, width) / 5, 32, 180))
    size = int(np.clip(wheel / 5, 10, 26))
    label = f"{format_length(max_length)} px"
    pad = max(3, wheel // 14)
    plate_width = max(wheel, text_width(label, size)) + 2 * pad
    plate_height = wheel + size + 3 * pad

    plate = Image.new("RGB", (plate_width, plate_height), WHITE)
    disc = Image.fromarray(color_wheel(wheel))
    plate.paste(disc, ((plate_width - wheel) // 2, pad))
    middle = (plate_width / 2, wheel + 2 * pad + size / 2)
    ImageDraw.Draw(plate).text(middle, label, fill=INK, font=font(size), anchor="mm")

    result = Image.fromarray(picture)
    corner = (width - plate_width - pad, height - plate_height - pad)
    result.paste(plate, corner, _rounded(plate.size, radius=2 * pad))
    return np.array(result)


def flow_with_legend(
    flow: Float32[np.ndarray, "h w 2"],
    *,
    max_length: float | None = None,
    valid: Bool[np.ndarray, "h w"] | None = None,
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw a flow as `flow_to_image` does, and lay the wheel in; not where nothing moves."""
    picture = flow_to_image(flow, max_length=max_length, valid=valid)
    shown = max_length or largest_length(flow, valid=valid)
    return add_legend(picture, shown) if shown > 0 else picture


def format_length(length: float) -> str:
    """Three digits are all that a colour can tell: 0.12, 12.3, 123."""
    return f"{length:.0f}" if length >= 100 else f"{length:.3g}"


def _rounded(size: tuple[int, int], *, radius: int) -> Image.Image:
    """A mask with round corners, a little translucent."""
    sharp = 4
    mask = Image.new("L", (size[0] * sharp, size[1] * sharp), 0)
    box = (0, 0, size[0] * sharp - 1, size[1] * sharp - 1)
    ImageDraw.Draw(mask).rounded_rectangle(box, radius=radius * sharp, fill=235)
    return mask.reduce(sharp)
