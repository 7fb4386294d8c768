from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gmaflow.errors import FlowFileError
from gmaflow.io import read_flow, write_flow
from gmaflow.io.png16 import read_png16


def test_codes_are_those_of_the_benchmark(tmp_path: Path) -> None:
    array = np.array([[[0, 1], [-2, 0.5], [9, 9]]], np.float32)
    write_flow(tmp_path / "a.png", array, np.array([[True, True, False]]))
    codes = read_png16(tmp_path / "a.png")
    assert codes.tolist() == [[[32768, 32832, 1], [32640, 32800, 1], [0, 0, 0]]]


@pytest.mark.parametrize("value", [512, -512, 511.995, -1e8])
def test_a_flow_out_of_range_is_refused_not_clipped(tmp_path: Path, value: float) -> None:
    array = np.full((1, 2, 2), value, np.float32)
    with pytest.raises(FlowFileError, match=r"a\.png: a flow of .* does not fit KITTI"):
        write_flow(tmp_path / "a.png", array)
    assert list(tmp_path.iterdir()) == []
    write_flow(tmp_path / "a.png", array, np.zeros((1, 2), bool))  # unknown, so no matter


def test_a_picture_is_told_from_flow(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(FlowFileError, match="this is a picture, not KITTI flow"):
        read_flow(tmp_path / "a.png")


@pytest.mark.parametrize(
    "name",
    ["kitti2015/training/flow_occ/000000_10.png", "kitti2012/training/flow_noc/000045_10.png"],
)
def test_real_files_are_read_exactly(material: Path, name: str) -> None:
    av = pytest.importorskip("av")
    path = material / "realflow" / name
    with av.open(str(path)) as container:
        codes = next(container.decode(video=0)).to_ndarray(format="rgb48be").astype(np.float64)
    flow = read_flow(path)
    np.testing.assert_array_equal(flow.valid, codes[..., 2] > 0)
    wanted = (codes[..., :2] - 2**15) / 64 * flow.valid[..., None]
    np.testing.assert_array_equal(flow.array, wanted)
    assert 0.1 < flow.valid.mean() < 0.5
