import sys
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from gmaflow.errors import FlowFileError
from gmaflow.io import create_clip, open_clip
from tests.io.bombs import deflated_zeros, read_in_a_process
from tests.io.test_xy_jpeg import smooth


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    with create_clip(tmp_path / "a.h5") as clip:
        for frame in (0, 1, 4):
            clip.add(frame, smooth() + frame)
    return tmp_path / "a.h5"


def test_any_hdf5_library_reads_it(clip: Path) -> None:
    with h5py.File(clip) as file:
        data = file["flow"]
        assert (data.shape, data.dtype) == ((3, 24, 40, 2), np.float16)
        assert (data.compression, data.shuffle) == ("gzip", True)
        np.testing.assert_array_equal(data[2], (smooth() + 4).astype(np.float16))
        np.testing.assert_array_equal(file["frames"][()], [0, 1, 4])


def test_every_float16_survives(tmp_path: Path) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    flow = bits.view(np.float16).reshape(128, 256, 2)
    with create_clip(tmp_path / "a.h5") as clip:
        clip.add(0, flow)
    got = open_clip(tmp_path / "a.h5")[0]
    known = np.isfinite(flow).all(axis=2)
    np.testing.assert_array_equal(got.valid, known)
    np.testing.assert_array_equal(got.array[known], flow[known].astype(np.float32))


def test_a_motion_too_long_for_float16_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowFileError, match=r"a\.h5: a flow of 70000 pixels does not fit float16"):  # noqa: SIM117
        with create_clip(tmp_path / "a.h5") as clip:
            clip.add(0, np.full((3, 4, 2), 7e4, np.float32))
    assert list(tmp_path.iterdir()) == []


def test_other_hdf5_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    good = {"chunks": (1, 3, 4, 1), "shuffle": True, "compression": "gzip"}
    for shape, dtype, options, message in (
        ((2, 3, 4, 2), "f4", good, "expected float16 of frames"),
        ((2, 3, 4, 3), "f2", good, "expected float16 of frames"),
        ((2, 3, 4, 2), "f2", {**good, "chunks": (1, 3, 4, 2)}, "read it with h5py"),
        ((2, 3, 4, 2), "f2", {**good, "compression": "lzf"}, "read it with h5py"),
        ((2, 3, 4, 2), "f2", {**good, "fletcher32": True}, "read it with h5py"),
        ((2, 3, 4, 2), "f2", good, "holds no dataset called 'frames'"),
        ((9999, 3, 4, 2), "f2", good, "claims 9999 frames"),
        ((2, 30_000, 30_000, 2), "f2", {**good, "chunks": (1, 30_000, 30_000, 1)}, "gives a size"),
    ):
        with h5py.File(path, "w") as file:
            file.create_dataset("flow", shape, dtype, **options)
        with pytest.raises(FlowFileError, match=message):
            open_clip(path)


@pytest.mark.parametrize(
    ("frames", "message"),
    [([0, 1], "not the numbers of 3"), ([0, 2, 1], "not in order"), ([-1, 0, 1], "not in order")],
)
def test_frames_that_are_no_numbers_are_refused(
    clip: Path, frames: list[int], message: str
) -> None:
    with h5py.File(clip, "r+") as file:
        del file["frames"]
        file["frames"] = np.array(frames)
    with pytest.raises(FlowFileError, match=message):
        open_clip(clip)


def test_a_changed_byte_of_flow_is_noticed(clip: Path) -> None:
    raw = bytearray(clip.read_bytes())
    with h5py.File(clip) as file:
        chunk = file["flow"].id.get_chunk_info(3)
    raw[chunk.byte_offset + chunk.size // 2] ^= 4
    clip.write_bytes(raw)
    reader = open_clip(clip)
    assert reader[0].valid.all()
    with pytest.raises(FlowFileError, match=r"a\.h5: "):
        reader[1]


@pytest.mark.parametrize(("lost", "reason"), [(4, "does not end"), (8, "asks for 24 bytes")])
def test_a_chunk_that_is_cut_off_is_noticed(tmp_path: Path, lost: int, reason: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset(
            "flow", (1, 3, 4, 2), "f2", chunks=(1, 3, 4, 1), shuffle=True, compression="gzip"
        )
        packed = zlib.compress(bytes(range(24)))  # the last four bytes are a checksum
        for component in range(2):
            data.id.write_direct_chunk((0, 0, 0, component), packed[:-lost])
        file["frames"] = np.array([0])
    with pytest.raises(FlowFileError, match=reason):
        open_clip(tmp_path / "a.h5")[0]


def test_a_missing_chunk_is_noticed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset(
            "flow", (1, 3, 4, 2), "f2", chunks=(1, 3, 4, 1), shuffle=True, compression="gzip"
        )
        data.id.write_direct_chunk((0, 0, 0, 1), zlib.compress(bytes(24)))
        file["frames"] = np.array([0])
    with pytest.raises(FlowFileError, match="some of its flow is missing"):
        open_clip(tmp_path / "a.h5")


def test_zeros_packed_into_little_are_refused(tmp_path: Path) -> None:
    side = 16_000
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset(
            "flow",
            (1, side, side, 2),
            "f2",
            chunks=(1, side, side, 1),
            shuffle=True,
            compression="gzip",
        )
        for component in range(2):
            data.id.write_direct_chunk((0, 0, 0, component), deflated_zeros(2 * side * side))
        file["frames"] = np.array([0])
    answer = read_in_a_process(
        tmp_path / "a.h5", "from gmaflow.io import open_clip; open_clip(path)[0]"
    )
    assert answer.startswith("FlowFileError a.h5: its")
    assert "more than is safe" in answer


def test_a_file_that_claims_to_have_no_length_is_refused(clip: Path) -> None:
    """HDF5 would take 4 GB."""
    content = clip.read_bytes()
    clip.write_bytes(content[:40] + content[56:76] + content[104:])
    with pytest.raises(FlowFileError, match="its length is wrong"):
        open_clip(clip)


def test_without_h5py_it_is_asked_for(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(FlowFileError, match=r"reading \.h5 needs h5py: pip install 'gmaflow"):
        open_clip(clip)
    with pytest.raises(FlowFileError, match=r"writing \.h5 needs h5py"):
        create_clip(tmp_path / "b.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]
