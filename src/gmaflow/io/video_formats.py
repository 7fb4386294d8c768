"""What video can be written as."""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from jaxtyping import UInt8


@dataclass(frozen=True)
class VideoFormat:
    """How frames are encoded, and what holds them."""

    container: str
    codec: str
    pixels: str
    quality: dict[str, str]
    options: dict[str, str] = field(default_factory=dict)
    time_base: Fraction | None = None
    """The finest that the container can tell; None if it takes any."""


_H264 = {"crf": "17", "preset": "fast"}
# mp4 and mov add up how long frames last in the order in which they are decoded. Where that is not
# the order in which they are shown and times are uneven, the sum falls short of the true length,
# and players stop there. Without frames that look ahead there is one order; it costs a fifth more.
_H264_IN_ORDER = _H264 | {"bf": "0"}
_INDEX_FIRST = {"movflags": "+faststart"}  # so that browsers start at once
VIDEO_FORMATS = {
    ".mp4": VideoFormat("mp4", "libx264", "yuv420p", _H264_IN_ORDER, _INDEX_FIRST),
    ".mov": VideoFormat("mov", "libx264", "yuv420p", _H264_IN_ORDER, _INDEX_FIRST),
    ".mkv": VideoFormat("matroska", "libx264", "yuv420p", _H264, {}, Fraction(1, 1000)),
    ".webm": VideoFormat(
        "webm",
        "libvpx-vp9",
        "yuv420p",
        {"crf": "24", "b": "0", "deadline": "good", "cpu-used": "4", "row-mt": "1"},
        {},
        Fraction(1, 1000),
    ),
    ".gif": VideoFormat("gif", "gif", "pal8", {}, {}, Fraction(1, 100)),
}
VIDEO_OUTPUTS = frozenset(VIDEO_FORMATS)
"""What video can be written as."""


def with_palette(
    image: UInt8[np.ndarray, "h w 3"],
) -> tuple[UInt8[np.ndarray, "h w"], UInt8[np.ndarray, "256 4"]]:
    """Choose 256 colours for a picture; returns a number for each pixel, and alpha and RGB."""
    from PIL import Image

    chosen = Image.fromarray(image).quantize(256)
    colors = np.array(chosen.getpalette("RGB"), np.uint8).reshape(-1, 3)
    palette = np.full((256, 4), 255, np.uint8)
    palette[: len(colors), 1:] = colors
    return np.array(chosen), palette
