import sys
from pathlib import Path

import numpy as np
import OpenEXR
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.errors import FlowFileError
from gmaflow.io import read_flow, write_flow
from tests.io.exrs import deep, pack_parts, rgb, write
from tests.io.flows import assert_same, ramp

RIGHT, UP = np.array(ramp().array[..., 0], order="C"), np.array(-ramp().array[..., 1], order="C")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exr")


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_the_channels_are_nukes_and_v_points_up(tmp_path: Path, way: str) -> None:
    down_and_right = np.full((2, 4, 2), (3, 5), np.float32)
    known = np.array([[True] * 4, [False] * 4])
    write_flow(tmp_path / "a.exr", down_and_right, known, backward=way == "backward")
    file = OpenEXR.File(str(tmp_path / "a.exr"), separate_channels=True)
    planes = {name: channel.pixels for name, channel in file.channels().items()}
    assert {name: plane.dtype for name, plane in planes.items()} == dict.fromkeys(
        (f"{way}.u", f"{way}.v", "valid.a"), np.float32
    )
    assert planes[f"{way}.u"].tolist() == [[3] * 4, [0] * 4]
    assert planes[f"{way}.v"].tolist() == [[-5] * 4, [0] * 4]
    assert planes["valid.a"].tolist() == [[1] * 4, [0] * 4]
    again = read_flow(tmp_path / "a.exr")
    assert again.backward == (way == "backward")
    assert again.array[0, 0].tolist() == [3, 5]


@given(st.integers(0, 2**32 - 1))
def test_every_bit_comes_back(folder: Path, seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2**32, (4, 5, 2), np.uint32)
    array = np.where((bits >> 23) & 0xFF == 0xFF, 0, bits).astype(np.uint32).view(np.float32)
    write_flow(folder / "bits.exr", array)
    got = read_flow(folder / "bits.exr")
    assert got.valid.all()
    np.testing.assert_array_equal(got.array.view(np.uint32), array.view(np.uint32))


def test_arrays_may_lie_in_memory_as_they_like(tmp_path: Path) -> None:
    array, valid, _ = ramp()
    for name, turned in {"a.exr": np.asfortranarray(array), "b.exr": array[::-1][::-1]}.items():
        write_flow(tmp_path / name, turned, np.asfortranarray(valid))
        assert_same(tmp_path, read_flow(tmp_path / name), ramp())


