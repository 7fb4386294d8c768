"""Flow as colour: hue is direction, saturation is length.

The code is that of Baker et al., "A Database and Evaluation Methodology for Optical Flow" (IJCV
2011), so that our pictures can be laid beside everyone else's: right is red, down is yellow, left
is cyan and up is violet; white does not move, black is unknown.
"""

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from gmaflow.errors import FlowError
from gmaflow.io.sizes import check_same_size
from gmaflow.viz._checks import check_flow, check_positive
from gmaflow.viz._strips import strips

# Middlebury writes 1e10 where the truth is unknown and calls everything above this unknown.
_UNKNOWN = 1e9
# Dividing by less could overflow single precision; no real motion is that short.
_SHORTEST = 1e-9


def flow_to_image(
    flow: Float32[np.ndarray, "h w 2"],
    *,
    max_length: float | None = None,
    valid: Bool[np.ndarray, "h w"] | None = None,
) -> UInt8[np.ndarray, "h w 3"]:
    """Colour each pixel by its motion.

    Args:
        flow: motion in pixels.
        max_length: the length that gets the full colour; longer ones are darkened. By default the
            largest length in this flow. Give one to compare flows, or for the frames of a video.
        valid: where the flow is known. The rest, and whatever is not finite, is black.

    Returns:
        The picture.
    """
    check_flow(flow)
    check_same_size({"the flow": flow, "the valid mask": valid})
    known = known_pixels(flow, valid)
    if max_length is None:
        max_length = _largest(flow, known) or 1.0
    check_positive("max_length", max_length)

    scale = np.float32(max(max_length, _SHORTEST))
    picture = np.empty((*known.shape, 3), np.uint8)
    for rows in strips(*known.shape):
        u, v = without_unknown(flow[rows], known[rows])
        picture[rows] = _encode(u / scale, v / scale) * known[rows, :, None]
    return picture


def largest_length(
    flow: Float32[np.ndarray, "h w 2"], *, valid: Bool[np.ndarray, "h w"] | None = None
) -> float:
    """The longest motion in pixels: the scale that `flow_to_image` chooses by itself.

    Args:
        flow: motion, or the difference of two, in pixels.
        valid: where it is known.

    Returns:
        The length; 0 where nothing is known or nothing moves.
    """
    check_flow(flow)
    check_same_size({"the flow": flow, "the valid mask": valid})
    return _largest(flow, known_pixels(flow, valid))


def known_pixels(
    flow: Float32[np.ndarray, "h w 2"], valid: Bool[np.ndarray, "h w"] | None
) -> Bool[np.ndarray, "h w"]:
    """Where there is a flow to draw: valid, finite, and not Middlebury's mark for unknown."""
    # NaN compares false, so that this one test covers NaN, infinity and the mark.
    known = (np.abs(flow[..., 0]) < _UNKNOWN) & (np.abs(flow[..., 1]) < _UNKNOWN)
    return known if valid is None else known & valid


def without_unknown(
    flow: Float32[np.ndarray, "h w 2"], known: Bool[np.ndarray, "h w"]
) -> tuple[Float32[np.ndarray, "h w"], Float32[np.ndarray, "h w"]]:
    """Both components, 0 where unknown: NaN and infinity would make the arithmetic complain."""
    return np.where(known, flow[..., 0], 0), np.where(known, flow[..., 1], 0)


def color_wheel(
    size: int, *, background: tuple[int, int, int] = (255, 255, 255)
) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """The legend: a disc with the colour of each motion where that motion leads from the centre.

    Args:
        size: diameter in pixels.
        background: colour of the corners around the disc.

    Returns:
        The picture.
    """
    if size < 1:
        raise FlowError(f"a wheel of {size} pixels cannot be drawn; give a size of 1 or more")
    offset = np.arange(size, dtype=np.float32) - np.float32(size - 1) / 2
    x, y = np.meshgrid(offset, offset)
    length = np.hypot(x, y)
    radius = np.float32(size / 2)

    # Up to the rim only: beyond it, under the anti-aliased edge, the code would darken.
    stretch = 1 / np.maximum(length, radius)
    disc = _encode(x * stretch, y * stretch)
    inside = np.clip(radius - length + 0.5, 0, 1)[..., None]
    return np.rint(disc * inside + np.array(background, np.float32) * (1 - inside)).astype(np.uint8)


def _largest(flow: Float32[np.ndarray, "h w 2"], known: Bool[np.ndarray, "h w"]) -> float:
    u, v = without_unknown(flow, known)
    return float(np.sqrt(np.max(u * u + v * v, initial=0)))


def _wheel() -> Float32[np.ndarray, "55 3"]:
    """The hues in order, as the original's integer arithmetic gives them."""
    red, yellow, green = (255, 0, 0), (255, 255, 0), (0, 255, 0)
    cyan, blue, magenta = (0, 255, 255), (0, 0, 255), (255, 0, 255)
    # The eye tells more shades apart between some hues than between others, hence the counts.
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
    """Colour motions whose full length is 1."""
    radius = np.sqrt(u * u + v * v)
    # Adding 0 turns -0 into 0: the two lie on either side of the seam of the wheel.
    angle = np.arctan2(-(v + np.float32(0)), -u) / np.float32(np.pi)
    position = (angle + 1) * np.float32((len(_WHEEL) - 1) / 2)
    index = position.astype(np.intp)
    fraction = position - index.astype(np.float32)

    # A margin for rounding: the longest motion itself, divided by its length, may come out above 1.
    beyond = radius > np.float32(1 + 1e-5)
    picture = np.empty((*u.shape, 3), dtype=np.uint8)
    for c in range(3):
        hue = _WHEEL[:, c].take(index) + fraction * _WHEEL_STEP[:, c].take(index)
        shade = np.where(beyond, np.float32(0.75) * hue, 255 - radius * (255 - hue))
        picture[..., c] = np.rint(shade)
    return picture
