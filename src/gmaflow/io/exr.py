"""OpenEXR, read and written by the package OpenEXR: flow, and frames as 8-bit pictures.

Flow has the channels and directions that Nuke uses. Nuke counts y from the bottom up, so the second
channel is the downward motion of our arrays with its sign changed. That holds for every .exr,
whatever its channels are called.
"""

import sys
import threading
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import cache
from io import SEEK_END, BytesIO, IOBase
from pathlib import Path
from types import ModuleType
from typing import IO, Any, TextIO, TypeVar, cast

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Shaped, UInt8, UInt32

from gmaflow.errors import FlowError, FlowFileError, ImageError, ImageTooLargeError, import_extra
from gmaflow.io.exr_header import DamagedError, ExrPart, read_parts
from gmaflow.io.images import check_header_size, check_pixels, check_ratio, is_bomb

Planes = Mapping[str, Shaped[np.ndarray, "h w"]]
"""The channels of a part by name; those of deep parts hold an array or None for each pixel."""

MOST_VALUES = 2**30
"""Largest number of values unpacked from one file: 4 GiB of floats. The library unpacks all
channels of all parts."""

# Flow.
_FORWARD, _BACKWARD, _VALID = "forward.", "backward.", "valid.a"
_FLOW_NAMES = [
    tuple(f"{layer}{axis}" for axis in axes)
    for layer in (_FORWARD, "motion.", "flow.", "", _BACKWARD)
    for axes in ("uv", "xy")
]
_FLOW_COLORS = ("r", "g")
_LAST_BOUND_COMPRESSION = 7  # those above are for pictures and compress without bound
_SMALLEST_SAMPLE = 2
_MOST_EMPTY = 1000

# Pictures.
_MOST_VALUES_PER_PIXEL = 4  # of the largest picture; smaller ones may have more
# Of several layers, the finished picture, by the names that programs give it.
_MAIN_LAYERS = ("rgba", "rgb", "beauty", "combined", "c", "color", "colour")
# Each deep pixel of each channel is a Python object of about 250 bytes.
_DEEP_WEIGHT = 64

_Value = TypeVar("_Value", bound=np.generic)
_one_at_a_time = threading.Lock()


def import_openexr(doing: str, error: type[FlowError]) -> ModuleType:
    """Import OpenEXR, or say how to install it."""
    return import_extra("OpenEXR", f"{doing} .exr", extra="exr", error=error)


def read_exr_flow(
    path: Path,
) -> tuple[Float32[np.ndarray, "h w 2"], Bool[np.ndarray, "h w"], bool]:
    """Read flow from the channels forward.u and forward.v, or other names in common use.

    Backward flow is read if there is no other. Pixels outside the data window are unknown.

    Returns:
        The flow, which may hold NaN; where it is known; and whether it is backward.
    """
    openexr = import_openexr("reading", FlowFileError)
    try:
        with path.open("rb") as file:
            parts = read_parts(file)
            part, names = _find_flow(path, parts)
            _check_flow_claims(path, parts, part)
            planes = read_planes(openexr, file, part)
    except DamagedError as err:
        raise FlowFileError(f"{path}: not a valid .exr file ({err})") from err
    with np.errstate(invalid="ignore"):  # NaN is unknown
        _refuse_picture(path, names, planes)
        right, up = (planes[name].astype(np.float32) for name in names)
        valid = planes[_VALID] > 0.5 if _VALID in planes else np.ones(right.shape, bool)
    array = in_display_window(part, np.stack([right, -up], axis=2))
    backward = names[0].lower().startswith(_BACKWARD)
    return array, in_display_window(part, valid), backward


