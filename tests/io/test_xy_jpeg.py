import re
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gmaflow.errors import FlowError, FlowFileError, OutputError
from gmaflow.io import is_picture, list_flows, read_flow_arrays, stem_of, write_flow
from gmaflow.io.paths import is_xy, xy_paths
from tests.io.bombs import read_in_a_process


def smooth(height: int = 24, width: int = 40, longest: float = 15.0) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    flow = np.stack([np.sin(x / 9), np.cos(y / 7)], axis=2) * longest
    return flow.astype(np.float32)


@pytest.mark.parametrize("bound", [20.0, 5.5, 300.0, 1e-6])
def test_either_name_reads_both_within_a_step_of_8_bits_and_jpeg(
    tmp_path: Path, bound: float
) -> None:
    flow = smooth(longest=0.8 * bound)
    write_flow(tmp_path / "flow_x_000012.jpg", flow, bound=bound)
    step = 2 * bound / 255
    for name in ("flow_x_000012.jpg", "flow_y_000012.jpg"):
        got = read_flow_arrays(tmp_path / name)
        assert got.valid.all()
        assert np.abs(got.array - flow).mean() < step
        assert np.abs(got.array - flow).max() < 4 * step


def test_the_codes_are_those_of_action_recognition(tmp_path: Path) -> None:
    # -20 is 0, 0 is 128, 20 is 255; what is longer is clipped.
    for value, code in ((-20, 0), (-50, 0), (0, 128), (10, 191), (20, 255), (1e4, 255)):
        write_flow(tmp_path / "flow_x.jpg", np.full((16, 16, 2), value, np.float32))
        with Image.open(tmp_path / "flow_y.jpg") as image:
            assert image.mode == "L"
            assert (np.asarray(image) == code).all()


def test_files_of_other_programs_use_20_pixels(tmp_path: Path) -> None:
    for name, code in (("flow_x_1.jpg", 255), ("flow_y_1.jpg", 0)):
        Image.fromarray(np.full((8, 8), code, np.uint8)).save(tmp_path / name)
    flow = read_flow_arrays(tmp_path / "flow_x_1.jpg").array
    np.testing.assert_array_equal(flow, np.broadcast_to(np.array([20, -20], np.float32), (8, 8, 2)))


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("flow_x_00012.jpg", "00012"),
        ("flow_y.JPEG", "flow"),
        ("000012.flow_x.jpg", "000012"),
        ("bear_flow_y_3.jpg", "bear_3"),
    ],
)
def test_names_of_pairs(name: str, stem: str) -> None:
    assert is_xy(name)
    assert not is_picture(name)
    assert stem_of(name) == stem
    x, y = xy_paths(Path("some.folder") / name)
    assert {x.name, y.name} >= {name}
    assert x.name != y.name
    assert x.parent == Path("some.folder")


@pytest.mark.parametrize("name", ["flow_xy.jpg", "flow_x.png", "overflow_x.jpg", "flow.jpg"])
def test_other_names_are_pictures(name: str) -> None:
    assert not is_xy(name)
    assert is_picture(name)


def test_a_folder_lists_each_pair_once_and_no_other_jpeg(tmp_path: Path) -> None:
    for number in (2, 10):
        write_flow(tmp_path / f"flow_y_{number}.jpg", smooth())
    (tmp_path / "frame.jpg").write_bytes(b"")
    assert [path.name for path in list_flows(tmp_path)] == ["flow_x_2.jpg", "flow_x_10.jpg"]


def test_unknown_pixels_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    flow = smooth()
    flow[3, 4] = np.nan
    with pytest.raises(FlowFileError, match=r"flow_x\.jpg: JPEGs cannot mark unknown pixels"):
        write_flow(tmp_path / "flow_x.jpg", flow)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bound", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_an_invalid_bound_is_refused(tmp_path: Path, bound: float) -> None:
    with pytest.raises(FlowError, match=r"bound of .* pixels is out of range"):
        write_flow(tmp_path / "flow_x.jpg", smooth(), bound=bound)


def test_half_a_pair_and_two_sizes_are_refused(tmp_path: Path) -> None:
    write_flow(tmp_path / "flow_x_1.jpg", smooth())
    write_flow(tmp_path / "flow_x_2.jpg", smooth(24, 48))
    (tmp_path / "flow_y_2.jpg").replace(tmp_path / "flow_y_1.jpg")
    with pytest.raises(FlowFileError, match="differ in size: 24 x 40 and 24 x 48"):
        read_flow_arrays(tmp_path / "flow_x_1.jpg")
    with pytest.raises(FlowFileError, match=r"flow_y_2\.jpg does not exist"):
        read_flow_arrays(tmp_path / "flow_x_2.jpg")


def test_x_appears_only_where_y_is(tmp_path: Path) -> None:
    (tmp_path / "flow_y.jpg").mkdir()
    with pytest.raises(OutputError, match=r"flow_y\.jpg exists and is not a file"):
        write_flow(tmp_path / "flow_x.jpg", smooth())
    assert not (tmp_path / "flow_x.jpg").exists()


@given(data=st.data())
def test_broken_bytes_give_flow_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "flow_x_broken.jpg"
    write_flow(path, smooth(8, 8))
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw))))])
    try:
        read_flow_arrays(path)
    except FlowFileError as err:
        assert str(path) in str(err)  # noqa: PT017 - or it is read


def test_a_jpeg_of_gigabytes_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    buffer = BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(buffer, "JPEG")
    side = (9_000).to_bytes(2, "big")
    # The frame header: its length, 8 bits, height and width.
    raw = re.sub(
        rb"\xff\xc0\x00\x0b\x08....", b"\xff\xc0\x00\x0b\x08" + 2 * side, buffer.getvalue()
    )
    for name in ("flow_x.jpg", "flow_y.jpg"):
        (tmp_path / name).write_bytes(raw)
    answer = read_in_a_process(
        tmp_path / "flow_x.jpg",
        "from gmaflow.io import read_flow_arrays; read_flow_arrays(path)",
    )
    assert answer.startswith("FlowFileError flow_x.jpg: its")
    assert "more than is safe" in answer
