import inspect
import io
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gmaflow.errors import FlowFileError
from gmaflow.io import (
    FLOW_ENDINGS,
    FLOW_SUFFIXES,
    FlowArrays,
    is_picture,
    name_file,
    read_flow_arrays,
    stem_in,
    stem_of,
    write_flow,
)
from gmaflow.io.flow_files import check_arrays, check_length, known_part
from gmaflow.io.images import MAX_PIXELS, check_header_size, check_ratio
from gmaflow.io.png16 import encode_png16, read_png16
from tests.io.flows import SUFFIXES, assert_same, flows, ramp


def test_all_formats_are_tested_here() -> None:
    assert set(SUFFIXES) == FLOW_SUFFIXES


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(data=st.data())
def test_what_is_written_is_read(folder: Path, suffix: str, data: st.DataObject) -> None:
    kitti = suffix == ".png"
    flow = data.draw(flows(largest=511.9 if kitti else 1e9))
    path = folder / f"a{suffix}"
    write_flow(path, *flow)
    assert_same(path, read_flow_arrays(str(path)), flow, within=1 / 128 if kitti else 0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nan_is_unknown_and_float64_is_taken(tmp_path: Path, suffix: str) -> None:
    array = ramp().array.astype(np.float64)
    array[0, 0, 1] = np.nan
    path = tmp_path / f"a{suffix.upper()}"
    write_flow(path, array)
    flow = read_flow_arrays(path)
    assert (~flow.valid).sum() == 1
    assert not flow.valid[0, 0]
    np.testing.assert_array_equal(flow.array[flow.valid], array[flow.valid])


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=60)
@given(data=st.data())
def test_broken_bytes_give_flow_or_a_flow_file_error(
    folder: Path, suffix: str, data: st.DataObject
) -> None:
    path = folder / f"broken{suffix}"
    write_flow(path, *ramp(3, 4))
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 5))):
        # Headers lie at the start of most formats and at the end of .npz.
        end = data.draw(st.sampled_from([16, 100, len(raw)]))
        place = data.draw(st.integers(-min(end, len(raw)), min(end, len(raw)) - 1))
        raw[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, *b"0129-(,'"]))
    cut = data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw))))
    path.write_bytes(raw[:cut] + data.draw(st.binary(max_size=8)))
    _read_or_refuse(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=40)
@given(data=st.data())
def test_random_bytes_give_a_flow_file_error(
    folder: Path, suffix: str, data: st.DataObject
) -> None:
    magic = {
        ".flo": b"PIEH",
        ".png": b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR",
        ".pfm": b"PF\n",
        ".npy": b"\x93NUMPY\x01\0",
        ".npz": b"PK\x03\x04",
        ".flo5": b"\x89HDF\r\n\x1a\n",
        ".exr": b"\x76\x2f\x31\x01\x02\0\0\0channels\0chlist\0",
    }[suffix]
    path = folder / f"random{suffix}"
    path.write_bytes(data.draw(st.sampled_from([b"", magic])) + data.draw(st.binary(max_size=200)))
    _read_or_refuse(path)


def _read_or_refuse(path: Path) -> None:
    """Read what may be broken; whatever its header says, memory stays near its few bytes."""
    message = str(path)
    tracemalloc.start()
    try:
        flow = read_flow_arrays(path)
        assert flow.array.shape == (*flow.valid.shape, 2)
    except FlowFileError as err:
        message = str(err)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert str(path) in message
    assert peak < 4 * 2**20


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        with pytest.raises(FlowFileError, match="does not exist"):
            read_flow_arrays(path)
        path.mkdir()
        with pytest.raises(FlowFileError, match="is a folder"):
            read_flow_arrays(path)
    for path in (tmp_path / "a.txt", tmp_path / "a"):
        with pytest.raises(FlowFileError, match=r"use one of \.flo, \.kitti\.png"):
            read_flow_arrays(path)
        with pytest.raises(FlowFileError, match=r"use one of \.flo, \.kitti\.png"):
            write_flow(path, *ramp())


