"""Middlebury's .flo: b"PIEH", width, height, then x and y of every pixel; little endian."""

import struct
from pathlib import Path

import numpy as np

from gmaflow.errors import FlowFileError
from gmaflow.io.flow_arrays import FlowArrays, check_length, check_size, known_part

_HEADER = struct.Struct("<4sii")
_MAGIC = b"PIEH"  # 202021.25 as a float, which tells a file of the wrong byte order
# Both from flowIO.cpp of the Middlebury benchmark.
_UNKNOWN = 1e10
_UNKNOWN_ABOVE = 1e9


def read_flo(path: Path) -> FlowArrays:
    """Read a .flo file."""
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or head[:4] != _MAGIC:
            raise FlowFileError(
                f"{path}: not a Middlebury .flo file (starts with {head[:4]!r}, "
                f"expected {_MAGIC!r})"
            )
        _, width, height = _HEADER.unpack(head)
        check_size(path, height, width)
        check_length(path, height * width * 8, path.stat().st_size - _HEADER.size)
        array = np.fromfile(file, "<f4").reshape(height, width, 2)
    return known_part(array, limit=_UNKNOWN_ABOVE)


def write_flo(path: Path, flow: FlowArrays) -> None:
    """Write a .flo file."""
    height, width = flow.valid.shape
    array = flow.marked(_UNKNOWN).astype("<f4")
    with path.open("wb") as file:
        file.write(_HEADER.pack(_MAGIC, width, height))
        file.write(array.tobytes())
