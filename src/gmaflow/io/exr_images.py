"""OpenEXR frames, scene-linear floating point, as the 8-bit pictures a screen shows."""

from functools import cache
from io import IOBase

import numpy as np
from jaxtyping import Float, Float32, UInt8, UInt32

from gmaflow.errors import ImageError, ImageTooLargeError
from gmaflow.io.exr import (
    MOST_VALUES,
    count_values,
    import_openexr,
    in_display_window,
    read_planes,
)
from gmaflow.io.exr_deep import flatten
from gmaflow.io.exr_header import DamagedError, Part, read_parts
from gmaflow.io.pixel_limits import check_pixels

_MOST_VALUES_PER_PIXEL = 16
# Of several layers, the finished picture by the names that programs give it.
_MAIN_LAYERS = ("rgba", "rgb", "beauty", "combined", "c", "color", "colour")


def decode_exr(
    file: IOBase, *, name: str, max_pixels: int | None = None
) -> UInt8[np.ndarray, "h w 3"]:
    """Read an open OpenEXR file as the picture that a screen shows.

    Values go through the sRGB curve and are clipped to 0..1; no exposure or tone curve is applied.
    NaN is black. The picture is the display window, black where nothing is stored.

    Args:
        file: where it is.
        name: how errors call it.
        max_pixels: refuse larger ones before anything is unpacked; Pillow's own limit holds
            besides.

    Raises:
        ImageTooLargeError: it has more pixels or channels than is safe.
        ImageError: it is damaged, or has no colours.
    """
    openexr = import_openexr("reading", ImageError)
    try:
        parts = read_parts(file)
        part, colors = _find_colors(parts, name)
        _check_size(parts, part, name, max_pixels)
        planes = read_planes(openexr, file, part)
    except DamagedError as err:
        raise ImageError(f"{name} cannot be read ({err}); save it again or leave it out") from err
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinities become black and white
        if part.deep:
            planes = flatten(planes, colors)
        shown = [to_display(planes[color]) for color in colors]
    rgb = np.stack(shown if len(shown) == 3 else 3 * shown, axis=2)
    return in_display_window(part, rgb)


def to_display(
    plane: Float[np.ndarray, "h w"] | UInt32[np.ndarray, "h w"],
) -> UInt8[np.ndarray, "h w"]:
    """Bring scene-linear values onto the sRGB curve, clipped to 0..1, as 8 bits."""
    if plane.dtype == np.float16:
        found: np.ndarray = _of_every_half()[np.ascontiguousarray(plane).view(np.uint16)]
        return found
    return _curve(plane.astype(np.float32))


@cache
def _of_every_half() -> UInt8[np.ndarray, " 65536"]:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    return _curve(halves.astype(np.float32))


def _curve(linear: Float32[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape"]:
    light = np.clip(np.nan_to_num(linear, nan=0.0, posinf=1.0, neginf=0.0), 0, 1)
    # The curve of IEC 61966-2-1.
    curved = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.rint(255 * curved).astype(np.uint8)


def _find_colors(parts: list[Part], name: str) -> tuple[Part, tuple[str, ...]]:
    for part in parts:
        if colors := colors_of(part.channels):
            return part, colors
    found = [channel for part in parts for channel in part.channels + part.thinned]
    told = ", ".join(found[:8]) + (" ..." if len(found) > 8 else "")
    raise ImageError(
        f"{name} holds no colours, but {told or 'nothing'}; give a file with the channels R, G and "
        "B, of any layer, or Y"
    )


def colors_of(channels: tuple[str, ...]) -> tuple[str, ...]:
    """Choose the channels to show: red, green and blue, or luminance alone; none if none fit.

    Those without a layer come first, then the layer of the finished picture by the names in use,
    then any. Layers are told apart by what stands before the last dot.
    """
    layers: dict[str, dict[str, str]] = {}
    for channel in channels:
        layer, _, letter = channel.rpartition(".")
        layers.setdefault(layer, {})[letter.lower()] = channel
    for wanted in (("r", "g", "b"), ("red", "green", "blue"), ("y",)):
        for layer in sorted(layers, key=_rank):
            found = layers[layer]
            # With an x beside it, y is part of a place or a direction.
            if found.keys() >= set(wanted) and not (wanted == ("y",) and "x" in found):
                return tuple(found[letter] for letter in wanted)
    return ()


def _rank(layer: str) -> int:
    last = layer.rpartition(".")[2].lower()
    if not layer:
        return 0
    return 1 + _MAIN_LAYERS.index(last) if last in _MAIN_LAYERS else 1 + len(_MAIN_LAYERS)


def _check_size(parts: list[Part], part: Part, name: str, max_pixels: int | None) -> None:
    for window in (part.display, part.data):
        height, width = window.size
        check_pixels(width, height, name, max_pixels)
    most = MOST_VALUES
    if max_pixels is not None:
        most = min(most, _MOST_VALUES_PER_PIXEL * max_pixels)
    if count_values(parts) > most:
        raise ImageTooLargeError(
            f"{name} has more channels than is safe to decode; save its colours alone, not deep"
        )
