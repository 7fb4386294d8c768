"""One number per pixel as a picture: the error of a flow, and the confidence in it."""

import numpy as np
from jaxtyping import Bool, Float, Float32, UInt8
from PIL import Image, ImageDraw

from gmaflow.errors import FlowError
from gmaflow.io.sizes import check_same_size
from gmaflow.viz._checks import check_flow, check_positive
from gmaflow.viz._draw import INK, WHITE, font, text_width
from gmaflow.viz._ramp import EMBER, REEF, colorize
from gmaflow.viz.color import known_pixels, without_unknown
from gmaflow.viz.legend import format_length

# Errors span from a tenth of a pixel to a hundred. Below this one the scale is linear, above it
# logarithmic, so that both ends can be seen in one picture.
_KNEE = 0.5
_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def error_map(
    flow: Float32[np.ndarray, "h w 2"],
    truth: Float32[np.ndarray, "h w 2"],
    *,
    valid: Bool[np.ndarray, "h w"] | None = None,
    max_error: float | None = None,
) -> UInt8[np.ndarray, "h w 3"]:
    """Colour each pixel by its end-point error, dark for none to light for much, in log steps.

    Args:
        flow: the estimate.
        truth: what it should be.
        valid: where the truth is known. The rest, and whatever is not finite, is black.
        max_error: the error in pixels that gets the last colour. By default the largest one here,
            or 1 if all are smaller. Give one to compare pictures.

    Returns:
        The picture; `error_legend` explains it.
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
    return colorize(_place(error, max_error), EMBER)


def error_legend(max_error: float, *, width: int = 480) -> UInt8[np.ndarray, "_ {width} 3"]:
    """The scale of an `error_map`, as a strip with pixels written below it.

    Args:
        max_error: the error of the last colour: what `error_map` was given, or, if it chose by
            itself, `largest_length(flow - truth, valid=valid)` and at least 1.
        width: of the strip, in pixels; 64 or more.

    Returns:
        The picture.
    """
    check_positive("max_error", max_error)
    if width < 64:
        raise FlowError(f"a legend {width} pixels wide cannot be read; give 64 or more")
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
    """Colour each pixel by the confidence in its flow, dark for none to light for full.

    Args:
        confidence: from 0 to 1; what lies outside is clipped, and what is not a number is black.

    Returns:
        The picture.
    """
    if confidence.ndim != 2:
        raise FlowError(f"got a confidence of shape {confidence.shape}; give (height, width)")
    return colorize(confidence, REEF)


def _place(error: Float[np.ndarray, "*shape"], max_error: float) -> Float[np.ndarray, "*shape"]:
    """Where on the scale from 0 to 1 an error stands."""
    return np.log1p(error / _KNEE) / np.float32(np.log1p(max_error / _KNEE))


def _labels(max_error: float, *, length: int, size: int) -> list[tuple[int, str]]:
    """Positions and words below the strip: both ends, and round numbers where there is room."""
    last = (length - 1, f"{format_length(max_error)} px")
    labels = [(0, "0")]
    end = length - text_width(last[1], size)
    for tick in _TICKS:
        x = round(_place(np.array([tick], np.float32), max_error).item() * (length - 1))
        label = format(tick, "g")
        half = text_width(label, size) / 2
        taken = labels[-1][0] + text_width(labels[-1][1], size) / 2
        if x - half > taken + size and x + half < end - size:
            labels.append((x, label))
    return [*labels, last]
