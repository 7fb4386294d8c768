"""Clips in HDF5: float16, each component of each frame packed by itself.

`flow` is T x H x W x 2 in chunks of one component of one frame, by HDF5's own filters shuffle and
gzip, so any HDF5 library reads it: `h5py.File("clip.h5")["flow"][i]`. `frames` holds the number of
the frame at which each flow begins.

Chunks are packed and unpacked here, not by the library: without its lock, in bounded memory, and
from an index that can be copied to other processes, which open HDF5 files cannot.
"""

import zlib
from collections.abc import Callable, Sequence
from io import SEEK_END, RawIOBase
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from jaxtyping import Float16, Float32, Int64

from gmaflow.errors import FlowFileError
from gmaflow.io.flow_files import (
    check_hdf5_end,
    check_length,
    import_h5py,
    plain_dataset,
    refusing_damage,
    to_half,
)
from gmaflow.io.images import check_header_size, check_ratio

SUFFIX = ".h5"
_LEVEL = 1  # 4 takes half as long again for 2 % less
_SMALLEST_CHUNK = 8
"""Bytes that zlib makes of nothing."""


class Hdf5Output:
    """An HDF5 clip that is being written to an open file."""

    def __init__(self, file: IO[bytes]) -> None:
        h5py = import_h5py("writing", SUFFIX)
        self._disk = _Disk(file)
        self._hdf5 = h5py.File(self._disk, "w")
        self._data: Any = None

    def append(self, array: Float32[np.ndarray, "h w 2"]) -> None:
        """Add a flow, NaN where it is unknown."""
        half = to_half(array)
        if self._data is None:
            height, width, _ = half.shape
            self._data = self._hdf5.create_dataset(
                "flow",
                (0, height, width, 2),
                "<f2",
                maxshape=(None, height, width, 2),
                chunks=(1, height, width, 1),
                shuffle=True,
                compression="gzip",
                compression_opts=_LEVEL,
            )
        number = len(self._data)
        self._data.resize(number + 1, axis=0)
        for component in range(2):
            packed = _pack(half[..., component])
            self._data.id.write_direct_chunk((number, 0, 0, component), packed)
        self._disk.check()

    def finish(self, frames: Sequence[int]) -> None:
        """Write the numbers of the frames, and close the file."""
        self._hdf5.create_dataset("frames", data=np.asarray(frames, "<i8"))
        self.close()
        self._disk.check()

    def close(self) -> None:
        """Close the file, complete or not."""
        self._hdf5.close()
        self._disk.close()


class _Disk(RawIOBase):
    """A file for the HDF5 library that keeps an error of the disk to itself.

    On such an error the library fails again while it closes the file, and crashes.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the error of the disk, if there was one."""
        if self._error is not None:
            raise self._error

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        data = self._file.read(len(buffer))
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:  # noqa: ANN401
        self._try(lambda: self._file.write(data))
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._try(lambda: self._file.seek(offset, whence))

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self, size: int | None = None) -> int:
        return self._try(lambda: self._file.truncate(size))

    def flush(self) -> None:
        self._try(self._file.flush)

    def _try(self, work: Callable[[], int | None]) -> int:
        try:
            if self._error is None:
                return work() or 0
        except OSError as err:
            self._error = err
        return 0


class Hdf5Index(NamedTuple):
    """Where the chunks of a clip lie in its file."""

    size: tuple[int, int]
    frames: list[int]
    chunks: Int64[np.ndarray, "t 2 2"]
    """Offset and length of each component of each frame."""

    def read(self, path: Path, index: int) -> Float16[np.ndarray, "h w 2"]:
        height, width = self.size
        check_ratio(path, 4 * height * width, int(self.chunks[index, :, 1].sum()))
        half = np.empty((height, width, 2), "<f2")
        with path.open("rb") as file:
            for component, (offset, length) in enumerate(self.chunks[index].tolist()):
                file.seek(offset)
                plane = _unpack(path, file.read(length), height * width)
                half[..., component] = plane.reshape(height, width)
        return half


def read_index(path: Path) -> Hdf5Index:
    """Read where the flows of a clip lie."""
    h5py = import_h5py("reading", SUFFIX)
    check_hdf5_end(path)
    with refusing_damage(path, ".h5"), h5py.File(path, "r") as file:
        data = plain_dataset(path, file, "flow", h5py)
        count, height, width = _shape_of(path, data)
        frames = plain_dataset(path, file, "frames", h5py)
        if frames.shape != (count,) or frames.dtype.kind != "i" or frames.chunks is not None:
            raise FlowFileError(f"{path}: its 'frames' are not the numbers of {count} frames")
        numbers = frames[()].tolist()
        chunks = _find_chunks(path, data, count)
    if numbers != sorted(set(numbers)) or numbers[0] < 0:
        raise FlowFileError(f"{path}: the numbers of its frames are not in order")
    return Hdf5Index((height, width), numbers, chunks)


def _shape_of(path: Path, data: Any) -> tuple[int, int, int]:  # noqa: ANN401
    if data.dtype != np.dtype("<f2") or data.ndim != 4 or data.shape[3] != 2:
        raise FlowFileError(
            f"{path}: its 'flow' is {data.dtype} of shape {data.shape}; expected float16 of "
            "frames x height x width x 2"
        )
    count, height, width, _ = map(int, data.shape)
    check_header_size(path, height, width)
    whole = data.chunks == (1, height, width, 1)
    if not (whole and data.shuffle and data.compression == "gzip" and len(data._filters) == 2):
        raise FlowFileError(
            f"{path}: its 'flow' is not stored in chunks of 1 x {height} x {width} x 1 by shuffle "
            "and gzip; read it with h5py"
        )
    if count < 1 or 2 * count * _SMALLEST_CHUNK > path.stat().st_size:
        raise FlowFileError(f"{path}: claims {count} frames; the file is truncated or damaged")
    return count, height, width


def _find_chunks(path: Path, data: Any, count: int) -> Int64[np.ndarray, "t 2 2"]:  # noqa: ANN401
    chunks = np.zeros((count, 2, 2), np.int64)
    with path.open("rb") as file:
        end = file.seek(0, SEEK_END)

    def note(chunk: Any) -> None:  # noqa: ANN401
        frame, _, _, component = chunk.chunk_offset
        inside = 0 < chunk.byte_offset <= chunk.byte_offset + chunk.size <= end
        if chunk.filter_mask == 0 and inside:
            chunks[frame, component] = chunk.byte_offset, chunk.size

    data.id.chunk_iter(note)
    if not chunks.all():
        raise FlowFileError(f"{path}: some of its flow is missing; the file is damaged")
    return chunks


def _pack(plane: Float16[np.ndarray, "h w"]) -> bytes:
    # HDF5's shuffle: the low bytes of all numbers, then the high ones.
    numbers = np.ascontiguousarray(plane, "<f2").view(np.uint8).reshape(-1, 2)
    return zlib.compress(numbers.T.tobytes(), _LEVEL)


def _unpack(path: Path, packed: bytes, count: int) -> Float16[np.ndarray, " pixels"]:
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(packed, 2 * count + 1)
    except zlib.error as err:
        raise FlowFileError(f"{path}: some of its flow is damaged ({err})") from err
    check_length(path, 2 * count, len(raw))
    if not unpacker.eof:
        raise FlowFileError(f"{path}: some of its flow is damaged (it does not end)")
    numbers = np.frombuffer(raw, np.uint8).reshape(2, count)
    return np.ascontiguousarray(numbers.T).view("<f2").reshape(count)