def write_exr_flow(
    file: IO[bytes],
    array: Float32[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"],
    *,
    backward: bool,
) -> None:
    """Write 32-bit floats without loss; `valid.a` is 0 where the flow is unknown, else 1."""
    openexr = import_openexr("writing", FlowFileError)
    layer, target = (_BACKWARD, "previous") if backward else (_FORWARD, "next")
    header = {
        "type": openexr.scanlineimage,
        "compression": openexr.ZIP_COMPRESSION,
        "comments": f"optical flow to the {target} frame in pixels: u right, v up; valid.a: known",
    }
    channels = {
        f"{layer}u": array[..., 0],
        f"{layer}v": -array[..., 1],
        # Always there: the frames of a sequence must have the same channels.
        _VALID: valid.astype(np.float32),
    }
    _write_channels(openexr, file, header, channels)


def write_exr_map(file: IO[bytes], values: Float32[np.ndarray, "h w 3"]) -> None:
    """Write three maps as the channels R, G and B, in 32-bit floats without loss."""
    openexr = import_openexr("writing", FlowFileError)
    header = {"type": openexr.scanlineimage, "compression": openexr.ZIP_COMPRESSION}
    _write_channels(openexr, file, header, {name: values[..., i] for i, name in enumerate("RGB")})


def _write_channels(
    openexr: ModuleType,
    file: IO[bytes],
    header: dict[str, Any],
    channels: Mapping[str, np.ndarray],
) -> None:
    # The library ignores strides.
    channels = {name: np.ascontiguousarray(plane) for name, plane in channels.items()}
    packed = BytesIO()
    openexr.File(header, channels).write(packed)
    file.write(packed.getbuffer())


def decode_exr(
    file: IOBase, *, name: str, max_pixels: int | None = None
) -> UInt8[np.ndarray, "h w 3"]:
    """Read an open OpenEXR file as a screen would show it.

    Values go through the sRGB curve and are clipped to 0..1; no exposure or tone curve is applied.
    NaN is black. The result is the display window, black where nothing is stored. Images above
    `max_pixels` are refused before they are unpacked; Pillow's own limit also applies.
    """
    openexr = import_openexr("reading", ImageError)
    try:
        parts = read_parts(file)
        part, colors = _find_colors(parts, name)
        _check_picture_claims(parts, part, name, file.seek(0, SEEK_END), max_pixels)
        planes = read_planes(openexr, file, part)
    except DamagedError as err:
        raise ImageError(f"{name} cannot be read ({err}); save it again or leave it out") from err
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinities become black and white
        if part.deep:
            planes = flatten(planes, colors)
        shown = [to_display(planes[color]) for color in colors]
    rgb = np.stack(shown if len(shown) == 3 else 3 * shown, axis=2)
    return in_display_window(part, rgb)


def count_values(parts: list[ExrPart]) -> int:
    """Count the values that are unpacked to read any of the parts; deep ones weigh more."""
    return sum(part.samples * (_DEEP_WEIGHT if part.deep else 1) for part in parts)


def read_planes(openexr: ModuleType, file: IOBase, part: ExrPart) -> Planes:
    """Read the channels of one part, each over the part's data window."""
    file.seek(0)
    # The library prints what it cannot unpack, and leaves the part out.
    with _one_at_a_time, redirect_stdout(cast(TextIO, _Muted())):
        try:
            parts = openexr.File(file, separate_channels=True).parts
        except (RuntimeError, ValueError, OSError, MemoryError) as err:
            raise DamagedError("its pixels cannot be unpacked") from err
    channels = next((one.channels for one in parts if one.part_index == part.number), None)
    if channels is None:
        raise DamagedError("its pixels cannot be unpacked")
    return {name: channel.pixels for name, channel in channels.items()}


def in_display_window(
    part: ExrPart, plane: np.ndarray[tuple[int, ...], np.dtype[_Value]]
) -> np.ndarray[tuple[int, ...], np.dtype[_Value]]:
    """Return the visible part of a plane of the data window; zeros where nothing is stored."""
    data, display = part.data, part.display
    if data == display:
        return plane
    display_plane = np.zeros((*display.size, *plane.shape[2:]), plane.dtype)
    left, right = max(data.left, display.left), min(data.right, display.right) + 1
    top, bottom = max(data.top, display.top), min(data.bottom, display.bottom) + 1
    if left < right and top < bottom:
        display_plane[
            top - display.top : bottom - display.top, left - display.left : right - display.left
        ] = plane[top - data.top : bottom - data.top, left - data.left : right - data.left]
    return display_plane


class _Muted:
    """Stands in for stdout: drops what this thread prints, passes on what others print."""

    def __init__(self) -> None:
        self._out = sys.stdout
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._thread else self._out.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._out, name)


