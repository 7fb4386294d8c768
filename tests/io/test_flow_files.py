import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmaflow.errors import FlowFileError
from gmaflow.io import FLOW_SUFFIXES, FlowArrays, read_flow, write_flow
from gmaflow.io.flow_files import check_arrays
from tests.io.flows import SUFFIXES, assert_same, flows, ramp


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flows")


def test_all_formats_are_tested_here() -> None:
    assert set(SUFFIXES) == FLOW_SUFFIXES


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(data=st.data())
def test_what_is_written_is_read(folder: Path, suffix: str, data: st.DataObject) -> None:
    kitti = suffix == ".png"
    flow = data.draw(flows(largest=511.9 if kitti else 1e9))
    path = folder / f"a{suffix}"
    write_flow(path, *flow)
    assert_same(path, read_flow(str(path)), flow, within=1 / 128 if kitti else 0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nan_is_unknown_and_float64_is_taken(tmp_path: Path, suffix: str) -> None:
    array = ramp().array.astype(np.float64)
    array[0, 0, 1] = np.nan
    path = tmp_path / f"a{suffix.upper()}"
    write_flow(path, array)
    flow = read_flow(path)
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
        flow = read_flow(path)
        assert flow.array.shape == (*flow.valid.shape, 2)
    except FlowFileError as err:
        message = str(err)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert str(path) in message
    assert peak < 4 * 2**20


def test_what_is_no_flow_file_is_refused(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        with pytest.raises(FlowFileError, match="does not exist"):
            read_flow(path)
        path.mkdir()
        with pytest.raises(FlowFileError, match="is a folder"):
            read_flow(path)
    for path in (tmp_path / "a.txt", tmp_path / "a"):
        with pytest.raises(FlowFileError, match=r"use one of \.flo, \.png"):
            read_flow(path)
        with pytest.raises(FlowFileError, match=r"use one of \.flo, \.png"):
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


def test_the_given_arrays_are_left_alone(tmp_path: Path) -> None:
    array = np.full((2, 2, 2), 7, np.float32)
    write_flow(tmp_path / "a.flo", array, np.zeros((2, 2), bool))
    assert (array == 7).all()
    assert isinstance(read_flow(tmp_path / "a.flo"), FlowArrays)
