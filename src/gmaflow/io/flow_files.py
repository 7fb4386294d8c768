"""Flow files: .flo, .pfm, .npy, .npz, .flo5, .exr, KITTI's .png, and pairs of JPEGs.

The name picks the format. Headers are not trusted: sizes and lengths are checked before memory is
allocated.
"""

import math
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float16, Float32

from gmaflow.errors import FlowFileError, import_extra
from gmaflow.io import exr
from gmaflow.io.images import (
    BROKEN,
    PICTURE_SUFFIXES,
    check_header_size,
    check_ratio,
)
from gmaflow.io.paths import (
    XY_ENDING,
    PathLike,
    as_path,
    atomic_write,
    files_of,
    is_xy,
    require_file,
    xy_paths,
    xy_stem,
)
from gmaflow.io.png16 import encode_png16, read_png16
from gmaflow.io.xy_jpeg import USUAL_BOUND, decode_xy, encode_xy

KITTI_ENDING = ".kitti.png"
"""Ending that distinguishes KITTI's 16-bit flow from a picture."""
HALF_ENDING = ".f16.npz"
"""Ending of an .npz that is written in float16."""


class FlowArrays(NamedTuple):
    """A flow and where it is known."""

    array: Float32[np.ndarray, "h w 2"]
    """X and y displacement in pixels; 0 where unknown."""
    valid: Bool[np.ndarray, "h w"]
    """True where the flow is known."""
    backward: bool = False
    """Whether it leads to the previous frame instead of the next. Only .exr stores this; flow from
    other formats counts as forward."""

    def marked(self, unknown: float = np.nan) -> Float32[np.ndarray, "h w 2"]:
        """Return the flow with a mark where it is unknown, for formats without a mask."""
        return np.where(self.valid[..., None], self.array, np.float32(unknown))