@pytest.mark.parametrize(
    "names",
    [
        "forward.u forward.v",
        "motion.x motion.y",
        "motion.X motion.Y",
        "motion.u motion.v",
        "flow.x flow.y",
        "u v",
        "x y",
        "R G",
        "backward.u backward.v",
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_names_in_common_use_are_read_with_v_up(tmp_path: Path, names: str, dtype: type) -> None:
    right, up = names.split()
    write(tmp_path / "a.exr", {right: RIGHT.astype(dtype), up: UP.astype(dtype)})
    got = read_flow(tmp_path / "a.exr")
    assert got.valid.all()
    assert got.backward == names.startswith("backward")
    np.testing.assert_array_equal(got.array, ramp().array)


def test_forward_comes_before_backward_and_colours(tmp_path: Path) -> None:
    other = rgb(5, 7)
    both = {"backward.u": other["R"], "backward.v": other["R"], **other}
    write(tmp_path / "a.exr", {"forward.u": RIGHT, "forward.v": UP, **both})
    np.testing.assert_array_equal(read_flow(tmp_path / "a.exr").array, ramp().array)
    assert not read_flow(tmp_path / "a.exr").backward


def test_red_and_green_are_flow_where_blue_is_empty(tmp_path: Path) -> None:
    blue = np.zeros_like(RIGHT)
    write(tmp_path / "a.exr", {"R": RIGHT, "G": UP, "B": blue})
    np.testing.assert_array_equal(read_flow(tmp_path / "a.exr").array, ramp().array)
    write(tmp_path / "a.exr", {"R": RIGHT, "G": UP, "B": blue + 0.5})
    with pytest.raises(FlowFileError, match=r"a\.exr: this is a picture"):
        read_flow(tmp_path / "a.exr")


def test_a_later_part_may_hold_the_flow(tmp_path: Path) -> None:
    flow = {"forward.u": RIGHT, "forward.v": UP}
    (tmp_path / "a.exr").write_bytes(pack_parts(depth=({"Z": RIGHT}, {}), motion=(flow, {})))
    np.testing.assert_array_equal(read_flow(tmp_path / "a.exr").array, ramp().array)


def test_nan_and_what_is_not_stored_are_unknown(tmp_path: Path) -> None:
    right = RIGHT.copy()
    right[0, 0] = np.nan
    write(
        tmp_path / "a.exr",
        {"forward.u": right, "forward.v": UP},
        data=(2, 1, 8, 5),
        display=(0, 0, 7, 9),
    )
    wanted, valid = np.zeros((10, 8, 2), np.float32), np.zeros((10, 8), bool)
    wanted[1:6, 2:8], valid[1:6, 2:8] = ramp().array[:, :6], True
    wanted[1, 2], valid[1, 2] = 0, False
    assert_same(tmp_path, read_flow(tmp_path / "a.exr"), type(ramp())(wanted, valid))


def test_what_is_no_flow_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.exr"
    write(path, {"Z": RIGHT, "A": UP})
    with pytest.raises(
        FlowFileError, match=r"holds no flow, but A, Z; its channels must be called"
    ):
        read_flow(path)
    thin = OpenEXR.Channel("forward.u", np.zeros((4, 6), np.float32), 2, 2)
    write(path, {"forward.u": thin, "forward.v": np.zeros((4, 6), np.float32)})
    with pytest.raises(FlowFileError, match="holds no flow"):
        read_flow(path)
    pixels = deep(np.ones((2, 2), int), np.zeros(4))
    write(
        path,
        {"forward.u": pixels, "forward.v": pixels},
        type=OpenEXR.deepscanline,
        compression=OpenEXR.ZIPS_COMPRESSION,
    )
    with pytest.raises(FlowFileError, match="holds no flow"):
        read_flow(path)


def test_more_channels_than_are_safe_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.exr", {"forward.u": RIGHT, "forward.v": UP, "Z": UP})
    monkeypatch.setattr("gmaflow.io.exr_flow.MOST_VALUES", 3 * RIGHT.size)
    assert read_flow(tmp_path / "a.exr").valid.all()
    monkeypatch.setattr("gmaflow.io.exr_flow.MOST_VALUES", 3 * RIGHT.size - 1)
    with pytest.raises(FlowFileError, match="more channels than is safe"):
        read_flow(tmp_path / "a.exr")


def test_claims_of_more_than_is_there_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.exr"
    write(path, {"forward.u": RIGHT, "forward.v": UP}, display=(0, 0, 999, 999))
    with pytest.raises(FlowFileError, match="1000 x 1000 pixels no more than 35 are stored"):
        read_flow(path)
    write(path, {"forward.u": RIGHT, "forward.v": UP}, display=(0, 0, 2**20, 2**20))
    with pytest.raises(FlowFileError, match="its header gives a size of 1048577 x 1048577"):
        read_flow(path)
    write(path, {"forward.u": RIGHT, "forward.v": UP})
    raw = path.read_bytes().replace(
        np.array([0, 0, 6, 4], "<i4").tobytes(), np.array([0, 0, 2**20, 4], "<i4").tobytes()
    )
    path.write_bytes(raw)
    with pytest.raises(FlowFileError, match="packed bytes can hold"):
        read_flow(path)


def test_without_openexr_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flow(tmp_path / "a.exr", *ramp())
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    with pytest.raises(FlowFileError, match=r"reading \.exr needs OpenEXR: pip install 'gmaflow\["):
        read_flow(tmp_path / "a.exr")
    with pytest.raises(FlowFileError, match=r"writing \.exr needs OpenEXR"):
        write_flow(tmp_path / "b.exr", *ramp())
    assert [path.name for path in tmp_path.iterdir()] == ["a.exr"]
