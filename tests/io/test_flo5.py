import sys
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowFileError
from gmaflow.io import read_flow, write_flow
from tests.io.flows import assert_same, ramp

h5py = pytest.importorskip("h5py")


def test_the_dataset_is_called_flow_and_unknown_is_nan(tmp_path: Path) -> None:
    flow = ramp()
    write_flow(tmp_path / "a.flo5", *flow)
    with h5py.File(tmp_path / "a.flo5") as file:
        array = file["flow"][()]
    np.testing.assert_array_equal(np.isnan(array).any(axis=2), ~flow.valid)
    assert_same(tmp_path, read_flow(tmp_path / "a.flo5"), flow)


def test_other_datasets_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.flo5"
    for wrong in (np.zeros((3, 4)), np.zeros((3, 4, 3)), np.zeros((3, 4, 2), int)):
        with h5py.File(path, "w") as file:
            file["flow"] = wrong
        with pytest.raises(FlowFileError, match="expected floating point"):
            read_flow(path)
    with h5py.File(path, "w") as file:
        file.create_group("flow")
    with pytest.raises(FlowFileError, match="not a plain dataset"):
        read_flow(path)
    with h5py.File(path, "w") as file:
        file["other"] = ramp().array
    with pytest.raises(FlowFileError, match="no dataset called 'flow'"):
        read_flow(path)


def test_a_way_into_other_files_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.flo5"
    write_flow(tmp_path / "secret.flo5", *ramp())
    with h5py.File(path, "w") as file:
        file["flow"] = h5py.ExternalLink(str(tmp_path / "secret.flo5"), "flow")
    with pytest.raises(FlowFileError, match="no dataset"):
        read_flow(path)
    layout = h5py.VirtualLayout((5, 7, 2), "f4")
    layout[:] = h5py.VirtualSource(str(tmp_path / "secret.flo5"), "flow", (5, 7, 2))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("flow", layout)
    with pytest.raises(FlowFileError, match="not a plain dataset"):
        read_flow(path)


def test_a_dataset_never_filled_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.flo5", "w") as file:
        file.create_dataset("flow", (10_000, 10_000, 2), "f4", chunks=(100, 100, 2))
    with pytest.raises(FlowFileError, match="packed bytes"):
        read_flow(tmp_path / "a.flo5")


def test_without_h5py_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flow(tmp_path / "a.flo5", *ramp())
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(FlowFileError, match=r"reading \.flo5 needs h5py: pip install 'gmaflow"):
        read_flow(tmp_path / "a.flo5")
    with pytest.raises(FlowFileError, match=r"writing \.flo5 needs h5py"):
        write_flow(tmp_path / "b.flo5", *ramp())
    assert [path.name for path in tmp_path.iterdir()] == ["a.flo5"]
