"""Small files that unpack to gigabytes, and a process in which to read them."""

import pickle
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np

MIB = 2**20
MOST_MEMORY = 1024 * MIB

_READ = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
path = Path(sys.argv[1])
try:
    {statement}
    print("read")
except Exception as err:
    print(type(err).__name__, str(err).replace(str(path), path.name))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def read_in_a_process(path: Path, statement: str) -> str:
    """Read `path` by a statement in a process, check its memory, and return what it raised."""
    # A child starts with the peak of its parent, so this one goes through a fresh process.
    code = [sys.executable, "-c", _READ.format(statement=statement), str(path)]
    launch = f"import subprocess; subprocess.run({code!r}, check=True)"
    done = subprocess.run(
        [sys.executable, "-c", launch], capture_output=True, text=True, timeout=120, check=True
    )
    answer, peak = done.stdout.strip().splitlines()
    assert int(peak) * 1024 < MOST_MEMORY, f"{path.name} took {int(peak) // 1024} MiB"
    return answer


def deflated_zeros(count: int) -> bytes:
    """So many zeros, packed by zlib; quickly, since all blocks are the same."""
    blocks, rest = divmod(count, MIB)
    pack, last = (zlib.compressobj(9, zlib.DEFLATED, -15) for _ in range(2))
    block = pack.compress(bytes(MIB)) + pack.flush(zlib.Z_FULL_FLUSH)
    end = last.compress(bytes(rest)) + last.flush()
    return b"\x78\xda" + blocks * block + end + struct.pack(">I", count % 65521 << 16 | 1)


def make_gif(side: int, count: int, comment: int = 0, colours: int = 2) -> bytes:
    """An animation of black squares, of which each frame stores one pixel.

    It begins with a palette of that many colours, a power of two or none, and a comment of that
    many blocks.
    """
    palette = 0x80 | colours.bit_length() - 2 if colours else 0
    head = b"GIF89a" + struct.pack("<HHBBB", side, side, palette, 0, 0) + bytes(3 * colours)
    place = struct.pack("<HHHHB", 0, 0, 1, 1, 0)
    frame = b"\x21\xf9\x04\0\x04\0\0\0\x2c" + place + b"\x02\x02\x44\x01\0"
    words = b"\x21\xfe" + comment * (b"\xff" + bytes(255)) + b"\0" if comment else b""
    return head + words + count * frame + b"\x3b"


def write_tiff_of_one_tile(path: Path, side: int = 46_000) -> None:
    """A TIFF of 64 x 64 pixels, cut from one tile of `side` squared."""
    packed = deflated_zeros(side * side)
    entries = [
        (256, 4, 1, 64),  # width
        (257, 4, 1, 64),  # height
        (258, 3, 1, 8),  # bits of a sample
        (259, 3, 1, 8),  # deflate
        (262, 3, 1, 1),  # black is zero
        (277, 3, 1, 1),  # samples of a pixel
        (322, 4, 1, side),  # tile width
        (323, 4, 1, side),  # tile height
        (324, 4, 1, 8),  # where the tile is
        (325, 4, 1, len(packed)),
    ]
    table = struct.pack("<H", len(entries))
    table += b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8 + len(packed)) + packed + table)


def write_png16(path: Path, side: int) -> None:
    """A KITTI PNG of zeros."""
    write_png(path, side, channels=3, bits=16)


def write_png(path: Path, side: int, *, channels: int, bits: int = 8) -> None:
    """A PNG of zeros."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    rows = deflated_zeros(side * (1 + channels * bits // 8 * side))
    header = struct.pack(">IIBBBBB", side, side, bits, {3: 2, 4: 6}[channels], 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def write_exr_of_many_channels(path: Path, side: int, channels: int) -> None:
    """An OpenEXR picture of zeros in many float channels."""
    import OpenEXR

    names = ["R", "G", "B", *(f"layer{i:02d}.Y" for i in range(channels - 3))]
    plane = np.zeros((side, side), np.float32)
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    OpenEXR.File(header, dict.fromkeys(names, plane)).write(str(path))


def write_avi(path: Path, side: int, codec: bytes = b"DIB ") -> None:
    """An AVI whose header claims frames of `side` squared, with one short frame."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)

    def group(kind: bytes, data: bytes) -> bytes:
        return chunk(b"LIST", kind + data)

    main = struct.pack("<14I", 40_000, 0, 0, 0x10, 2, 0, 1, 0, side, side, 0, 0, 0, 0)
    stream = struct.pack(
        "<4s4sIHHIIIIIIIIHHHH", b"vids", codec, 0, 0, 0, 0, 1, 25, 0, 2, 0, 0, 0, 0, 0, 0, 0
    )
    picture = struct.pack("<IiiHH4sIiiII", 40, side, side, 1, 24, codec, 0, 0, 0, 0, 0)
    heads = chunk(b"avih", main) + group(b"strl", chunk(b"strh", stream) + chunk(b"strf", picture))
    frames = b"".join(chunk(b"00dc", bytes(range(64))) for _ in range(2))
    body = b"AVI " + group(b"hdrl", heads) + group(b"movi", frames)
    path.write_bytes(chunk(b"RIFF", body))


class _Zeros:
    def __reduce__(self) -> tuple[object, tuple[int]]:
        return bytearray, (6 * 10**9,)


def write_pth_of_zeros(path: Path) -> None:
    """A pickle that asks for 6 GB of zeros."""
    path.write_bytes(pickle.dumps(_Zeros(), protocol=2))
