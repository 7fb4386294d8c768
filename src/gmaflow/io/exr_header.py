"""The header of an OpenEXR file: its parts, channels and windows, and whether it is complete.

It is parsed here, not by the library, which allocates what a header claims and prints its
complaints to the terminal.
"""

import struct
from io import SEEK_CUR, SEEK_END, IOBase
from typing import NamedTuple

import numpy as np

MAGIC = b"\x76\x2f\x31\x01"
_TILED, _LONG_NAMES, _NO_PICTURE, _SEVERAL_PARTS = 0x200, 0x400, 0x800, 0x1000
_FLAGS = _TILED | _LONG_NAMES | _NO_PICTURE | _SEVERAL_PARTS
_VERSION = 2
_LONGEST_NAME = 255
_LARGEST_TILE = 2**20
_MOST = 4096  # channels or parts, a hundred times more than in practice
_USED = ("channels", "compression", "dataWindow", "displayWindow", "type", "tiles", "chunkCount")
# How many lines are packed together, by compression. Newer kinds are not listed.
_LINES = {0: 1, 1: 1, 2: 1, 3: 16, 4: 32, 5: 16, 6: 32, 7: 32, 8: 32, 9: 256, 10: 256, 11: 32}


class DamagedError(ValueError):
    """An OpenEXR file is damaged; the reason, to be put after the file's name."""


