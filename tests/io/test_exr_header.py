import io
import struct

import numpy as np
import OpenEXR
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmaflow.io.exr_header import MAGIC, DamagedError, Window, read_parts
from tests.io.exrs import COMPRESSIONS, deep, make_header, pack, pack_parts, rgb


def parts_of(packed: bytes) -> list[tuple[tuple[str, ...], Window, Window, bool]]:
    found = read_parts(io.BytesIO(packed))
    assert [part.number for part in found] == list(range(len(found)))
    return [(part.channels, part.data, part.display, part.deep) for part in found]


def deep_channels(height: int = 20, width: int = 30) -> dict[str, np.ndarray]:
    counts = np.arange(height * width).reshape(height, width) % 3
    return {"Z": deep(counts, np.linspace(0, 1, counts.sum()))}


def test_parts_channels_and_windows_are_read() -> None:
    packed = pack_parts(
        flat=(rgb(), make_header(data=(-3, 4, 26, 23), display=(0, 0, 99, 49))),
        tiles=(rgb(layer="a."), make_header(tile=8, display=(0, 0, 99, 49))),
        deep=(
            deep_channels(),
            make_header(
                type=OpenEXR.deepscanline,
                compression=OpenEXR.ZIPS_COMPRESSION,
                display=(0, 0, 99, 49),
            ),
        ),
    )
    seen, whole = Window(0, 0, 99, 49), Window(0, 0, 29, 19)
    assert parts_of(packed) == [
        (("B", "G", "R"), Window(-3, 4, 26, 23), seen, False),
        (("a.B", "a.G", "a.R"), whole, seen, False),
        (("Z",), whole, seen, True),
    ]
    assert (seen.size, seen.pixels) == ((50, 100), 5000)


def test_subsampled_channels_are_distinguished() -> None:
    planes = {"Y": rgb()["G"], "RY": OpenEXR.Channel("RY", rgb()["R"], 2, 2)}
    [part] = read_parts(io.BytesIO(pack(planes)))
    assert (part.channels, part.thinned, part.samples) == (("Y",), ("RY",), 2 * 600)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("height", [1, 15, 16, 17, 31, 33, 255, 257])
def test_whole_files_of_every_compression_are_whole(compression: str, height: int) -> None:
    packed = pack(rgb(height, 3), compression=getattr(OpenEXR, compression))
    assert len(parts_of(packed)) == 1
    if not compression.startswith(("LJ2K", "ZSTD")):  # the lines of their chunks are not known
        with pytest.raises(DamagedError, match="it is truncated"):
            parts_of(packed[:-1])


def variants() -> dict[str, bytes]:
    zips = {"compression": OpenEXR.ZIPS_COMPRESSION}
    return {
        "scanlines": pack(rgb()),
        "tiles": pack(rgb(), tile=8),
        "deep": pack(deep_channels(), type=OpenEXR.deepscanline, **zips),
        "deep tiles": pack(deep_channels(), type=OpenEXR.deeptile, tile=8, **zips),
        "parts": pack_parts(a=(rgb(), {}), b=(rgb(), make_header(tile=16))),
    }


@pytest.mark.parametrize("name", variants())
def test_a_truncated_file_is_detected(name: str) -> None:
    whole = variants()[name]
    assert parts_of(whole)
    for keep in range(0, len(whole), max(1, len(whole) // 200)):
        with pytest.raises(DamagedError):
            parts_of(whole[:keep])
    with pytest.raises(DamagedError, match="it is truncated"):
        parts_of(whole[:-1])


def test_missing_chunks_are_detected() -> None:
    whole = bytearray(pack(rgb(40, 30)))
    table = whole.index(b"scanlineimage") + len(b"scanlineimage") + 1
    (first,) = struct.unpack_from("<Q", whole, table)
    assert first == table + 3 * 8
    whole[table + 8 : table + 16] = bytes(8)
    with pytest.raises(DamagedError, match="never written"):
        parts_of(bytes(whole))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"\x76\x2f\x31\x01", b"\x89PNG", "does not start"),
        (b"\x31\x01\x02\0\0\0", b"\x31\x01\x03\0\0\0", "newer version"),
        (b"\x31\x01\x02\0\0\0", b"\x31\x01\x02\0\x80\0", "newer version"),
        (b"dataWindow", b"dataWindov", "lacks dataWindow"),
        (b"dataWindow\0box2i\0\x10", b"dataWindow\0box2i\0\x0c", "truncated|lacks|damaged"),
        (struct.pack("<4i", 0, 0, 29, 19), struct.pack("<4i", 0, 0, -1, 19), "size of 20 x 0"),
        (b"chlist\0", b"chlist\0\xff\xff\xff\xff", "header is damaged"),
    ],
)
def test_broken_heads_are_refused(old: bytes, new: bytes, reason: str) -> None:
    whole = pack(rgb())
    assert old in whole
    with pytest.raises(DamagedError, match=reason):
        parts_of(whole.replace(old, new, 1))


def test_a_list_of_channels_that_does_not_end_is_refused() -> None:
    whole = pack(rgb())
    start = whole.index(b"chlist\0") + 11
    (length,) = struct.unpack_from("<i", whole, start - 4)
    broken = whole[:start] + b"R" * length + whole[start + length :]
    with pytest.raises(DamagedError, match="list of channels is damaged"):
        parts_of(broken)
    many = b"".join(b"%d\0" % number + struct.pack("<iB3xii", 2, 0, 1, 1) for number in range(9999))
    broken = (
        whole[: start - 4] + struct.pack("<i", len(many) + 1) + many + whole[start + length - 1 :]
    )
    with pytest.raises(DamagedError, match="list of channels is damaged"):
        parts_of(broken)


@pytest.mark.parametrize("count", [-5, 0, 1, 2**31 - 1])
def test_a_number_of_chunks_that_cannot_be_is_refused(count: int) -> None:
    whole = variants()["parts"]
    place = whole.index(b"chunkCount\0int\0") + 19
    assert struct.unpack_from("<i", whole, place) == (2,)
    with pytest.raises(DamagedError):
        parts_of(whole[:place] + struct.pack("<i", count) + whole[place + 4 :])


@pytest.mark.parametrize("size", [(0, 8), (8, 0), (8, 2**24)])
def test_tiles_of_no_size_or_too_large_a_size_are_refused(size: tuple[int, int]) -> None:
    whole = pack(rgb(), tile=8)
    broken = whole.replace(struct.pack("<IIB", 8, 8, 0), struct.pack("<IIB", *size, 0), 1)
    assert broken != whole
    with pytest.raises(DamagedError, match=f"its tiles are of {size[1]} x {size[0]} pixels"):
        parts_of(broken)


@settings(max_examples=200)
@given(st.sampled_from(sorted(variants())), st.data())
def test_any_bytes_are_parts_or_damage(name: str, data: st.DataObject) -> None:
    raw = bytearray(variants()[name])
    for _ in range(data.draw(st.integers(1, 5))):
        end = data.draw(st.sampled_from([12, 400, len(raw)]))
        place = data.draw(st.integers(0, min(end, len(raw)) - 1))
        raw[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    try:
        assert parts_of(bytes(raw))
    except DamagedError as err:
        assert str(err)  # noqa: PT017


def test_it_is_known_by_its_first_bytes() -> None:
    assert pack(rgb()).startswith(MAGIC)
    for other in (b"", b"\x76\x2f", b"\x89PNG\r\n"):
        with pytest.raises(DamagedError, match="does not start like an OpenEXR file"):
            read_parts(io.BytesIO(other))