def test_arrays_that_are_no_flow_are_refused() -> None:
    path, (array, valid, _) = Path("a.flo"), ramp()
    for wrong in (array[..., 0], array[..., :1], array.astype(int), array[:0], array[None]):
        with pytest.raises(FlowFileError, match="flow is floating point"):
            check_arrays(path, wrong, None)
    for wrong in (valid[:-1], valid.astype(np.uint8), valid[..., None]):
        with pytest.raises(FlowFileError, match="expected bool of 5 x 7"):
            check_arrays(path, array, wrong)
    check_arrays(path, array, valid)
    for others in ((array.tolist(), None), (None, None), (array, valid.tolist())):
        with pytest.raises(FlowFileError, match=r"got a (list|NoneType); give a numpy array"):
            inspect.unwrap(check_arrays)(path, *others)


def test_the_given_arrays_are_not_changed(tmp_path: Path) -> None:
    array = np.full((2, 2, 2), 7, np.float32)
    write_flow(tmp_path / "a.flo", array, np.zeros((2, 2), bool))
    assert (array == 7).all()
    assert isinstance(read_flow_arrays(tmp_path / "a.flo"), FlowArrays)


def test_unknown_values_become_zero_and_invalid() -> None:
    array = np.ones((1, 6, 2))
    array[0, 1, 0] = np.nan
    array[0, 2, 1] = np.inf
    array[0, 3] = 1e300  # infinity as float32
    array[0, 4] = 1e10
    valid = np.array([[True] * 5 + [False]])
    flow = known_part(array, valid)
    assert flow.valid.tolist() == [[True, False, False, False, True, False]]
    assert not flow.array[~flow.valid].any()
    assert known_part(array, valid, limit=1e9).valid.tolist() == [[True] + [False] * 5]
    assert np.isnan(array).any(), "the input is left alone"


def test_claims_are_checked() -> None:
    path = Path("a.flo")
    check_header_size(path, 1, MAX_PIXELS)
    for height, width in ((0, 5), (5, 0), (-5, -5), (2, MAX_PIXELS)):
        with pytest.raises(FlowFileError, match=r"a\.flo: its header"):
            check_header_size(path, height, width)
    check_length(path, 8, 8)
    with pytest.raises(FlowFileError, match="asks for 8 bytes of flow but it has 7"):
        check_length(path, 8, 7)
    check_ratio(path, 100_000, 100)
    with pytest.raises(FlowFileError, match="more than 100 compressed bytes"):
        check_ratio(path, 1_000_000, 100)


def test_the_bytes_are_those_of_the_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "a.flo"
    write_flow(path, np.array([[[1.5, -2], [3, 4]]], np.float32), np.array([[True, False]]))
    assert path.read_bytes() == struct.pack("<fii4f", 202021.25, 2, 1, 1.5, -2, 1e10, 1e10)


def test_nan_and_large_values_are_unknown(tmp_path: Path) -> None:
    values = (1e9, 1.0, 1.1e9, 0.0, 0.0, float("nan"))
    (tmp_path / "a.flo").write_bytes(struct.pack("<4sii6f", b"PIEH", 3, 1, *values))
    flow = read_flow_arrays(tmp_path / "a.flo")
    assert flow.valid.tolist() == [[True, False, False]]
    assert flow.array[0, 1:].tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("width", "height"), [(2**31 - 1, 2**31 - 1), (-1, -1), (0, 4), (2**14, 2**14), (2, 2)]
)
def test_a_header_with_wrong_sizes_is_refused(tmp_path: Path, width: int, height: int) -> None:
    (tmp_path / "a.flo").write_bytes(struct.pack("<4sii4f", b"PIEH", width, height, 0, 0, 0, 0))
    with pytest.raises(FlowFileError, match="its header"):
        read_flow_arrays(tmp_path / "a.flo")


def test_real_files_are_read(material: Path) -> None:
    found = sorted((material / "realflow").rglob("*.flo"))
    assert found
    for path in found:
        flow = read_flow_arrays(path)
        raw = np.fromfile(path, "<f4", offset=12).reshape(flow.array.shape)
        np.testing.assert_array_equal(flow.array[flow.valid], raw[flow.valid])
    # Middlebury leaves hidden pixels open, Sintel knows them all.
    whale = read_flow_arrays(material / "realflow/middlebury/other-gt-flow/RubberWhale/flow10.flo")
    assert 0 < (~whale.valid).sum() < whale.valid.size / 10
    assert np.abs(whale.array).max() < 10
    alley = read_flow_arrays(material / "realflow/sintel/training/flow/alley_1/frame_0002.flo")
    assert alley.array.shape == (436, 1024, 2)
    assert alley.valid.all()