class Window(NamedTuple):
    """A rectangle of pixels, including the last row and column."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.bottom - self.top + 1, self.right - self.left + 1

    @property
    def pixels(self) -> int:
        return self.size[0] * self.size[1]


class ExrPart(NamedTuple):
    """One of the images in a file; most files have one."""

    number: int
    """Its index in the file."""
    channels: tuple[str, ...]
    """Names of the channels with a value for each pixel."""
    thinned: tuple[str, ...]
    """Names of the channels with one value for several pixels."""
    data: Window
    """The pixels that are stored."""
    display: Window
    """The pixels that make up the image."""
    compression: int
    """Its number in the format."""
    deep: bool
    """Whether pixels hold any number of values, one behind the other."""

    @property
    def samples(self) -> int:
        """Number of values in all channels, counting one for each pixel."""
        return self.data.pixels * (len(self.channels) + len(self.thinned))


class _Head(NamedTuple):
    part: ExrPart
    tile: tuple[int, int] | None
    chunks: int | None  # None if the header does not say

    @property
    def first_chunks(self) -> int | None:
        """The chunks of the full image, without the smaller copies (mip maps) after it."""
        height, width = self.part.data.size
        if self.tile is not None:
            return -(-height // self.tile[0]) * -(-width // self.tile[1])
        lines = _LINES.get(self.part.compression)
        return self.chunks if lines is None else -(-height // lines)


def read_parts(file: IOBase) -> list[ExrPart]:
    """Read the headers of all parts, and check that no chunk is missing."""
    size = file.seek(0, SEEK_END)
    file.seek(0)
    if file.read(4) != MAGIC:
        raise DamagedError("it does not start like an OpenEXR file")
    flags = _numbers("<I", _take(file, 4))[0]
    if flags & 0xFF != _VERSION or (flags & ~0xFF) & ~_FLAGS:
        raise DamagedError("it is of a newer version, or its header is damaged")
    heads: list[_Head] = []
    while attributes := _attributes(file, size):
        heads.append(_head(len(heads), attributes, tiled=bool(flags & _TILED)))
        if not flags & _SEVERAL_PARTS:
            break
    if not 0 < len(heads) <= _MOST:
        raise DamagedError(f"it has {len(heads)} parts")
    _check_chunks(file, heads, size, several=bool(flags & _SEVERAL_PARTS))
    return [head.part for head in heads]


def _attributes(file: IOBase, size: int) -> dict[str, bytes]:
    """Read the attributes of one part that are used; empty after the last part."""
    attributes = {}
    while name := _name(file):
        _name(file)  # its type, which is known
        length = _numbers("<i", _take(file, 4))[0]
        if not 0 <= length <= size:
            raise DamagedError("its header is damaged" if length < 0 else "it is truncated")
        if name in _USED:
            attributes[name] = _take(file, length)
        else:
            file.seek(length, SEEK_CUR)
    return attributes


def _head(number: int, attributes: dict[str, bytes], *, tiled: bool) -> _Head:
    missing = {"channels", "compression", "dataWindow", "displayWindow"} - attributes.keys()
    if missing:
        raise DamagedError(f"its header lacks {min(missing)}")
    kind = attributes.get("type", b"tiledimage" if tiled else b"scanlineimage").rstrip(b"\0")
    names = _channels(attributes["channels"])
    part = ExrPart(
        number=number,
        channels=tuple(name for name, thinned in names.items() if not thinned),
        thinned=tuple(name for name, thinned in names.items() if thinned),
        data=_window(attributes["dataWindow"]),
        display=_window(attributes["displayWindow"]),
        compression=_numbers("<B", attributes["compression"])[0],
        deep=kind in (b"deepscanline", b"deeptile"),
    )
    tile = None
    if kind in (b"tiledimage", b"deeptile"):
        width, height, _ = _numbers("<IIB", attributes.get("tiles", b""))
        # The library allocates by their size, whatever they hold.
        if not 0 < width * height <= max(_LARGEST_TILE, part.data.pixels):
            raise DamagedError(f"its tiles are of {height} x {width} pixels")
        tile = (height, width)
    chunks = attributes.get("chunkCount")
    return _Head(part, tile, None if chunks is None else _numbers("<i", chunks)[0])


def _channels(raw: bytes) -> dict[str, bool]:
    """Return the names of the channels, and whether they skip pixels."""
    subsampled: dict[str, bool] = {}
    place = 0
    while raw[place : place + 1] not in (b"\0", b""):
        end = raw.find(b"\0", place)
        if end < 0 or len(subsampled) == _MOST:
            raise DamagedError("its list of channels is damaged")
        *_, across, down = _numbers("<iB3xii", raw[end + 1 : end + 17])
        subsampled[raw[place:end].decode("utf-8", "replace")] = (across, down) != (1, 1)
        place = end + 17
    return subsampled


def _window(raw: bytes) -> Window:
    window = Window(*_numbers("<4i", raw))
    if min(window.size) < 1:
        raise DamagedError(f"its header gives a size of {window.size[0]} x {window.size[1]}")
    return window


def _check_chunks(file: IOBase, heads: list[_Head], size: int, *, several: bool) -> None:
    """Refuse a file whose table of chunks is not filled, or whose last chunk is incomplete."""
    table = file.tell()
    for head in heads:
        count = head.first_chunks
        if count is None:
            return
        entries = count if head.chunks is None else head.chunks
        if not 0 < count <= entries <= size // 8:
            raise DamagedError("it is truncated")
        file.seek(table)
        places = np.frombuffer(_take(file, 8 * count), "<u8")
        table += 8 * entries
        if places.min() < table:
            raise DamagedError("parts of it were never written")
        last = int(places.max())
        if last >= size or last + _chunk_length(file, head, last, several) > size:
            raise DamagedError("it is truncated")


def _chunk_length(file: IOBase, head: _Head, place: int, several: bool) -> int:
    # The number of the part, the place in the image, then one length, or two of a deep part.
    before = 4 * several + (4 if head.tile is None else 16)
    lengths = struct.Struct("<QQQ" if head.part.deep else "<I")
    file.seek(place + before)
    packed = lengths.unpack(_take(file, lengths.size))[:2]
    return before + lengths.size + sum(packed)


def _name(file: IOBase) -> str:
    name = b""
    while (letter := _take(file, 1)) != b"\0":
        name += letter
        if len(name) > _LONGEST_NAME:
            raise DamagedError("its header is damaged")
    return name.decode("utf-8", "replace")


def _take(file: IOBase, length: int) -> bytes:
    data: bytes = file.read(length)
    if len(data) != length:
        raise DamagedError("it is truncated")
    return data


def _numbers(form: str, raw: bytes) -> tuple[int, ...]:
    if len(raw) != struct.calcsize(form):
        raise DamagedError("its header is damaged")
    return struct.unpack(form, raw)
