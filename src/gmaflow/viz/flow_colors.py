"""Flow as colour: hue is direction, saturation is length; and the legend that explains it.

This is the colour code of Baker et al., "A Database and Evaluation Methodology for Optical Flow"
(IJCV 2011), which most publications use: right is red, down is yellow, left is cyan and up is
violet; white does not move, black is unknown.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image, ImageDraw, ImageFont

from gmaflow.errors import FlowError
from gmaflow.io.images import check_flow, check_image, check_positive, check_same_size

WHITE, INK = (255, 255, 255), (28, 28, 32)
# Large pictures are computed in strips that fit the processor's cache: about twice as fast.
_STRIP_PIXELS = 65_536
# Middlebury writes 1e10 where the ground truth is unknown; anything above this counts as unknown.
_UNKNOWN = np.float32(1e9)  # float16 cannot hold it
# Dividing by less could overflow single precision; no real motion is that short.
_SHORTEST = 1e-9
_SMALLEST_WITH_LEGEND = 72


def flow_to_image(
    flow: Float32[np.ndarray, "h w 2"],
    *,
    max_length: float | None = None,
    valid: Bool[np.ndarray, "h w"] | None = None,
) -> UInt8[np.ndarray, "h w 3"]:
    """Colour each pixel by its motion.

    Args:
        flow: motion in pixels.
        max_length: the length at full colour; longer motions are darkened. By default the largest
            length in this flow. Set it to compare flows, or for the frames of a video.
        valid: where the flow is known. Other pixels, and values that are not finite, are black.
    """
    check_flow(flow)
    check_same_size({"the flow": flow, "the valid mask": valid})
    mask = valid_mask(flow, valid)
    if max_length is None:
        max_length = _largest(flow, mask) or 1.0
    check_positive("max_length", max_length)

    scale = np.float32(np.clip(max_length, _SHORTEST, _UNKNOWN))
    picture = np.empty((*mask.shape, 3), np.uint8)
    for rows in strips(*mask.shape):
        u, v = zero_invalid(flow[rows], mask[rows])
        picture[rows] = _encode(u / scale, v / scale) * mask[rows, :, None]
    return picture


def largest_length(
    flow: Float32[np.ndarray, "h w 2"], *, valid: Bool[np.ndarray, "h w"] | None = None
) -> float:
    """The longest motion in pixels; 0 if no pixel is known or nothing moves."""
    check_flow(flow)
    check_same_size({"the flow": flow, "the valid mask": valid})
    return _largest(flow, valid_mask(flow, valid))


def valid_mask(
    flow: Float32[np.ndarray, "h w 2"], valid: Bool[np.ndarray, "h w"] | None
) -> Bool[np.ndarray, "h w"]:
    """The pixels to draw: valid, finite, and not marked as unknown."""
    # NaN compares false, so this one test covers NaN, infinity and Middlebury's mark.
    mask = (np.abs(flow[..., 0]) < _UNKNOWN) & (np.abs(flow[..., 1]) < _UNKNOWN)
    return mask if valid is None else mask & valid


def zero_invalid(
    flow: Float32[np.ndarray, "h w 2"], mask: Bool[np.ndarray, "h w"]
) -> tuple[Float32[np.ndarray, "h w"], Float32[np.ndarray, "h w"]]:
    """Both components in float32, with 0 where invalid; neither they nor squares overflow."""
    u, v = (np.where(mask, flow[..., i], 0).astype(np.float32, copy=False) for i in range(2))
    return u, v


def color_wheel(size: int) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """A disc in which each point has the colour of the motion from the centre to that point."""
    if size < 1:
        raise FlowError(f"got a colour wheel of {size} pixels; give a size of 1 or more")
    offset = np.arange(size, dtype=np.float32) - np.float32(size - 1) / 2
    x, y = np.meshgrid(offset, offset)
    length = np.hypot(x, y)
    radius = np.float32(size / 2)

    # Clamp to the rim: beyond it, under the anti-aliased edge, the colours would darken.
    stretch = 1 / np.maximum(length, radius)
    disc = _encode(x * stretch, y * stretch)
    inside = np.clip(radius - length + 0.5, 0, 1)[..., None]
    return np.rint(disc * inside + 255 * (1 - inside)).astype(np.uint8)


def add_legend(
    picture: UInt8[np.ndarray, "h w 3"], max_length: float
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw the colour wheel into the lower right corner, with the length at its rim below it.

    Args:
        picture: a picture from `flow_to_image`. If a side is under 72 pixels it is returned
            unchanged, since a legend would cover too much of it.
        max_length: the length at full colour, in pixels: the value given to `flow_to_image`, or
            `largest_length` of the flow.
    """
    check_image(picture)
    check_positive("max_length", max_length)
    height, width = picture.shape[:2]
    if min(height, width) < _SMALLEST_WITH_LEGEND:
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
    """Draw a flow as `flow_to_image` does, with the legend unless nothing moves."""
    picture = flow_to_image(flow, max_length=max_length, valid=valid)
    full_scale = max_length or largest_length(flow, valid=valid)
    return add_legend(picture, full_scale) if full_scale > 0 else picture


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


