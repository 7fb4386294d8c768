"""Values per pixel drawn as pictures: errors, confidence, occlusion and attention."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Float32, UInt8
from PIL import Image, ImageDraw

from gmaflow.errors import FlowError
from gmaflow.io.images import check_flow, check_image, check_positive, check_same_size
from gmaflow.viz.flow_colors import INK, valid_mask, zero_invalid

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

# Errors span from a tenth of a pixel to a hundred. The scale is linear below this error and
# logarithmic above it, so that both ends are visible in one picture.
_KNEE = 0.5

# Orange and blue are distinguishable with nearly every kind of colour vision.
_IN_FRAME = (255, 140, 0)
_OUT_OF_FRAME = (30, 120, 255)
_OPACITY = 0.6
_TINT = 0.25
"""How much what moves by itself is tinted."""

# None of these colours occurs in the ramp of the attention maps.
_MARKERS = ((90, 255, 150), (80, 220, 255), (255, 255, 255), (255, 150, 255), (190, 255, 60))


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
    mask = ~np.isnan(values)
    index = np.rint(np.clip(np.where(mask, values, 0), 0, 1) * 255).astype(np.intp)
    picture = ramp.take(index, axis=0)
    picture[~mask] = 0
    return picture


def error_map(
    flow: Float32[np.ndarray, "h w 2"],
    truth: Float32[np.ndarray, "h w 2"],
    *,
    valid: Bool[np.ndarray, "h w"] | None = None,
    max_error: float | None = None,
) -> UInt8[np.ndarray, "h w 3"]:
    """Colour each pixel by its end-point error on a log scale, from dark (0) to light.

    Args:
        flow: the estimate.
        truth: the ground truth.
        valid: where the truth is known. Other pixels, and values that are not finite, are black.
        max_error: the error in pixels at the end of the scale. By default the largest error, or 1
            if all are smaller. Set it to compare pictures.
    """
    check_flow(flow)
    check_flow(truth, name="truth")
    check_same_size({"the flow": flow, "the truth": truth, "the valid mask": valid})
    mask = valid_mask(flow, None) & valid_mask(truth, valid)
    (u, v), (true_u, true_v) = (zero_invalid(field, mask) for field in (flow, truth))
    error = np.hypot(u - true_u, v - true_v)
    if max_error is None:
        max_error = max(1.0, float(np.max(error, initial=0)))
    check_positive("max_error", max_error)
    error[~mask] = np.nan
    return colorize(_on_scale(error, max_error), EMBER)


def confidence_map(confidence: Float32[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """Colour each pixel by the confidence in its flow, from dark (0) to light (1).

    Values outside are clipped and NaN is black.
    """
    if confidence.ndim != 2:
        raise FlowError(f"got a confidence of shape {confidence.shape}; give (height, width)")
    return colorize(confidence, REEF)


def occlusion_overlay(
    image: UInt8[np.ndarray, "h w 3"],
    occluded_in: Bool[np.ndarray, "h w"],
    occluded_out: Bool[np.ndarray, "h w"],
) -> UInt8[np.ndarray, "h w 3"]:
    """Tint occluded pixels of the first frame: orange inside the frame, blue where they leave it.

    `occluded_out` takes precedence if a pixel is in both masks.
    """
    check_image(image)
    check_same_size(
        {
            "the image": image,
            "the occluded-in mask": occluded_in,
            "the occluded-out mask": occluded_out,
        }
    )
    tints = np.zeros_like(image)
    tints[occluded_in] = _IN_FRAME
    tints[occluded_out] = _OUT_OF_FRAME
    hidden = (occluded_in | occluded_out)[..., None]
    return blend(image, tints, hidden * np.float32(_OPACITY))


def moving_overlay(
    image: UInt8[np.ndarray, "h w 3"], moving: Float32[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Light up what moves by itself: in its colours with a tint, over a dark grey image.

    Args:
        image: the first frame.
        moving: from 0 (moves with the camera) to 1.
    """
    check_image(image)
    check_same_size({"the image": image, "the moving mask": moving})
    tinted = blend(image, np.array([[_IN_FRAME]], np.float32), _TINT)
    return blend(_dark_grey(image), tinted, np.clip(moving, 0, 1)[..., None])


