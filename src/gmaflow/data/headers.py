"""Image and flow sizes from file headers, with a check for truncated files."""

import re
import struct
from pathlib import Path

from gmaflow.errors import DatasetError, os_reason
from gmaflow.io import read_flow_arrays, read_image
from gmaflow.io.exr_header import DamagedError, read_parts
from gmaflow.io.flow_files import check_hdf5_end, import_h5py, read_flo_size, read_pfm_size

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"
_PPM = re.compile(rb"P6\s(?:\s|#[^\n]*\n)*(\d{1,9})\s+(\d{1,9})\s+255\s")


def measure(path: Path) -> tuple[int, int]:
    """Return the height and width from a file's header.

    Only the start and end of the file are read; less common formats are decoded.
    """
    suffix = path.suffix.lower()
    reader = _READERS.get(suffix)
    try:
        if reader is not None:
            return reader(path)
        whole = read_flow_arrays(path).valid if suffix in (".npy", ".npz") else read_image(path)
    except OSError as err:
        raise DatasetError(f"cannot read {path}: {os_reason(err)}") from err
    return whole.shape[0], whole.shape[1]


def _png(path: Path) -> tuple[int, int]:
    head, size = _head(path, 24)
    if len(head) < 24 or not head.startswith(_PNG):
        raise DatasetError(f"{path} is not a PNG file (starts with {head[:8]!r})")
    with path.open("rb") as file:
        file.seek(max(0, size - 64))
        # Some writers add bytes after the end, which is harmless.
        if _PNG_END not in file.read():
            raise DatasetError(f"{path} is truncated: the end of the PNG is missing")
    width, height = struct.unpack(">II", head[16:24])
    return height, width


def _flo(path: Path) -> tuple[int, int]:
    with path.open("rb") as file:
        return read_flo_size(path, file)


def _pfm(path: Path) -> tuple[int, int]:
    with path.open("rb") as file:
        return read_pfm_size(path, file)[:2]


def _ppm(path: Path) -> tuple[int, int]:
    head, size = _head(path, 256)
    match = _PPM.match(head)
    if match is None:  # possibly a less common variant
        whole = read_image(path)
        return whole.shape[0], whole.shape[1]
    width, height = int(match[1]), int(match[2])
    if size < (needed := match.end() + 3 * height * width):
        raise DatasetError(f"{path} is truncated: it has {size} bytes, expected {needed}")
    return height, width


def _flo5(path: Path) -> tuple[int, int]:
    h5py = import_h5py("reading")
    try:
        check_hdf5_end(path)
        with h5py.File(path, "r") as file:  # h5py itself detects truncated files
            height, width, _ = file["flow"].shape
    except (OSError, KeyError, ValueError, RuntimeError, AttributeError) as err:
        raise DatasetError(f"{path} is not a valid .flo5 file ({err})") from err
    return int(height), int(width)


def _exr(path: Path) -> tuple[int, int]:
    try:
        with path.open("rb") as file:
            # All parts of a file share one display window.
            return read_parts(file)[0].display.size
    except DamagedError as err:
        raise DatasetError(f"{path} is not a valid .exr file ({err})") from err


def _head(path: Path, length: int) -> tuple[bytes, int]:
    with path.open("rb") as file:
        return file.read(length), path.stat().st_size


_READERS = {".png": _png, ".flo": _flo, ".pfm": _pfm, ".ppm": _ppm, ".flo5": _flo5, ".exr": _exr}