def test_codes_are_those_of_the_benchmark(tmp_path: Path) -> None:
    array = np.array([[[0, 1], [-2, 0.5], [9, 9]]], np.float32)
    write_flow(tmp_path / "a.png", array, np.array([[True, True, False]]))
    codes = read_png16(tmp_path / "a.png")
    assert codes.tolist() == [[[32768, 32832, 1], [32640, 32800, 1], [0, 0, 0]]]
    codes[0, 0, 2] = 65535  # any blue but 0 is known
    (tmp_path / "a.png").write_bytes(encode_png16(codes))
    assert read_flow_arrays(tmp_path / "a.png").valid.tolist() == [[True, True, False]]


@pytest.mark.parametrize("value", [512, -512, 511.995, -1e8])
def test_a_flow_out_of_range_is_refused_not_clipped(tmp_path: Path, value: float) -> None:
    array = np.full((1, 2, 2), value, np.float32)
    with pytest.raises(FlowFileError, match=r"a\.png: a flow of .* does not fit KITTI"):
        write_flow(tmp_path / "a.png", array)
    assert list(tmp_path.iterdir()) == []
    write_flow(tmp_path / "a.png", array, np.zeros((1, 2), bool))  # unknown, so no matter


def test_pictures_and_flow_files_are_distinguished(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(FlowFileError, match="this is a picture, not KITTI flow"):
        read_flow_arrays(tmp_path / "a.png")


@pytest.mark.parametrize(
    "name",
    ["kitti2015/training/flow_occ/000000_10.png", "kitti2012/training/flow_noc/000045_10.png"],
)
def test_real_files_are_read_exactly(material: Path, name: str) -> None:
    av = pytest.importorskip("av")
    path = material / "realflow" / name
    with av.open(str(path)) as container:
        codes = next(container.decode(video=0)).to_ndarray(format="rgb48be").astype(np.float64)
    flow = read_flow_arrays(path)
    np.testing.assert_array_equal(flow.valid, codes[..., 2] > 0)
    wanted = (codes[..., :2] - 2**15) / 64 * flow.valid[..., None]
    np.testing.assert_array_equal(flow.array, wanted)
    assert 0.1 < flow.valid.mean() < 0.5


@pytest.mark.parametrize("channels", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_either_byte_order_and_number_of_channels(
    tmp_path: Path, channels: int, order: str, newline: str
) -> None:
    flow = FlowArrays(ramp().array, np.ones((5, 7), bool))
    data = np.zeros((5, 7, channels), f"{order}f4")
    data[..., :2] = flow.array
    scale = "-0.5" if order == "<" else "1"  # only the sign counts
    header = newline.join(["PF", "7 5", scale, ""]).encode()
    (tmp_path / "a.pfm").write_bytes(header + data[::-1].tobytes())
    assert_same(tmp_path, read_flow_arrays(tmp_path / "a.pfm"), flow)


def test_rows_are_written_from_the_bottom_up(tmp_path: Path) -> None:
    write_flow(tmp_path / "a.pfm", np.array([[[1, 2]], [[3, 4]]], np.float32))
    values = np.array([3, 4, 0, 1, 2, 0], "<f4").tobytes()
    assert (tmp_path / "a.pfm").read_bytes() == b"PF\n1 2\n-1.0\n" + values


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"Pf\n1 1\n-1\n", "one-channel"),
        (b"PF\n1 1\n0\n", "scale"),
        (b"PF\n1 1\n...\n", "scale"),
        (b"PF\n-1 1\n1\n", "not a .pfm"),
        (b"PF\n999999999 999999999\n1\n", "its header"),
        (b"PF\n9999 9999\n1\n", "its header"),
    ],
)
def test_a_pfm_header_with_wrong_sizes_is_refused(
    tmp_path: Path, header: bytes, reason: str
) -> None:
    (tmp_path / "a.pfm").write_bytes(header + bytes(12))
    with pytest.raises(FlowFileError, match=reason):
        read_flow_arrays(tmp_path / "a.pfm")


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_saves_is_read(tmp_path: Path, dtype: str, order: str) -> None:
    flow = ramp()
    array = np.where(flow.valid[..., None], flow.array, np.nan).astype(dtype)
    array = np.asfortranarray(array) if order == "F" else array
    for version in ((1, 0), (2, 0), (3, 0)):
        with (tmp_path / "a.npy").open("wb") as file:
            np.lib.format.write_array(file, array, version)
        assert_same(tmp_path, read_flow_arrays(tmp_path / "a.npy"), flow)
    np.savez(tmp_path / "a.npz", flow=array)
    assert_same(tmp_path, read_flow_arrays(tmp_path / "a.npz"), flow)
    np.savez(tmp_path / "a.npz", flow=array, valid=255 * flow.valid.astype(np.uint8))
    assert_same(tmp_path, read_flow_arrays(tmp_path / "a.npz"), flow)