def _find_flow(path: Path, parts: list[ExrPart]) -> tuple[ExrPart, tuple[str, str]]:
    for part in parts:
        by_name = {name.lower(): name for name in part.channels}
        for right, up in (*_FLOW_NAMES, _FLOW_COLORS):
            if right in by_name and up in by_name and not part.deep:
                return part, (by_name[right], by_name[up])
    channels = ", ".join([name for part in parts for name in part.channels][:8])
    raise FlowFileError(
        f"{path}: holds no flow, only {channels or 'nothing'}; its channels must be called "
        "forward.u and forward.v, backward.u and backward.v, motion.x and motion.y, or R and G"
    )


def _check_flow_claims(path: Path, parts: list[ExrPart], part: ExrPart) -> None:
    check_header_size(path, *part.display.size)
    check_header_size(path, *part.data.size)
    if count_values(parts) > MOST_VALUES:
        raise FlowFileError(f"{path}: more channels than is safe to unpack; save only its flow")
    length = path.stat().st_size
    for one in parts:
        if one.compression <= _LAST_BOUND_COMPRESSION:
            check_ratio(path, one.samples * _SMALLEST_SAMPLE, length)
    if is_bomb(count_values(parts) * _SMALLEST_SAMPLE, length):
        raise FlowFileError(f"{path}: it unpacks to more than is safe; save only its flow")
    if part.display.pixels > _MOST_EMPTY * part.data.pixels:
        height, width = part.display.size
        raise FlowFileError(
            f"{path}: only {part.data.pixels} of its {height} x {width} pixels are stored; "
            "the file is damaged or not a flow file"
        )


def _refuse_picture(path: Path, names: tuple[str, str], planes: Planes) -> None:
    blue: Float32[np.ndarray, "h w"] | None = planes.get("B", planes.get("b"))
    if names[0].lower() == "r" and blue is not None and blue.any():
        raise FlowFileError(
            f"{path}: this is a picture; flow has the channels forward.u and forward.v, or R and "
            "G and no B other than 0"
        )


def to_display(
    plane: Float[np.ndarray, "h w"] | UInt32[np.ndarray, "h w"],
) -> UInt8[np.ndarray, "h w"]:
    """Bring scene-linear values onto the sRGB curve, clipped to 0..1, as 8 bits."""
    if plane.dtype == np.float16:
        encoded: np.ndarray = _table_of_halves()[np.ascontiguousarray(plane).view(np.uint16)]
        return encoded
    return _curve(plane.astype(np.float32))


@cache
def _table_of_halves() -> UInt8[np.ndarray, " 65536"]:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    return _curve(halves.astype(np.float32))