def format_length(length: float) -> str:
    """Write a length with at most three digits: 0.12, 12.3, 123."""
    return f"{length:.0f}" if length >= 100 else f"{length:.3g}"


def _rounded(size: tuple[int, int], *, radius: int) -> Image.Image:
    """A mask with round corners, slightly translucent."""
    sharp = 4
    mask = Image.new("L", (size[0] * sharp, size[1] * sharp), 0)
    box = (0, 0, size[0] * sharp - 1, size[1] * sharp - 1)
    ImageDraw.Draw(mask).rounded_rectangle(box, radius=radius * sharp, fill=235)
    return mask.reduce(sharp)


def _largest(flow: Float32[np.ndarray, "h w 2"], mask: Bool[np.ndarray, "h w"]) -> float:
    u, v = zero_invalid(flow, mask)
    return float(np.sqrt(np.max(u * u + v * v, initial=0)))


def _wheel() -> Float32[np.ndarray, "55 3"]:
    """The hues in order, computed with the integer arithmetic of the original code."""
    red, yellow, green = (255, 0, 0), (255, 255, 0), (0, 255, 0)
    cyan, blue, magenta = (0, 255, 255), (0, 0, 255), (255, 0, 255)
    # From motion to the right, clockwise. The eye distinguishes more shades between some hues than
    # between others, hence the counts.
    arcs = (
        (15, red, yellow),
        (6, yellow, green),
        (4, green, cyan),
        (11, cyan, blue),
        (13, blue, magenta),
        (6, magenta, red),
    )
    hues = [
        np.add(start, np.sign(np.subtract(end, start)) * (255 * step // count))
        for count, start, end in arcs
        for step in range(count)
    ]
    return np.asarray(hues, dtype=np.float32)


_WHEEL = _wheel()
_WHEEL_STEP = np.roll(_WHEEL, -1, axis=0) - _WHEEL


def _encode(
    u: Float32[np.ndarray, "h w"], v: Float32[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Colour motions that are scaled so that full colour is at length 1."""
    radius = np.sqrt(u * u + v * v)
    # Adding 0 turns -0 into 0: the two are on either side of the seam of the wheel.
    angle = np.arctan2(-(v + np.float32(0)), -u) / np.float32(np.pi)
    position = (angle + 1) * np.float32((len(_WHEEL) - 1) / 2)
    index = position.astype(np.intp)
    fraction = position - index.astype(np.float32)

    # A margin for rounding: the longest motion divided by its own length may be slightly above 1.
    beyond = radius > np.float32(1 + 1e-5)
    picture = np.empty((*u.shape, 3), dtype=np.uint8)
    for c in range(3):
        hue = _WHEEL[:, c].take(index) + fraction * _WHEEL_STEP[:, c].take(index)
        shade = np.where(beyond, np.float32(0.75) * hue, 255 - radius * (255 - hue))
        picture[..., c] = np.rint(shade)
    return picture