def occlusion_layer(
    occluded_in: Bool[np.ndarray, "h w"], occluded_out: Bool[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 4"]:
    """Draw the tints of `occlusion_overlay` as a transparent layer of their own."""
    check_same_size({"occluded-in mask": occluded_in, "occluded-out mask": occluded_out})
    layer = np.zeros((*occluded_in.shape, 4), np.uint8)
    opacity = round(255 * _OPACITY)
    layer[occluded_in] = (*_IN_FRAME, opacity)
    layer[occluded_out] = (*_OUT_OF_FRAME, opacity)
    return layer


def attention_overlay(
    image: UInt8[np.ndarray, "h w 3"],
    attention: Float32[np.ndarray, "h8 w8"],
    query: tuple[float, float],
    color: tuple[int, int, int] = _MARKERS[0],
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw the attention of one point over the darkened image; brighter is more.

    Args:
        image: the first frame.
        attention: weights of one query, 0 or more, on a coarser grid that covers the image. Only
            their ratios matter.
        query: the point that attends, x and y in pixels of the image; it gets a ring.
        color: of the ring.
    """
    check_image(image)
    _check_query(image, query)
    if attention.ndim != 2 or not attention.size:
        raise FlowError(
            f"got an attention map of shape {attention.shape}; give (rows, columns) for one query"
        )
    strength = _stretch(attention, image.shape[:2])
    picture = blend(_dark_grey(image), colorize(strength, EMBER), 0.2 + 0.7 * strength[..., None])
    return mark_point(picture, query, color=color)


def attention_pictures(
    image: UInt8[np.ndarray, "h w 3"],
    maps: Sequence[Float32[np.ndarray, "h8 w8"]],
    queries: Sequence[tuple[float, float]],
) -> tuple[UInt8[np.ndarray, "h w 3"], list[UInt8[np.ndarray, "h w 3"]]]:
    """Draw the frame with its query points, and one picture for the attention map of each.

    Each point, x and y in pixels of the image, has a ring of its own colour in both.
    """
    if len(maps) != len(queries) or not queries:
        raise FlowError(
            f"got {len(maps)} attention maps for {len(queries)} query points; "
            "give one map for each of at least one point"
        )
    frame, overlays = image, []
    for i, (attention, query) in enumerate(zip(maps, queries, strict=True)):
        color = _MARKERS[i % len(_MARKERS)]
        overlays.append(attention_overlay(image, attention, query, color))
        frame = mark_point(frame, query, color=color)
    return frame, overlays


def _on_scale(error: Float[np.ndarray, "*shape"], max_error: float) -> Float[np.ndarray, "*shape"]:
    """The position of an error on the scale from 0 to 1."""
    return np.log1p(error / _KNEE) / np.float32(np.log1p(max_error / _KNEE))


def _dark_grey(image: UInt8[np.ndarray, "h w 3"]) -> Float32[np.ndarray, "h w 3"]:
    """A grey background: it shows the scene and leaves colour to what is drawn over it."""
    grey = (image @ np.array([0.299, 0.587, 0.114], np.float32))[..., None]
    return np.broadcast_to(grey * np.float32(0.45), image.shape)


def _stretch(
    attention: Float32[np.ndarray, "h8 w8"], size: tuple[int, ...]
) -> Float32[np.ndarray, "h w"]:
    """Resize the map to the image; its largest weight becomes 1."""
    clean = np.maximum(np.nan_to_num(attention, nan=0, posinf=0, neginf=0), 0)
    smooth = Image.fromarray(clean / (clean.max() or 1)).resize(
        (size[1], size[0]), Image.Resampling.BICUBIC
    )
    # Attention is spread over thousands of cells, most of them faint; the root makes them visible.
    return np.sqrt(np.clip(np.asarray(smooth), 0, 1))


def _check_query(image: UInt8[np.ndarray, "h w 3"], query: tuple[float, float]) -> None:
    height, width = image.shape[:2]
    x, y = query
    if not (0 <= x <= width - 1 and 0 <= y <= height - 1):
        raise FlowError(
            f"the query point ({x:g}, {y:g}) is not in the image; "
            f"give x from 0 to {width - 1} and y from 0 to {height - 1}"
        )


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
    sharp = 5  # drawn at this scale, then reduced

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

    return paste_reduced(picture, stamp, sharp, (left, top))


def paste_reduced(
    picture: UInt8[np.ndarray, "h w 3"],
    layer: Image.Image,
    factor: int,
    corner: tuple[int, int] = (0, 0),
) -> UInt8[np.ndarray, "h w 3"]:
    """Reduce a transparent layer, which smooths its edges, and draw it over a picture.

    Pillow itself draws without anti-aliasing.
    """
    small = layer.reduce(factor)
    result = Image.fromarray(picture)
    result.paste(small, corner, small)
    return np.array(result)