def _curve(linear: Float32[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape"]:
    light = np.clip(np.nan_to_num(linear, nan=0.0, posinf=1.0, neginf=0.0), 0, 1)
    # The curve of IEC 61966-2-1.
    curved = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.rint(255 * curved).astype(np.uint8)


def _find_colors(parts: list[ExrPart], name: str) -> tuple[ExrPart, tuple[str, ...]]:
    for part in parts:
        if colors := colors_of(part.channels):
            return part, colors
    channels = [channel for part in parts for channel in part.channels + part.thinned]
    listed = ", ".join(channels[:8]) + (" ..." if len(channels) > 8 else "")
    raise ImageError(
        f"{name} holds no colours, only {listed or 'nothing'}; give a file with the channels R, G "
        "and B, of any layer, or Y"
    )


def colors_of(channels: tuple[str, ...]) -> tuple[str, ...]:
    """Choose the channels to show: red, green and blue, or only luminance; none if none fit.

    Channels without a layer come first, then the layer of the finished picture by the names in use,
    then any. The layer is the part of a name before the last dot.
    """
    layers: dict[str, dict[str, str]] = {}
    for channel in channels:
        layer, _, letter = channel.rpartition(".")
        layers.setdefault(layer, {})[letter.lower()] = channel
    for names in (("r", "g", "b"), ("red", "green", "blue"), ("y",)):
        for layer in sorted(layers, key=_rank):
            by_letter = layers[layer]
            # Together with an x, y is part of a position or a direction.
            if by_letter.keys() >= set(names) and not (names == ("y",) and "x" in by_letter):
                return tuple(by_letter[letter] for letter in names)
    return ()


def _rank(layer: str) -> int:
    last = layer.rpartition(".")[2].lower()
    if not layer:
        return 0
    return 1 + _MAIN_LAYERS.index(last) if last in _MAIN_LAYERS else 1 + len(_MAIN_LAYERS)


def _check_picture_claims(
    parts: list[ExrPart], part: ExrPart, name: str, length: int, max_pixels: int | None
) -> None:
    for window in (part.display, part.data):
        height, width = window.size
        check_pixels(width, height, name, max_pixels)
    most = MOST_VALUES
    if max_pixels is not None:
        most = min(most, _MOST_VALUES_PER_PIXEL * max_pixels)
    values = count_values(parts)
    if values > most or is_bomb(_SMALLEST_SAMPLE * values, length):
        raise ImageTooLargeError(
            f"{name} has more channels than is safe to decode; save only its colours, not deep"
        )


def flatten(planes: Planes, colors: tuple[str, ...]) -> dict[str, Float32[np.ndarray, "h w"]]:
    """Composite deep pixels, which hold any number of values one behind the other.

    Colours count as multiplied by alpha already, as the format defines. Without alpha the nearest
    value hides all others; without depth the stored order is kept. Pixels without values are black.
    Alpha and depth are found by name.
    """
    layer = colors[0].rpartition(".")[0]
    shape = planes[colors[0]].shape
    counts = _counts(planes[colors[0]])
    pixels = np.repeat(np.arange(counts.size), counts)
    depth = _values(planes, layer, "Z", 0.0, len(pixels))
    order = np.lexsort((depth, pixels))
    alpha = _values(planes, layer, "A", 1.0, len(pixels))[order]
    values = {name: _joined(planes[name])[order] for name in colors}
    composited = {name: np.zeros(counts.size, np.float32) for name in colors}
    clear = np.ones(counts.size, np.float32)
    starts = np.cumsum(counts) - counts
    left, behind = np.flatnonzero(counts), 0
    while left.size:
        at = starts[left] + behind
        for name in colors:
            composited[name][left] += clear[left] * values[name][at]
        clear[left] *= 1 - alpha[at]
        behind += 1
        left = left[(counts[left] > behind) & (clear[left] > 0)]
    return {name: plane.reshape(shape) for name, plane in composited.items()}


def _values(
    planes: Planes, layer: str, letter: str, otherwise: float, count: int
) -> Float32[np.ndarray, " n"]:
    for name in (f"{layer}.{letter}", letter):
        if name in planes:
            return _joined(planes[name])
    return np.full(count, otherwise, np.float32)


def _counts(pixels: Shaped[np.ndarray, "h w"]) -> Int[np.ndarray, " n"]:
    return np.fromiter((0 if one is None else len(one) for one in pixels.flat), np.int64)


def _joined(pixels: Shaped[np.ndarray, "h w"]) -> Float32[np.ndarray, " n"]:
    parts = [one for one in pixels.flat if one is not None]
    return np.concatenate(parts or [np.zeros(0)]).astype(np.float32)