def test_numpy_reads_the_written_file(tmp_path: Path) -> None:
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
        (np.zeros((3, 4, 2), np.int32), "floating point"),
        (np.zeros((3, 4, 2), np.uint8), "floating point"),
        (np.zeros((3, 4, 2), object), "plain numbers"),
        (np.zeros((0, 4, 2), np.float32), "a size of"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, array: np.ndarray, reason: str) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(FlowFileError, match=reason):
        read_flow_arrays(tmp_path / "a.npy")


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
def test_a_npy_header_with_wrong_sizes_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(raw)
    with pytest.raises(FlowFileError, match="header"):
        read_flow_arrays(tmp_path / "a.npy")


def test_odd_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, other=ramp().array)
    with pytest.raises(FlowFileError, match=r"has no array 'flow'; it has other\.npy"):
        read_flow_arrays(path)
    np.savez(path, flow=ramp().array, valid=np.ones((2, 2), bool))
    with pytest.raises(FlowFileError, match="shape"):
        read_flow_arrays(path)
    buffer = io.BytesIO()
    np.save(buffer, ramp().array)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("flow.npy", buffer.getvalue())
    with pytest.raises(FlowFileError, match="compressed by an unusual method"):
        read_flow_arrays(path)


def test_an_archive_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("flow.npy", npy("(8192, 8192, 2)", bytes(8)))
    with pytest.raises(FlowFileError, match="its header"):
        read_flow_arrays(path)
    # The sizes in the archive's directory lie as well: that of the array, then the packed one.
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\x01\x02")
    for place in (24, 20):
        raw[entry + place : entry + place + 4] = struct.pack("<I", 8192 * 8192 * 8 + 100)
        path.write_bytes(raw)
        with pytest.raises(FlowFileError, match="compressed bytes"):
            read_flow_arrays(path)


h5py = pytest.importorskip("h5py")


def test_the_dataset_is_called_flow_and_unknown_is_nan(tmp_path: Path) -> None:
    flow = ramp()
    write_flow(tmp_path / "a.flo5", *flow)
    with h5py.File(tmp_path / "a.flo5") as file:
        array = file["flow"][()]
    np.testing.assert_array_equal(np.isnan(array).any(axis=2), ~flow.valid)
    assert_same(tmp_path, read_flow_arrays(tmp_path / "a.flo5"), flow)


def test_other_datasets_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.flo5"
    for wrong in (np.zeros((3, 4)), np.zeros((3, 4, 3)), np.zeros((3, 4, 2), int)):
        with h5py.File(path, "w") as file:
            file["flow"] = wrong
        with pytest.raises(FlowFileError, match="expected floating point"):
            read_flow_arrays(path)
    with h5py.File(path, "w") as file:
        file.create_group("flow")
    with pytest.raises(FlowFileError, match="not a plain dataset"):
        read_flow_arrays(path)
    with h5py.File(path, "w") as file:
        file["other"] = ramp().array
    with pytest.raises(FlowFileError, match="no dataset called 'flow'"):
        read_flow_arrays(path)


