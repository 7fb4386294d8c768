"""Values per pixel drawn as pictures: errors, confidence, occlusion and attention."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Float32, UInt8
from PIL import Image, ImageDraw

from gmaflow.errors import FlowError
from gmaflow.io.images import check_same_size
from gmaflow.viz.drawing import (
    EMBER,
    INK,
    REEF,
    WHITE,
    blend,
    check_flow,
    check_image,
    check_positive,
    colorize,
    font,
    mark_point,
    text_width,
)
from gmaflow.viz.flow_colors import format_length, known_pixels, without_unknown

# Errors span from a tenth of a pixel to a hundred. The scale is linear below this error and
# logarithmic above it, so that both ends are visible in one picture.
_KNEE = 0.5
_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

# Orange and blue are distinguishable with nearly every kind of colour vision.
_IN_FRAME = (255, 140, 0)
_OUT_OF_FRAME = (30, 120, 255)
_OPACITY = 0.6
_TINT = 0.25
"""How much what moves by itself is tinted."""

# None of these colours occurs in the ramp of the attention maps.
_MARKERS = ((90, 255, 150), (80, 220, 255), (255, 255, 255), (255, 150, 255), (190, 255, 60))


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

    Returns:
        The picture; `error_legend` draws its scale.
    """
    check_flow(flow)
    check_flow(truth, name="truth")
    check_same_size({"the flow": flow, "the truth": truth, "the valid mask": valid})
    known = known_pixels(flow, None) & known_pixels(truth, valid)
    (u, v), (true_u, true_v) = (without_unknown(field, known) for field in (flow, truth))
    error = np.hypot(u - true_u, v - true_v)
    if max_error is None:
        max_error = max(1.0, float(np.max(error, initial=0)))
    check_positive("max_error", max_error)
    error[~known] = np.nan
    return colorize(_on_scale(error, max_error), EMBER)


