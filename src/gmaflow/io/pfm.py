"""Portable float maps, .pfm: x, y and a third value nobody uses; rows from the bottom up.

FlyingThings3D and Monkaa come in it. Some programs leave the third channel out under the same
header, so the number of channels is taken from the length of the file.
"""

import re
from pathlib import Path

import numpy as np

from gmaflow.errors import FlowFileError
from gmaflow.io.flow_arrays import FlowArrays, check_length, check_size, known_part

_HEADER = re.compile(
    rb"PF\s+(\d{1,9})\s+(\d{1,9})\s+([-+]?[0-9.]+(?:[eE][-+]?\d{1,3})?)[ \t]*\r?\n"
)
_LONGEST_HEADER = 256


def read_pfm(path: Path) -> FlowArrays:
    """Read a colour .pfm file as flow."""
    with path.open("rb") as file:
        head = file.read(_LONGEST_HEADER)
        if head[:2] == b"Pf":
            raise FlowFileError(f"{path}: a one-channel .pfm (depth or disparity), not flow")
        match = _HEADER.match(head)
        if match is None:
            raise FlowFileError(
                f"{path}: not a .pfm file (starts with {head[:12]!r}, expected b'PF', size, scale)"
            )
        width, height = int(match[1]), int(match[2])
        check_size(path, height, width)
        byte_order = _byte_order(path, match[3])
        length = path.stat().st_size - match.end()
        channels = 2 if length == height * width * 8 else 3
        check_length(path, height * width * channels * 4, length)
        file.seek(match.end())
        array = np.fromfile(file, f"{byte_order}f4").reshape(height, width, channels)
    return known_part(array[::-1, :, :2])


def write_pfm(path: Path, flow: FlowArrays) -> None:
    """Write a little-endian .pfm file of three channels; NaN where the flow is unknown."""
    height, width = flow.valid.shape
    array = np.zeros((height, width, 3), "<f4")
    array[..., :2] = flow.marked()
    with path.open("wb") as file:
        file.write(f"PF\n{width} {height}\n-1.0\n".encode())
        file.write(array[::-1].tobytes())


def _byte_order(path: Path, scale: bytes) -> str:
    # Only the sign of the scale has a use; its size is a unit that flow does not have.
    try:
        value = float(scale)
    except ValueError:
        value = 0.0
    if value == 0:
        raise FlowFileError(f"{path}: its scale is {scale!r}; expected a number other than 0")
    return "<" if value < 0 else ">"