def test_a_way_into_other_files_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.flo5"
    write_flow(tmp_path / "secret.flo5", *ramp())
    with h5py.File(path, "w") as file:
        file["flow"] = h5py.ExternalLink(str(tmp_path / "secret.flo5"), "flow")
    with pytest.raises(FlowFileError, match="no dataset"):
        read_flow_arrays(path)
    layout = h5py.VirtualLayout((5, 7, 2), "f4")
    layout[:] = h5py.VirtualSource(str(tmp_path / "secret.flo5"), "flow", (5, 7, 2))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("flow", layout)
    with pytest.raises(FlowFileError, match="not a plain dataset"):
        read_flow_arrays(path)
    raw = [(str(tmp_path / "secret.flo5"), 0, 280)]
    with h5py.File(path, "w") as file:
        file.create_dataset("flow", (5, 7, 2), "f4", external=raw)
    with pytest.raises(FlowFileError, match="not a plain dataset"):
        read_flow_arrays(path)


def test_a_dataset_never_filled_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.flo5", "w") as file:
        file.create_dataset("flow", (10_000, 10_000, 2), "f4", chunks=(100, 100, 2))
    with pytest.raises(FlowFileError, match="compressed bytes"):
        read_flow_arrays(tmp_path / "a.flo5")


def test_an_f16_npz_rounds_to_float16_and_numpy_reads_it(tmp_path: Path) -> None:
    flow, path = ramp(40, 60), tmp_path / "a.F16.npz"
    array = np.random.default_rng(0).normal(size=flow.array.shape).astype(np.float32)
    array[~flow.valid] = 0
    write_flow(path, array, flow.valid, beside={"confidence": array[..., 0]})
    got = read_flow_arrays(path)
    np.testing.assert_array_equal(got.valid, flow.valid)
    np.testing.assert_array_equal(got.array, np.float32(np.float16(array)))
    with np.load(path) as arrays:
        assert arrays["flow"].dtype == arrays["confidence"].dtype == np.float16
        assert arrays["flow"].shape == (40, 60, 2)
    write_flow(tmp_path / "b.npz", array, flow.valid)
    assert path.stat().st_size < (tmp_path / "b.npz").stat().st_size
    with pytest.raises(FlowFileError, match="a flow of 70000 pixels does not fit float16"):
        write_flow(path, np.full((3, 4, 2), -7e4))


@pytest.mark.parametrize("ending", FLOW_ENDINGS.values())
def test_a_name_gives_its_stem_back(ending: str) -> None:
    for stem in ("000012", "frame_0001"):
        name = name_file(stem, ending)
        assert stem_in(name, ending) == stem
        assert stem_of(f"folder/{name}") == stem
        assert not is_picture(name)
    assert stem_in("frame.xyz", ending) is None


def test_without_h5py_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flow(tmp_path / "a.flo5", *ramp())
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(FlowFileError, match=r"reading \.flo5 needs h5py: pip install 'gmaflow"):
        read_flow_arrays(tmp_path / "a.flo5")
    with pytest.raises(FlowFileError, match=r"writing \.flo5 needs h5py"):
        write_flow(tmp_path / "b.flo5", *ramp())
    assert [path.name for path in tmp_path.iterdir()] == ["a.flo5"]


@pytest.mark.parametrize(
    ("name", "drawn"),
    [("a.png", True), ("a.JPG", True), ("a.kitti.PNG", False), ("a.flo", False), ("a", False)],
)
def test_a_png_is_a_picture_unless_named_as_kittis(name: str, drawn: bool) -> None:
    assert is_picture(Path("folder.kitti.png") / name) == drawn


FULL_DISK = """
import sys
from pathlib import Path
import numpy as np
from gmaflow.errors import OutputError
from gmaflow.io import write_flow
from gmaflow.io.flow_files import FLOW_SUFFIXES
from tests.full_disk import largest_file
flow = np.random.default_rng(0).normal(size=(64, 64, 2)).astype("f4")
for suffix in sorted(FLOW_SUFFIXES):
    try:
        with largest_file(1000):
            write_flow(Path(sys.argv[1]) / f"a{suffix}", flow)
    except OutputError as err:
        print(suffix, "file too large" in str(err))
"""


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("OpenEXR")
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = "".join(f"{suffix} True\n" for suffix in sorted(FLOW_SUFFIXES))
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    assert not list(tmp_path.iterdir())
