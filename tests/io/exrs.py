"""OpenEXR files for the tests of this folder, written by the library."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import OpenEXR

Box = tuple[int, int, int, int]
COMPRESSIONS = sorted(name for name in vars(OpenEXR) if name.endswith("_COMPRESSION"))


def pack(channels: dict[str, np.ndarray], **header: Any) -> bytes:  # noqa: ANN401
    """A file of one part; `data` and `display` are windows: left, top, right, bottom."""
    return pack_parts(**{"": (channels, make_header(**header))})


def pack_parts(**parts: tuple[dict[str, np.ndarray], dict[str, Any]]) -> bytes:
    """A file of several parts: for each name its channels and its header."""
    packed = BytesIO()
    # A copy, since the library puts objects of its own into the dictionary.
    made = [OpenEXR.Part(header, dict(one), name) for name, (one, header) in parts.items()]
    OpenEXR.File(made).write(packed)
    return packed.getvalue()


def make_header(
    *,
    data: Box | None = None,
    display: Box | None = None,
    tile: int = 0,
    **header: Any,  # noqa: ANN401
) -> dict[str, Any]:
    header.setdefault("type", OpenEXR.tiledimage if tile else OpenEXR.scanlineimage)
    for name, box in (("dataWindow", data), ("displayWindow", display)):
        if box is not None:
            header[name] = (np.array(box[:2], np.int32), np.array(box[2:], np.int32))
    if tile:
        header["tiles"] = OpenEXR.TileDescription()
        header["tiles"].xSize = header["tiles"].ySize = tile
    return header


def write(path: Path, channels: dict[str, np.ndarray], **header: Any) -> Path:  # noqa: ANN401
    path.write_bytes(pack(channels, **header))
    return path


def rgb(
    height: int = 20,
    width: int = 30,
    layer: str = "",
    dtype: Any = np.float32,  # noqa: ANN401
) -> dict[str, np.ndarray]:
    """Channels whose values all differ, from below 0 to above 1."""
    values = np.linspace(-0.1, 1.2, height * width * 3, dtype=dtype).reshape(3, height, width)
    return {f"{layer}{letter}": plane for letter, plane in zip("RGB", values, strict=True)}


def shown(channels: dict[str, np.ndarray]) -> np.ndarray:
    """What a screen shows of red, green and blue, by the standard's own formula."""
    light = np.clip(np.stack(list(channels.values()), axis=2).astype(np.float64), 0, 1)
    curved = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    found: np.ndarray = np.rint(255 * curved).astype(np.uint8)
    return found


def linear(image: np.ndarray) -> dict[str, np.ndarray]:
    """The scene-linear channels of an 8-bit picture."""
    curved = image / 255
    light = np.where(curved <= 0.04045, curved / 12.92, ((curved + 0.055) / 1.055) ** 2.4)
    return {name: light[..., at].astype(np.float16) for at, name in enumerate("RGB")}


def deep(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A deep channel of so many values in each pixel, taken one after the other."""
    pixels = np.empty(counts.shape, object)
    ends = np.cumsum(counts)
    for place, (count, end) in enumerate(zip(counts.flat, ends, strict=True)):
        pixels.flat[place] = values[end - count : end].astype(np.float32) if count else None
    return pixels
