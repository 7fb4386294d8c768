import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gmaflow.errors import FlowFileError
from gmaflow.io.png16 import encode_png16, read_png16
from tests.io import bombs


def random_image(height: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**16, (height, width, 3), np.uint16)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(
    rows: bytes, height: int, width: int, *, depth: int = 16, color: int = 2, lace: int = 0
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, lace)
    packed = zlib.compress(rows)
    parts = packed[: len(packed) // 2], packed[len(packed) // 2 :]  # files may hold many
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"tEXt", b"a\0b")
        + b"".join(chunk(b"IDAT", part) for part in parts)
        + chunk(b"IEND", b"")
    )


def filtered(image: np.ndarray, filters: list[int]) -> bytes:
    """The rows of a PNG, byte by byte as the standard tells it."""
    height, width, _ = image.shape
    data = image.astype(">u2").view(np.uint8).reshape(height, width * 6).astype(int)
    out = bytearray()
    for y, kind in enumerate(filters):
        out.append(kind)
        for i in range(width * 6):
            left = data[y, i - 6] if i >= 6 else 0
            up = data[y - 1, i] if y else 0
            corner = data[y - 1, i - 6] if y and i >= 6 else 0
            near = min(
                (left, up, corner), key=lambda value: abs(left + up - corner - value)
            )  # the first of equals, as the standard wants
            guess = (0, left, up, (left + up) // 2, near)[kind]
            out.append((data[y, i] - guess) % 256)
    return bytes(out)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("png") / "a.png"


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 99))
def test_what_is_encoded_is_read(path: Path, height: int, width: int, seed: int) -> None:
    image = random_image(height, width, seed)
    path.write_bytes(encode_png16(image))
    np.testing.assert_array_equal(read_png16(path), image)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 6), st.integers(0, 99))
def test_every_filter_is_undone(path: Path, filters: list[int], width: int, seed: int) -> None:
    image = random_image(len(filters), width, seed)
    path.write_bytes(png(filtered(image, filters), len(filters), width))
    np.testing.assert_array_equal(read_png16(path), image)


def test_others_can_read_it() -> None:
    av = pytest.importorskip("av")
    image = random_image(12, 17, 0)
    raw = encode_png16(image)
    high = np.asarray(Image.open(io.BytesIO(raw)))
    np.testing.assert_array_equal(high, image >> 8)
    with av.open(io.BytesIO(raw)) as container:
        frame = next(container.decode(video=0)).to_ndarray(format="rgb48be")
    np.testing.assert_array_equal(frame, image)


def test_other_kinds_of_png_are_refused(path: Path) -> None:
    rows = bytes(2 * (1 + 2 * 6))
    wrong = {
        "picture, not KITTI flow": png(rows, 2, 2, depth=8),
        "a picture": png(rows, 2, 2, color=0),
        "interlaced": png(rows, 2, 2, lace=1),
        "wrong amount": png(rows[:-1], 2, 2),
        "amount of data": png(rows + b"\0", 2, 2),
        "cannot decode": png(b"\x07" * len(rows), 2, 2),
        "more than": png(rows, 9999, 9999),
        "a size of": png(rows, 2**32 - 1, 2**32 - 1),
        "no header": b"\x89PNG\r\n\x1a\n" + chunk(b"IEND", b""),
        "no header or": b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", bytes(12)) + chunk(b"IDAT", rows),
        "not a PNG": b"GIF89a",
    }
    for reason, raw in wrong.items():
        path.write_bytes(raw)
        with pytest.raises(FlowFileError, match=reason):
            read_png16(path)


def test_a_flipped_bit_is_noticed(path: Path) -> None:
    raw = bytearray(encode_png16(random_image(4, 4, 0)))
    raw[60] ^= 1
    path.write_bytes(raw)
    with pytest.raises(FlowFileError, match="checksum"):
        read_png16(path)


@pytest.mark.parametrize(("side", "answer"), [(6200, "read"), (13_000, "FlowFileError a.png: its")])
def test_zeros_take_less_than_a_gigabyte(tmp_path: Path, side: int, answer: str) -> None:
    bombs.write_png16(tmp_path / "a.png", side)
    statement = "from gmaflow.io.flow_files import read_flow_arrays; read_flow_arrays(path)"
    assert bombs.read_in_a_process(tmp_path / "a.png", statement).startswith(answer)


def test_rows_of_all_strips_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = random_image(9, 5, 0)
    path = tmp_path / "a.png"
    path.write_bytes(png(filtered(image, [2, 4, 3, 2, 1, 4, 2, 0, 3]), 9, 5))
    for strip in (1, 2 * 31, 9 * 31):
        monkeypatch.setattr("gmaflow.io.png16._STRIP", strip)
        np.testing.assert_array_equal(read_png16(path), image)