def known_part(
    array: Float[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"] | None = None,
    *,
    limit: float = np.inf,
) -> FlowArrays:
    """Make a flow with zeros where it is unknown.

    Args:
        array: The flow; NaN and infinity mean unknown.
        valid: Where else the flow is unknown (False); None: nowhere.
        limit: Magnitudes above it mean unknown.
    """
    with np.errstate(over="ignore"):
        flow = array.astype(np.float32)  # always a copy
    # NaN fails the comparison, and infinity is below no finite limit.
    largest = np.minimum(limit, np.finfo(np.float32).max).astype(np.float32)
    with np.errstate(invalid="ignore"):
        mask = (np.abs(flow[..., 0]) <= largest) & (np.abs(flow[..., 1]) <= largest)
    if valid is not None:
        mask &= valid
    np.copyto(flow, 0, where=~mask[..., None])  # an index would take more memory than the flow
    return FlowArrays(flow, mask)


def read_flow_arrays(path: PathLike) -> FlowArrays:
    """Read a flow file as plain arrays; `gmaflow.read_flow` returns a `Flow`.

    Of a pair of JPEGs, either can be given.

    Raises:
        FlowFileError: The file does not exist, is damaged, or is not a flow file.
    """
    path = as_path(path, FlowFileError)
    reader = _format_of(path).read
    for file in files_of(path):
        require_file(file, FlowFileError, "a flow file")
    try:
        return reader(path)
    except (OSError, MemoryError) as err:
        raise FlowFileError(f"{path} cannot be read: {err}") from err


def write_flow(
    path: PathLike,
    array: Float[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"] | None = None,
    backward: bool = False,
    *,
    beside: Mapping[str, np.ndarray] | None = None,
    bound: float = USUAL_BOUND,
) -> None:
    """Write a flow file; every .png is written in KITTI's format, as the benchmark names its files.

    KITTI's format rounds to 1/64 pixel, .f16.npz to float16, and a pair of JPEGs (flow_x_1.jpg,
    which also writes flow_y_1.jpg) to 8 bits; all others keep float32 exactly. Where a .png can
    also be a picture (`Flow.save`, the command line), `is_picture` decides.

    Args:
        path: Where to; an existing file is replaced.
        array: The flow in pixels. NaN and infinity are written as unknown; in .flo, so are values
            above 1e9.
        valid: Where the flow is known; None: everywhere.
        backward: Whether it leads to the previous frame; .exr stores it in the channel names,
            other formats do not store it.
        beside: Other arrays to keep in the file, by name; .npz only.
        bound: Pairs of JPEGs: the longest motion in x and in y; longer ones are clipped.

    Raises:
        FlowFileError: The format is unknown, or cannot hold this flow or the other arrays.
        OutputError: The place cannot be written to.
    """
    path = as_path(path)
    writer = _format_of(path).write
    if beside:
        if path.suffix.lower() != ".npz":
            raise FlowFileError(f"{path}: {path.suffix} holds only flow; use .npz")
        half = path.name.lower().endswith(HALF_ENDING)
        writer = partial(_write_npz, beside=beside, half=half)
    check_arrays(path, array, valid)
    flow = known_part(array, valid)._replace(backward=backward)
    if is_xy(path):
        _write_xy(path, flow, bound)
        return
    with atomic_write(path) as file:
        try:
            writer(file, flow)
        except FlowFileError as err:  # the writer does not know the final name
            raise FlowFileError(f"{path}: {err}") from err


def is_picture(path: PathLike) -> bool:
    """Return whether the name of an output is that of a picture of the flow, not of a flow file.

    A .png is a picture, unless its name ends in .kitti.png; a .jpg, unless it is a flow_x or
    flow_y.
    """
    name = as_path(path).name.lower()
    if name.endswith(KITTI_ENDING) or is_xy(name):
        return False
    return Path(name).suffix in PICTURE_SUFFIXES


def ensure_can_encode(path: PathLike) -> None:
    """Check before the work whether a format can be written here."""
    _format_of(Path(path)).require()


def check_arrays(path: Path, array: np.ndarray, valid: np.ndarray | None) -> None:
    """Refuse arrays that are not flow, which the formats would take for flow of another shape."""
    for given in (array, *(() if valid is None else (valid,))):
        if not isinstance(given, np.ndarray):
            raise FlowFileError(f"{path}: got a {type(given).__name__}; give a numpy array")
    if array.ndim != 3 or array.shape[2] != 2 or array.dtype.kind != "f" or 0 in array.shape:
        raise FlowFileError(
            f"{path}: got an array of {array.dtype} and shape {array.shape}; "
            "flow is floating point of height x width x 2"
        )
    if valid is not None and (valid.dtype != np.bool_ or valid.shape != array.shape[:2]):
        raise FlowFileError(
            f"{path}: got a valid of {valid.dtype} and shape {valid.shape}; "
            f"expected bool of {array.shape[0]} x {array.shape[1]}"
        )


def check_length(path: Path, claimed: int, actual: int) -> None:
    """Refuse a flow file whose length is not what its header claims."""
    if claimed != actual:
        raise FlowFileError(
            f"{path}: its header asks for {claimed} bytes of flow but it has {actual}; "
            "the file is truncated or damaged"
        )


@contextmanager
def refusing_damage(path: Path, suffix: str) -> Iterator[None]:
    """Turn what a library raises on a damaged flow file into a `FlowFileError`."""
    try:
        yield
    except FlowFileError:
        raise
    except (zipfile.BadZipFile, *BROKEN) as err:
        raise FlowFileError(f"{path}: not a valid {suffix} file ({err})") from err


# --- Middlebury's .flo: b"PIEH", width, height, then x and y of every pixel; little endian --------

_FLO_HEADER = struct.Struct("<4sii")
_FLO_MAGIC = b"PIEH"  # 202021.25 as a float, which reveals a wrong byte order
# Both from flowIO.cpp of the Middlebury benchmark.
_FLO_UNKNOWN = 1e10
_FLO_UNKNOWN_ABOVE = 1e9


def read_flo_size(path: Path, file: IO[bytes]) -> tuple[int, int]:
    """Read the height and width of an open .flo, up to its data, and check its length."""
    head = file.read(_FLO_HEADER.size)
    if len(head) < _FLO_HEADER.size or head[:4] != _FLO_MAGIC:
        raise FlowFileError(
            f"{path}: not a Middlebury .flo file (starts with {head[:4]!r}, "
            f"expected {_FLO_MAGIC!r})"
        )
    _, width, height = _FLO_HEADER.unpack(head)
    check_header_size(path, height, width)
    check_length(path, height * width * 8, path.stat().st_size - _FLO_HEADER.size)
    return height, width


def _read_flo(path: Path) -> FlowArrays:
    with path.open("rb") as file:
        height, width = read_flo_size(path, file)
        array = np.fromfile(file, "<f4").reshape(height, width, 2)
    return known_part(array, limit=_FLO_UNKNOWN_ABOVE)


def _write_flo(file: IO[bytes], flow: FlowArrays) -> None:
    height, width = flow.valid.shape
    array = flow.marked(_FLO_UNKNOWN).astype("<f4")
    file.write(_FLO_HEADER.pack(_FLO_MAGIC, width, height))
    file.write(array.tobytes())


# --- KITTI's .png: red and green are 64 * flow + 2^15 in 16 bits, blue says where it is known -----

_KITTI_STEPS_PER_PIXEL = 64.0
_KITTI_ZERO = 2**15


def _read_kitti(path: Path) -> FlowArrays:
    codes = read_png16(path)
    flow, valid = codes[..., :2].astype(np.float32), codes[..., 2] > 0
    del codes  # large files need the memory
    flow -= _KITTI_ZERO
    flow /= np.float32(_KITTI_STEPS_PER_PIXEL)
    return known_part(flow, valid)


def _write_kitti(file: IO[bytes], flow: FlowArrays) -> None:
    codes = np.rint(flow.array.astype(np.float64) * _KITTI_STEPS_PER_PIXEL + _KITTI_ZERO)
    if ((codes < 1) | (codes > 65535)).any():  # unknown pixels are zero, hence inside
        largest = float(np.abs(flow.array).max())
        raise FlowFileError(
            f"a flow of {largest:.5g} pixels does not fit KITTI's format, which ends below 512; "
            "write .flo instead"
        )
    image = np.ones((*flow.valid.shape, 3), np.uint16)
    image[..., :2] = codes
    image[~flow.valid] = 0
    file.write(encode_png16(image))


# --- Portable float maps, .pfm: x, y and an unused third value; rows from the bottom up -----------
# FlyingThings3D and Monkaa use it. Some programs leave the third channel out under the same header,
# so the number of channels is taken from the length of the file.

_PFM_HEADER = re.compile(
    rb"PF\s+(\d{1,9})\s+(\d{1,9})\s+([-+]?[0-9.]+(?:[eE][-+]?\d{1,3})?)[ \t]*\r?\n"
)
_PFM_LONGEST_HEADER = 256


def read_pfm_size(path: Path, file: IO[bytes]) -> tuple[int, int, int, str]:
    """Read the height, width, channels and byte order of an open .pfm, and check its length."""
    head = file.read(_PFM_LONGEST_HEADER)
    if head[:2] == b"Pf":
        raise FlowFileError(f"{path}: a one-channel .pfm (depth or disparity), not flow")
    match = _PFM_HEADER.match(head)
    if match is None:
        raise FlowFileError(
            f"{path}: not a .pfm file (starts with {head[:12]!r}, expected b'PF', size, scale)"
        )
    width, height = int(match[1]), int(match[2])
    check_header_size(path, height, width)
    byte_order = _pfm_byte_order(path, match[3])
    length = path.stat().st_size - match.end()
    channels = 2 if length == height * width * 8 else 3
    check_length(path, height * width * channels * 4, length)
    file.seek(match.end())
    return height, width, channels, byte_order


def _read_pfm(path: Path) -> FlowArrays:
    with path.open("rb") as file:
        *shape, byte_order = read_pfm_size(path, file)
        array = np.fromfile(file, f"{byte_order}f4").reshape(shape)
    return known_part(array[::-1, :, :2])


def _write_pfm(file: IO[bytes], flow: FlowArrays) -> None:
    height, width = flow.valid.shape
    array = np.zeros((height, width, 3), "<f4")
    array[..., :2] = flow.marked()
    file.write(f"PF\n{width} {height}\n-1.0\n".encode())
    file.write(array[::-1].tobytes())


def _pfm_byte_order(path: Path, scale: bytes) -> str:
    # Only the sign of the scale is used; its size is a unit that flow does not have.
    try:
        value = float(scale)
    except ValueError:
        value = 0.0
    if value == 0:
        raise FlowFileError(f"{path}: its scale is {scale!r}; expected a number other than 0")
    return "<" if value < 0 else ">"


# --- numpy's .npy, and .npz with `flow` and perhaps `valid`; NaN where the flow is unknown --------
# Headers are parsed here, not by numpy, which evaluates them as Python and allocates by shape.

_Read = Callable[[int], bytes]  # of an open file or of a member of an archive

_NPY_MAGIC = b"\x93NUMPY"
_NPY_LONGEST_HEADER = 4096
_NPY_DTYPE = re.compile(rb"'descr':\s*'([<>|=]?[fbui]\d{1,2})'")
_NPY_ORDER = re.compile(rb"'fortran_order':\s*(True|False)")
_NPY_SHAPE = re.compile(rb"'shape':\s*\(([\dL, ]{0,64})\)")
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class _NpyHeader(NamedTuple):
    dtype: np.dtype[Any]
    order: str
    shape: tuple[int, ...]
    length: int


def _read_npy(path: Path) -> FlowArrays:
    with path.open("rb") as file:
        return known_part(_read_flow_array(path, file.read, path.stat().st_size))


def _write_npy(file: IO[bytes], flow: FlowArrays) -> None:
    # Encoded in memory first: numpy's error does not say that the disk is full.
    buffer = BytesIO()
    np.save(buffer, flow.marked(), allow_pickle=False)
    file.write(buffer.getbuffer())


def _read_npz(path: Path) -> FlowArrays:
    with refusing_damage(path, ".npz"), zipfile.ZipFile(path) as archive:
        flow = _zip_member(path, archive, "flow.npy")
        with archive.open(flow) as file:
            array = _read_flow_array(path, file.read, flow.file_size)
        if "valid.npy" not in archive.namelist():
            return known_part(array)
        member = _zip_member(path, archive, "valid.npy")
        with archive.open(member) as file:
            valid = _read_array(path, file.read, member.file_size, array.shape[:2])
    return known_part(array, valid != 0)


def read_npz_arrays(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read some arrays of an .npz without trusting the sizes that it claims."""
    arrays = {}
    with refusing_damage(path, ".npz"), zipfile.ZipFile(path) as archive:
        for name in names:
            member = _zip_member(path, archive, f"{name}.npy")
            with archive.open(member) as file:
                header = _read_npy_header(path, file.read)
                arrays[name] = _read_numbers(path, file.read, member.file_size, header)
    return arrays


def _write_npz(
    file: IO[bytes],
    flow: FlowArrays,
    beside: Mapping[str, np.ndarray] | None = None,
    *,
    half: bool = False,
) -> None:
    arrays: dict[str, Any] = {**(beside or {}), "flow": flow.array, "valid": flow.valid}
    if half:
        arrays = {name: _halved(array) for name, array in arrays.items()}
    np.savez_compressed(file, **arrays)


def to_half(array: Float32[np.ndarray, "*shape"]) -> Float16[np.ndarray, "*shape"]:
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    if np.isinf(half).any():
        raise FlowFileError(
            f"a flow of {float(np.nanmax(np.abs(array))):.5g} pixels does not fit float16, which "
            "ends at 65504; use a format with float32"
        )
    return half


def _halved(array: np.ndarray) -> np.ndarray:
    # In Fortran's order x and y lie apart, and files get a sixth smaller.
    return np.asfortranarray(to_half(array)) if array.dtype == np.float32 else array


def _zip_member(path: Path, archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    if name not in archive.namelist():
        members = ", ".join(archive.namelist()[:8]) or "nothing"
        raise FlowFileError(f"{path} has no array {name[:-4]!r}; it has {members}")
    info = archive.getinfo(name)
    # Other methods compress without bound, so a claimed size could not be checked.
    if info.compress_type not in _ZIP_METHODS:
        raise FlowFileError(
            f"{path}: compressed by an unusual method; save it with numpy's savez_compressed"
        )
    check_ratio(path, info.file_size, min(info.compress_size, path.stat().st_size))
    return info


def _read_flow_array(path: Path, read: _Read, length: int) -> Float[np.ndarray, "h w 2"]:
    array = _read_array(path, read, length, None)
    if array.dtype.kind != "f":
        raise FlowFileError(f"{path}: an array of {array.dtype}; flow is floating point")
    return array


def _read_array(path: Path, read: _Read, length: int, shape: tuple[int, ...] | None) -> np.ndarray:
    """Read an array of the given shape, or of any height x width x 2 if None."""
    header = _read_npy_header(path, read)
    expected = "height x width x 2" if shape is None else " x ".join(map(str, shape))
    fits = (
        len(header.shape) == 3 and header.shape[2] == 2 if shape is None else header.shape == shape
    )
    if not fits:
        raise FlowFileError(f"{path}: an array of shape {header.shape}; expected {expected}")
    check_header_size(path, *header.shape[:2])
    return _read_numbers(path, read, length, header)


def _read_numbers(path: Path, read: _Read, length: int, header: _NpyHeader) -> np.ndarray:
    size = math.prod(header.shape) * header.dtype.itemsize
    check_length(path, size, length - header.length)
    data = read(size)
    check_length(path, size, len(data))
    return np.frombuffer(data, header.dtype).reshape(header.shape, order=header.order)  # type: ignore[call-overload]


def _read_npy_header(path: Path, read: _Read) -> _NpyHeader:
    start = read(8)
    if len(start) < 8 or start[:6] != _NPY_MAGIC or start[6] not in (1, 2, 3):
        raise FlowFileError(f"{path}: not a numpy array (starts with {start[:6]!r})")
    size = struct.Struct("<H" if start[6] == 1 else "<I")
    count = read(size.size)
    length = size.unpack(count)[0] if len(count) == size.size else 0
    text = read(length) if length <= _NPY_LONGEST_HEADER else b""
    dtype, order, shape = (pattern.search(text) for pattern in (_NPY_DTYPE, _NPY_ORDER, _NPY_SHAPE))
    if dtype is None or order is None or shape is None:
        raise FlowFileError(f"{path}: not an array of plain numbers, or its header is damaged")
    try:
        return _NpyHeader(
            np.dtype(dtype[1].decode()),
            "F" if order[1] == b"True" else "C",
            tuple(int(part) for part in shape[1].replace(b"L", b"").split(b",") if part.strip()),
            8 + size.size + length,
        )
    except (TypeError, ValueError) as err:
        raise FlowFileError(f"{path}: its header is damaged ({err})") from err


# --- Spring's .flo5: HDF5 with one dataset, "flow"; NaN where the flow is unknown -----------------


def import_h5py(doing: str, suffix: str = ".flo5") -> ModuleType:
    """Import h5py, or say how to install it."""
    return import_extra("h5py", f"{doing} {suffix}", extra="data", error=FlowFileError)


_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_HDF5_END = {0: 40, 1: 44, 2: 28, 3: 28}
"""Offset of the file length, by the version of the first block of 48 bytes or more."""


def check_hdf5_end(path: Path) -> None:
    """Refuse an HDF5 file that claims to be shorter than its first block.

    The library checks the lengths of tables by it; without, it takes gigabytes for a few bytes.
    """
    with path.open("rb") as file:
        head = file.read(64)
    place = _HDF5_END.get(head[8]) if head.startswith(_HDF5_MAGIC) and len(head) == 64 else None
    if place is not None and int.from_bytes(head[place : place + 8], "little") < 48:
        raise FlowFileError(f"{path}: not a valid HDF5 file (its length is wrong)")


def _read_flo5(path: Path) -> FlowArrays:
    h5py = import_h5py("reading")
    check_hdf5_end(path)
    with refusing_damage(path, ".flo5"), h5py.File(path, "r") as file:
        return known_part(_read_dataset(path, file, h5py))


def _write_flo5(file: IO[bytes], flow: FlowArrays) -> None:
    h5py = import_h5py("writing")
    # In memory: on a full disk the HDF5 library fails again when it closes the file, and crashes.
    with h5py.File("flow.flo5", "w", driver="core", backing_store=False) as memory_file:
        # Compressed as Spring's files are.
        memory_file.create_dataset(
            "flow", data=flow.marked(), compression="gzip", compression_opts=5
        )
        memory_file.flush()
        content: bytes = memory_file.id.get_file_image()
    file.write(content)


def plain_dataset(path: Path, file: Any, name: str, h5py: ModuleType) -> Any:  # noqa: ANN401
    """Return a dataset of an open HDF5 file, if all of it lies in this file.

    A link or a virtual dataset could lead to other files of this machine.
    """
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise FlowFileError(f"{path}: holds no dataset called {name!r}")
    data = file[name]
    if not isinstance(data, h5py.Dataset) or data.is_virtual or data.external:
        raise FlowFileError(f"{path}: its {name!r} is not a plain dataset")
    return data


def _read_dataset(path: Path, file: Any, h5py: ModuleType) -> Float[np.ndarray, "h w 2"]:  # noqa: ANN401
    data = plain_dataset(path, file, "flow", h5py)
    if data.dtype.kind != "f" or data.ndim != 3 or data.shape[2] != 2:
        raise FlowFileError(
            f"{path}: its 'flow' is {data.dtype} of shape {data.shape}; "
            "expected floating point of height x width x 2"
        )
    check_header_size(path, *data.shape[:2])
    check_ratio(path, data.size * data.dtype.itemsize, path.stat().st_size)
    array: np.ndarray = data[()]
    return array


# --- Pairs of JPEGs: see xy_jpeg.py ---------------------------------------------------------------


def _read_xy(path: Path) -> FlowArrays:
    x, y = xy_paths(path)
    return known_part(decode_xy((x.read_bytes(), x), (y.read_bytes(), y)))


def _write_xy(path: Path, flow: FlowArrays, bound: float) -> None:
    try:
        images = encode_xy(*flow[:2], bound)
    except FlowFileError as err:
        raise FlowFileError(f"{path}: {err}") from err
    # x comes last: where it is, the pair is complete.
    for target, image in reversed(list(zip(xy_paths(path), images, strict=True))):
        with atomic_write(target) as file:
            file.write(image)


# --- OpenEXR: see exr.py --------------------------------------------------------------------------


def _read_exr(path: Path) -> FlowArrays:
    array, valid, backward = exr.read_exr_flow(path)
    return known_part(array, valid)._replace(backward=backward)


def _write_exr(file: IO[bytes], flow: FlowArrays) -> None:
    exr.write_exr_flow(file, flow.array, flow.valid, backward=flow.backward)


class _Format(NamedTuple):
    read: Callable[[Path], FlowArrays]
    write: Callable[[IO[bytes], FlowArrays], None]
    require: Callable[[], object] = lambda: None
    """Imports the package that writing needs, or says how to install it."""


_FORMATS = {
    ".flo": _Format(_read_flo, _write_flo),
    ".png": _Format(_read_kitti, _write_kitti),
    ".pfm": _Format(_read_pfm, _write_pfm),
    ".npy": _Format(_read_npy, _write_npy),
    ".npz": _Format(_read_npz, _write_npz),
    ".flo5": _Format(_read_flo5, _write_flo5, partial(import_h5py, "writing")),
    ".exr": _Format(_read_exr, _write_exr, partial(exr.import_openexr, "writing", FlowFileError)),
}
FLOW_SUFFIXES = frozenset(_FORMATS)
_HALF = _Format(_read_npz, partial(_write_npz, half=True))
_XY = _Format(_read_xy, partial(_write_xy, bound=USUAL_BOUND))

FLOW_ENDINGS = {
    **{suffix[1:]: suffix for suffix in _FORMATS if suffix != ".png"},
    "kitti": KITTI_ENDING,
    "npz16": HALF_ENDING,
    "xy": XY_ENDING,
}
"""How the names of files in a folder end, by format; see `name_file`."""


def stem_of(path: PathLike) -> str:
    """Return the name of a flow file without the ending of its format."""
    path = Path(path)
    if is_xy(path):
        return xy_stem(path)
    for ending in (KITTI_ENDING, HALF_ENDING):
        if path.name.lower().endswith(ending):
            return path.name[: -len(ending)]
    return path.stem


def name_file(stem: str, ending: str) -> str:
    """Return the name of a frame's file: the stem and an ending, which may begin before it."""
    return ending.replace("*", stem) if "*" in ending else f"{stem}{ending}"


def stem_in(name: str, ending: str) -> str | None:
    """Return the stem in a name that `name_file` made; None if the name has another ending."""
    start, end = ending.split("*") if "*" in ending else ("", ending)
    if len(name) < len(start) + len(end) or not (name.startswith(start) and name.endswith(end)):
        return None
    return name[len(start) : len(name) - len(end)]


def _format_of(path: Path) -> _Format:
    if is_xy(path):
        return _XY
    if path.name.lower().endswith(HALF_ENDING):
        return _HALF
    file_format = _FORMATS.get(path.suffix.lower())
    if file_format is None:
        endings = ", ".join(KITTI_ENDING if suffix == ".png" else suffix for suffix in _FORMATS)
        raise FlowFileError(f"{path}: {path.suffix!r} is not a flow format; use one of {endings}")
    return file_format
