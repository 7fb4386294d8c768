"""numpy's .npy, and .npz with `flow` and perhaps `valid`; NaN where the flow is unknown.

Headers are parsed here, not by numpy, which evaluates them as Python and allocates by their shape.
"""

import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from gmaflow.errors import FlowFileError
from gmaflow.io.flow_arrays import (
    FlowArrays,
    check_length,
    check_ratio,
    check_size,
    known_part,
)

Read = Callable[[int], bytes]  # of an open file or of a member of an archive

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 4096
_DTYPE = re.compile(rb"'descr':\s*'([<>|=]?[fbu]\d{1,2})'")
_ORDER = re.compile(rb"'fortran_order':\s*(True|False)")
_SHAPE = re.compile(rb"'shape':\s*\(([\dL, ]{1,64})\)")
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    RuntimeError,  # encrypted; NotImplementedError is one too
    OverflowError,
)


class _Header(NamedTuple):
    dtype: np.dtype[Any]
    order: str
    shape: tuple[int, ...]
    length: int


def read_npy(path: Path) -> FlowArrays:
    """Read a floating-point array of height x width x 2."""
    with path.open("rb") as file:
        return known_part(_read_flow_array(path, file.read, path.stat().st_size))


def write_npy(path: Path, flow: FlowArrays) -> None:
    """Write float32, with NaN where the flow is unknown."""
    with path.open("wb") as file:
        np.save(file, flow.marked(), allow_pickle=False)


def read_npz(path: Path) -> FlowArrays:
    """Read the arrays `flow` and, if it is there, `valid`."""
    try:
        with zipfile.ZipFile(path) as archive:
            flow = _member(path, archive, "flow.npy")
            with archive.open(flow) as file:
                array = _read_flow_array(path, file.read, flow.file_size)
            if "valid.npy" not in archive.namelist():
                return known_part(array)
            member = _member(path, archive, "valid.npy")
            with archive.open(member) as file:
                valid = _read_array(path, file.read, member.file_size, array.shape[:2])
    except FlowFileError:
        raise
    except _BROKEN_ZIP as err:
        raise FlowFileError(f"{path}: not a sound .npz file ({err})") from err
    return known_part(array, valid != 0)


def write_npz(path: Path, flow: FlowArrays, beside: Mapping[str, np.ndarray] | None = None) -> None:
    """Write `flow` and `valid`, and what is beside them under its names, compressed."""
    arrays = {**(beside or {}), "flow": flow.array, "valid": flow.valid}
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    if name not in archive.namelist():
        found = ", ".join(archive.namelist()[:8]) or "nothing"
        raise FlowFileError(f"{path}: holds no array called {name[:-4]!r}, but {found}")
    info = archive.getinfo(name)
    # The other methods pack without bound, so that a claim could not be checked.
    if info.compress_type not in _ZIP_METHODS:
        raise FlowFileError(
            f"{path}: packed in an unusual way; save it by numpy's savez_compressed"
        )
    check_ratio(path, info.file_size, min(info.compress_size, path.stat().st_size))
    return info


def _read_flow_array(path: Path, read: Read, length: int) -> Float[np.ndarray, "h w 2"]:
    array = _read_array(path, read, length, None)
    if array.dtype.kind != "f":
        raise FlowFileError(f"{path}: an array of {array.dtype}; flow is floating point")
    return array


def _read_array(path: Path, read: Read, length: int, shape: tuple[int, ...] | None) -> np.ndarray:
    """Read an array of the given shape, or of any height x width x 2 if None."""
    header = _read_header(path, read)
    wanted = "height x width x 2" if shape is None else " x ".join(map(str, shape))
    fits = (
        len(header.shape) == 3 and header.shape[2] == 2 if shape is None else header.shape == shape
    )
    if not fits:
        raise FlowFileError(f"{path}: an array of shape {header.shape}; expected {wanted}")
    check_size(path, *header.shape[:2])
    size = int(np.prod(header.shape, dtype=np.int64)) * header.dtype.itemsize
    check_length(path, size, length - header.length)
    data = read(size)
    check_length(path, size, len(data))
    return np.frombuffer(data, header.dtype).reshape(header.shape, order=header.order)  # type: ignore[call-overload]


def _read_header(path: Path, read: Read) -> _Header:
    start = read(8)
    if len(start) < 8 or start[:6] != _MAGIC or start[6] not in (1, 2, 3):
        raise FlowFileError(f"{path}: not a numpy array (starts with {start[:6]!r})")
    size = struct.Struct("<H" if start[6] == 1 else "<I")
    count = read(size.size)
    length = size.unpack(count)[0] if len(count) == size.size else 0
    text = read(length) if length <= _LONGEST_HEADER else b""
    dtype, order, shape = _DTYPE.search(text), _ORDER.search(text), _SHAPE.search(text)
    if dtype is None or order is None or shape is None:
        raise FlowFileError(f"{path}: not an array of plain numbers, or its header is broken")
    try:
        return _Header(
            np.dtype(dtype[1].decode()),
            "F" if order[1] == b"True" else "C",
            tuple(int(part) for part in shape[1].replace(b"L", b"").split(b",") if part.strip()),
            8 + size.size + length,
        )
    except (TypeError, ValueError) as err:
        raise FlowFileError(f"{path}: its header is broken ({err})") from err
