"""PNG of three 16-bit channels, which Pillow would reduce to 8 bits.

FFmpeg (PyAV) decodes such files exactly and equally fast, but accepts rows with missing bytes and
unknown filters, and fills the pixels with garbage. This reader refuses them.
"""

import struct
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt16

from gmaflow.errors import FlowFileError
from gmaflow.io.images import PNG_LEVEL, check_header_size, check_ratio

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_IHDR = struct.Struct(">IIBBBBB")
_RGB = 2
_STRIP = 2**24  # bytes


def read_png16(path: Path) -> UInt16[np.ndarray, "h w 3"]:
    """Read a PNG of three 16-bit channels exactly."""
    (width, height, depth, color, _, _, interlace), packed = _parse(path, path.read_bytes())
    if depth != 16 or color != _RGB:
        raise FlowFileError(
            f"{path}: this is a picture, not KITTI flow, which is a PNG of 16 bits in 3 channels"
        )
    if interlace:
        raise FlowFileError(f"{path}: the PNG is interlaced; save it without interlacing")
    check_header_size(path, height, width)
    rows = _inflate(path, packed, height * (1 + width * 6))
    return _unfilter(path, rows, height, width)


def encode_png16(image: UInt16[np.ndarray, "h w 3"]) -> bytes:
    """Encode a PNG of three 16-bit channels."""
    height, width, _ = image.shape
    pixels = image.astype(">u2").view(np.uint8).reshape(height, width, 6)
    rows = np.empty((height, 1 + width * 6), np.uint8)
    # Differences from the left neighbour (filter 1) make dense flow over a third smaller.
    rows[:, 0] = 1
    rows[:, 1:7] = pixels[:, 0]
    rows[:, 7:] = (pixels[:, 1:] - pixels[:, :-1]).reshape(height, -1)
    header = _IHDR.pack(width, height, 16, _RGB, 0, 0, 0)
    chunks = (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(rows.tobytes(), PNG_LEVEL)),
        (b"IEND", b""),
    )
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _parse(path: Path, raw: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the header's fields and the compressed rows; both must have the right checksums."""
    if not raw.startswith(_SIGNATURE):
        raise FlowFileError(f"{path}: not a PNG file (starts with {raw[:8]!r})")
    header, packed, position = None, [], len(_SIGNATURE)
    while position + 12 <= len(raw):
        length, kind = struct.unpack_from(">I4s", raw, position)
        data = raw[position + 8 : position + 8 + length]
        position += 12 + length
        if kind == b"IEND":
            break
        if kind not in (b"IHDR", b"IDAT"):
            continue
        if raw[position - 4 : position] != struct.pack(">I", zlib.crc32(kind + data)):
            raise FlowFileError(f"{path}: the PNG is truncated or damaged (checksum of {kind!r})")
        if kind == b"IDAT":
            packed.append(data)
        elif length == _IHDR.size:
            header = _IHDR.unpack(data)
    if header is None or not packed:
        raise FlowFileError(f"{path}: the PNG is truncated or damaged (no header or no data)")
    return header, b"".join(packed)


def _inflate(path: Path, packed: bytes, length: int) -> bytes:
    check_ratio(path, length, len(packed))
    try:
        rows = zlib.decompressobj().decompress(packed, length + 1)
    except zlib.error as err:
        raise FlowFileError(f"{path}: the PNG is damaged ({err})") from err
    if len(rows) != length:
        raise FlowFileError(f"{path}: the PNG is truncated or damaged (wrong amount of data)")
    return rows


def _unfilter(path: Path, rows: bytes, height: int, width: int) -> UInt16[np.ndarray, "h w 3"]:
    """Undo the row filters.

    They run from pixel to pixel, too slow for Python. Pillow's zip decoder undoes them in C. It
    keeps 8 of 16 bits, but reads them as big- or little-endian: one call keeps the high bytes, the
    other the low ones. Large images go through it in strips, to save memory.
    """
    image = np.empty((height, width, 3), np.uint16)
    stride = 1 + width * 6
    step = max(1, _STRIP // stride)
    above = b""  # rows depend on the one above; it comes first, as a row without a filter
    try:
        for top in range(0, height, step):
            strip = above + rows[top * stride : (top + step) * stride]
            shown = _decode_rows(strip, len(strip) // stride, width)[bool(above) :]
            image[top : top + step] = shown
            above = b"\0" + shown[-1].astype(">u2").tobytes()
    except (ValueError, OSError, MemoryError) as err:
        raise FlowFileError(f"{path}: the PNG is damaged ({err})") from err
    return image


def _decode_rows(rows: bytes, height: int, width: int) -> UInt16[np.ndarray, "h w 3"]:
    from PIL import Image

    stored = zlib.compress(rows, 0)  # checked and unpacked already; the decoder wants zlib's frame
    high, low = (
        np.asarray(Image.frombytes("RGB", (width, height), stored, "zip", raw_mode))
        for raw_mode in ("RGB;16B", "RGB;16L")
    )
    return high.astype(np.uint16) << 8 | low
