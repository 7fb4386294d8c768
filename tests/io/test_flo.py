import struct
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowFileError
from gmaflow.io import read_flow, write_flow


def test_the_bytes_are_those_of_the_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "a.flo"
    write_flow(path, np.array([[[1.5, -2], [3, 4]]], np.float32), np.array([[True, False]]))
    assert path.read_bytes() == struct.pack("<fii4f", 202021.25, 2, 1, 1.5, -2, 1e10, 1e10)


def test_nan_and_large_values_are_unknown(tmp_path: Path) -> None:
    values = (1e9, 1.0, 1.1e9, 0.0, 0.0, float("nan"))
    (tmp_path / "a.flo").write_bytes(struct.pack("<4sii6f", b"PIEH", 3, 1, *values))
    flow = read_flow(tmp_path / "a.flo")
    assert flow.valid.tolist() == [[True, False, False]]
    assert flow.array[0, 1:].tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("width", "height"), [(2**31 - 1, 2**31 - 1), (-1, -1), (0, 4), (2**14, 2**14), (2, 2)]
)
def test_a_header_that_lies_is_refused(tmp_path: Path, width: int, height: int) -> None:
    (tmp_path / "a.flo").write_bytes(struct.pack("<4sii4f", b"PIEH", width, height, 0, 0, 0, 0))
    with pytest.raises(FlowFileError, match="its header"):
        read_flow(tmp_path / "a.flo")


def test_real_files_are_read(material: Path) -> None:
    found = sorted((material / "realflow").rglob("*.flo"))
    assert found
    for path in found:
        flow = read_flow(path)
        raw = np.fromfile(path, "<f4", offset=12).reshape(flow.array.shape)
        np.testing.assert_array_equal(flow.array[flow.valid], raw[flow.valid])
    # Middlebury leaves hidden pixels open, Sintel knows them all.
    whale = read_flow(material / "realflow/middlebury/other-gt-flow/RubberWhale/flow10.flo")
    assert 0 < (~whale.valid).sum() < whale.valid.size / 10
    assert np.abs(whale.array).max() < 10
    alley = read_flow(material / "realflow/sintel/training/flow/alley_1/frame_0002.flo")
    assert alley.array.shape == (436, 1024, 2)
    assert alley.valid.all()
