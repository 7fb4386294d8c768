import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowFileError
from gmaflow.io import read_flow, write_flow
from tests.io.flows import assert_same, ramp


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_saves_is_read(tmp_path: Path, dtype: str, order: str) -> None:
    flow = ramp()
    array = np.where(flow.valid[..., None], flow.array, np.nan).astype(dtype)
    array = np.asfortranarray(array) if order == "F" else array
    np.save(tmp_path / "a.npy", array)
    assert_same(tmp_path, read_flow(tmp_path / "a.npy"), flow)
    np.savez(tmp_path / "a.npz", flow=array)
    assert_same(tmp_path, read_flow(tmp_path / "a.npz"), flow)
    np.savez(tmp_path / "a.npz", flow=array, valid=flow.valid.astype(np.uint8))
    assert_same(tmp_path, read_flow(tmp_path / "a.npz"), flow)


def test_numpy_reads_what_is_written(tmp_path: Path) -> None:
    flow = ramp()
    write_flow(tmp_path / "a.npy", *flow)
    assert np.isnan(np.load(tmp_path / "a.npy")).any(axis=2).tolist() == (~flow.valid).tolist()
    write_flow(tmp_path / "a.npz", *flow)
    with np.load(tmp_path / "a.npz") as archive:
        np.testing.assert_array_equal(archive["flow"], flow.array)
        np.testing.assert_array_equal(archive["valid"], flow.valid)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((3, 4), np.float32), "shape"),
        (np.zeros((2, 3, 4), np.float32), "shape"),
        (np.zeros((3, 4, 2), np.int32), "plain numbers"),
        (np.zeros((3, 4, 2), np.uint8), "floating point"),
        (np.zeros((3, 4, 2), object), "plain numbers"),
        (np.zeros((0, 4, 2), np.float32), "a size of"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, array: np.ndarray, reason: str) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(FlowFileError, match=reason):
        read_flow(tmp_path / "a.npy")


def npy(shape: str, data: bytes, *, dtype: str = "<f4") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize(
    "raw",
    [
        npy("(1000000000, 1000000000, 2)", b""),
        npy("(10000, 10000, 2)", bytes(8)),
        npy("(1, 1, 2)", bytes(8), dtype="<f3"),
        npy("(1 1, 1, 2)", bytes(8)),
        npy("(1, 1, 2)", bytes(8))[:20],
        b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(raw)
    with pytest.raises(FlowFileError, match="header"):
        read_flow(tmp_path / "a.npy")


def test_odd_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, other=ramp().array)
    with pytest.raises(FlowFileError, match=r"no array called 'flow', but other\.npy"):
        read_flow(path)
    np.savez(path, flow=ramp().array, valid=np.ones((2, 2), bool))
    with pytest.raises(FlowFileError, match="shape"):
        read_flow(path)
    buffer = io.BytesIO()
    np.save(buffer, ramp().array)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("flow.npy", buffer.getvalue())
    with pytest.raises(FlowFileError, match="packed in an unusual way"):
        read_flow(path)


def test_an_archive_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("flow.npy", npy("(8192, 8192, 2)", bytes(8)))
    with pytest.raises(FlowFileError, match="its header"):
        read_flow(path)
    # The size in the archive's directory lies as well.
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\x01\x02")
    raw[entry + 24 : entry + 28] = struct.pack("<I", 8192 * 8192 * 8 + 100)
    path.write_bytes(raw)
    with pytest.raises(FlowFileError, match="packed bytes"):
        read_flow(path)
