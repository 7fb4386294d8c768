"""The pixels of OpenEXR files, by way of the package OpenEXR."""

import sys
import threading
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import IOBase
from types import ModuleType
from typing import Any, TextIO, TypeVar, cast

import numpy as np
from jaxtyping import Shaped

from gmaflow.errors import FlowError
from gmaflow.io.exr_header import DamagedError, Part

Planes = Mapping[str, Shaped[np.ndarray, "h w"]]
"""The channels of a part by name; those of deep parts hold an array or None for each pixel."""

MOST_VALUES = 2**30
"""That are unpacked of one file: 4 GiB of floats. The library unpacks all channels of all parts."""

# Each deep pixel of each channel is an object of Python, of about 250 bytes.
_DEEP_WEIGHT = 64
_Value = TypeVar("_Value", bound=np.generic)
_one_at_a_time = threading.Lock()


def import_openexr(doing: str, error: type[FlowError]) -> ModuleType:
    """Import OpenEXR, or say how to get it."""
    try:
        import OpenEXR
    except ModuleNotFoundError as err:
        raise error(f"{doing} .exr needs OpenEXR: pip install 'gmaflow[exr]'") from err
    module: ModuleType = OpenEXR
    return module


def count_values(parts: list[Part]) -> int:
    """Count the values that are unpacked to read any of the parts; deep ones weigh more."""
    return sum(part.samples * (_DEEP_WEIGHT if part.deep else 1) for part in parts)


def read_planes(openexr: ModuleType, file: IOBase, part: Part) -> Planes:
    """Read the channels of one part, each over the part's data window.

    Raises:
        DamagedError: they cannot be unpacked.
    """
    file.seek(0)
    # The library prints what it cannot unpack, and leaves the part out.
    with _one_at_a_time, redirect_stdout(cast(TextIO, _Muted())):
        try:
            parts = openexr.File(file, separate_channels=True).parts
        except (RuntimeError, ValueError, OSError, MemoryError) as err:
            raise DamagedError("its pixels cannot be unpacked") from err
    found = next((one.channels for one in parts if one.part_index == part.number), None)
    if found is None:
        raise DamagedError("its pixels cannot be unpacked")
    return {name: channel.pixels for name, channel in found.items()}


def in_display_window(
    part: Part, plane: np.ndarray[tuple[int, ...], np.dtype[_Value]]
) -> np.ndarray[tuple[int, ...], np.dtype[_Value]]:
    """Return what is seen of a plane of the data window; zeros where nothing is stored."""
    data, display = part.data, part.display
    if data == display:
        return plane
    seen = np.zeros((*display.size, *plane.shape[2:]), plane.dtype)
    left, right = max(data.left, display.left), min(data.right, display.right) + 1
    top, bottom = max(data.top, display.top), min(data.bottom, display.bottom) + 1
    if left < right and top < bottom:
        seen[
            top - display.top : bottom - display.top, left - display.left : right - display.left
        ] = plane[top - data.top : bottom - data.top, left - data.left : right - data.left]
    return seen


class _Muted:
    """Stands in for stdout: what this thread prints is dropped, what others print goes on."""

    def __init__(self) -> None:
        self._out = sys.stdout
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._thread else self._out.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._out, name)
