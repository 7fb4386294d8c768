"""Spring's .flo5: HDF5 with one dataset, "flow"; NaN where the flow is unknown."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float

from gmaflow.errors import FlowFileError
from gmaflow.io.flow_arrays import FlowArrays, check_ratio, check_size, known_part

_BROKEN = (OSError, RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError)


def read_flo5(path: Path) -> FlowArrays:
    """Read a .flo5 file."""
    h5py = import_h5py("reading")
    try:
        with h5py.File(path, "r") as file:
            return known_part(_read_dataset(path, file, h5py))
    except FlowFileError:
        raise
    except _BROKEN as err:
        raise FlowFileError(f"{path}: not a sound .flo5 file ({err})") from err


def write_flo5(path: Path, flow: FlowArrays) -> None:
    """Write a .flo5 file, compressed as Spring's are."""
    h5py = import_h5py("writing")
    with h5py.File(path, "w") as file:
        file.create_dataset("flow", data=flow.marked(), compression="gzip", compression_opts=5)


def _read_dataset(path: Path, file: Any, h5py: ModuleType) -> Float[np.ndarray, "h w 2"]:  # noqa: ANN401
    # A link or a virtual dataset could lead into other files of this machine.
    if not isinstance(file.get("flow", getlink=True), h5py.HardLink):
        raise FlowFileError(f"{path}: holds no dataset called 'flow'")
    data = file["flow"]
    if not isinstance(data, h5py.Dataset) or data.is_virtual or data.external:
        raise FlowFileError(f"{path}: its 'flow' is not a plain dataset")
    if data.dtype.kind != "f" or data.ndim != 3 or data.shape[2] != 2:
        raise FlowFileError(
            f"{path}: its 'flow' is {data.dtype} of shape {data.shape}; "
            "expected floating point of height x width x 2"
        )
    check_size(path, *data.shape[:2])
    check_ratio(path, data.size * data.dtype.itemsize, path.stat().st_size)
    array: np.ndarray = data[()]
    return array


def import_h5py(doing: str) -> ModuleType:
    """Import h5py, or say how to get it."""
    try:
        import h5py
    except ModuleNotFoundError as err:
        raise FlowFileError(f"{doing} .flo5 needs h5py: pip install 'gmaflow[data]'") from err
    module: ModuleType = h5py
    return module