def error_legend(max_error: float, *, width: int = 480) -> UInt8[np.ndarray, "_ {width} 3"]:
    """Draw the scale of an `error_map` as a strip, labelled in pixels.

    Args:
        max_error: the error at the end of the scale: the value given to `error_map`, or its
            default, `largest_length(flow - truth, valid=valid)` and at least 1.
        width: width of the strip in pixels, 64 or more.
    """
    check_positive("max_error", max_error)
    if width < 64:
        raise FlowError(f"a legend {width} pixels wide is not readable; give 64 or more")
    size = int(np.clip(width / 30, 10, 24))
    margin, bar = size, round(1.2 * size)
    strip = Image.new("RGB", (width, margin // 2 + bar + 2 * size), WHITE)
    draw = ImageDraw.Draw(strip)

    length = width - 2 * margin
    ramp = colorize(np.linspace(0, 1, length, dtype=np.float32)[None], EMBER)
    strip.paste(Image.fromarray(ramp.repeat(bar, axis=0)), (margin, margin // 2))

    foot = margin // 2 + bar
    for x, label in _labels(max_error, length=length, size=size):
        draw.line([(margin + x, foot), (margin + x, foot + size // 4)], fill=INK)
        half = text_width(label, size) / 2
        middle = min(max(margin + x, half + 1), width - half - 1)
        draw.text((middle, foot + size // 2), label, fill=INK, font=font(size), anchor="mt")
    return np.array(strip)


def confidence_map(confidence: Float32[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """Colour each pixel by the confidence in its flow, from dark (0) to light (1).

    Args:
        confidence: from 0 to 1; values outside are clipped and NaN is black.
    """
    if confidence.ndim != 2:
        raise FlowError(f"got a confidence of shape {confidence.shape}; give (height, width)")
    return colorize(confidence, REEF)


def occlusion_overlay(
    image: UInt8[np.ndarray, "h w 3"],
    occluded_in: Bool[np.ndarray, "h w"],
    occluded_out: Bool[np.ndarray, "h w"],
) -> UInt8[np.ndarray, "h w 3"]:
    """Tint occluded pixels: orange inside the frame, blue where they leave it.

    Args:
        image: the first frame.
        occluded_in: occluded in the second frame, inside it.
        occluded_out: outside the second frame; takes precedence if a pixel is in both masks.
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
    """Draw the tints of `occlusion_overlay` as a transparent layer of their own.

    Args:
        occluded_in: occluded in the second frame, inside it.
        occluded_out: outside the second frame; takes precedence if a pixel is in both masks.

    Returns:
        The picture, with alpha.
    """
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
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw the attention of one point over the darkened image; brighter is more.

    Args:
        image: the first frame.
        attention: weights of one query, 0 or more, on a coarser grid that covers the image. Only
            their ratios matter.
        query: the point that attends, x and y in pixels of the image.

    Returns:
        The picture, with a ring at the query.
    """
    return _overlay_attention(image, attention, query, _MARKERS[0])


def attention_pictures(
    image: UInt8[np.ndarray, "h w 3"],
    maps: Sequence[Float32[np.ndarray, "h8 w8"]],
    queries: Sequence[tuple[float, float]],
) -> tuple[UInt8[np.ndarray, "h w 3"], list[UInt8[np.ndarray, "h w 3"]]]:
    """Draw the frame with its query points, and one picture for the attention map of each.

    Args:
        image: the first frame.
        maps: one map for each query.
        queries: points, x and y in pixels of the image. Each has a ring of its own colour, in the
            frame and in its map.
    """
    if len(maps) != len(queries) or not queries:
        raise FlowError(
            f"got {len(maps)} attention maps for {len(queries)} query points; "
            "give one map for each of at least one point"
        )
    frame, overlays = image, []
    for i, (attention, query) in enumerate(zip(maps, queries, strict=True)):
        color = _MARKERS[i % len(_MARKERS)]
        overlays.append(_overlay_attention(image, attention, query, color))
        frame = mark_point(frame, query, color=color)
    return frame, overlays


def _on_scale(error: Float[np.ndarray, "*shape"], max_error: float) -> Float[np.ndarray, "*shape"]:
    """The position of an error on the scale from 0 to 1."""
    return np.log1p(error / _KNEE) / np.float32(np.log1p(max_error / _KNEE))


def _labels(max_error: float, *, length: int, size: int) -> list[tuple[int, str]]:
    """Positions and texts below the strip: both ends, and round numbers where there is room."""
    last = (length - 1, f"{format_length(max_error)} px")
    labels = [(0, "0")]
    end = length - text_width(last[1], size)
    for tick in _TICKS:
        x = round(_on_scale(np.array([tick], np.float32), max_error).item() * (length - 1))
        label = format(tick, "g")
        half = text_width(label, size) / 2
        taken = labels[-1][0] + text_width(labels[-1][1], size) / 2
        if x - half > taken + size and x + half < end - size:
            labels.append((x, label))
    return [*labels, last]


def _overlay_attention(
    image: UInt8[np.ndarray, "h w 3"],
    attention: Float32[np.ndarray, "h8 w8"],
    query: tuple[float, float],
    color: tuple[int, int, int],
) -> UInt8[np.ndarray, "h w 3"]:
    check_image(image)
    _check_query(image, query)
    if attention.ndim != 2 or not attention.size:
        raise FlowError(
            f"got an attention map of shape {attention.shape}; give (rows, columns) for one query"
        )
    strength = _stretch(attention, image.shape[:2])
    picture = blend(_dark_grey(image), colorize(strength, EMBER), 0.2 + 0.7 * strength[..., None])
    return mark_point(picture, query, color=color)


def _dark_grey(image: UInt8[np.ndarray, "h w 3"]) -> Float32[np.ndarray, "h w 3"]:
    """An image that keeps the orientation and leaves all colour to what is drawn over it."""
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
