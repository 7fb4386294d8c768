"""Flow files: the suffix chooses the format."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from gmaflow.errors import FlowFileError
from gmaflow.io.atomic import atomic_write
from gmaflow.io.exr import import_openexr
from gmaflow.io.exr_flow import read_exr, write_exr
from gmaflow.io.flo import read_flo, write_flo
from gmaflow.io.flo5 import import_h5py, read_flo5, write_flo5
from gmaflow.io.flow_arrays import FlowArrays, known_part
from gmaflow.io.kitti import read_kitti, write_kitti
from gmaflow.io.npy import read_npy, read_npz, write_npy, write_npz
from gmaflow.io.paths import PathLike, require_file
from gmaflow.io.pfm import read_pfm, write_pfm


class _Format(NamedTuple):
    read: Callable[[Path], FlowArrays]
    write: Callable[[Path, FlowArrays], None]
    need: Callable[[], object] = lambda: None
    """Imports the package that writing takes, or says how to get it."""


_FORMATS = {
    ".flo": _Format(read_flo, write_flo),
    ".png": _Format(read_kitti, write_kitti),
    ".pfm": _Format(read_pfm, write_pfm),
    ".npy": _Format(read_npy, write_npy),
    ".npz": _Format(read_npz, write_npz),
    ".flo5": _Format(read_flo5, write_flo5, partial(import_h5py, "writing")),
    ".exr": _Format(read_exr, write_exr, partial(import_openexr, "writing", FlowFileError)),
}
FLOW_SUFFIXES = frozenset(_FORMATS)


def read_flow(path: PathLike) -> FlowArrays:
    """Read a flow file: .flo, KITTI's .png, .pfm, .npy, .npz, .flo5 or .exr.

    Raises:
        FlowFileError: there is no such file, or it is broken or of another kind.
    """
    reader = _format_of(Path(path)).read
    path = require_file(path, FlowFileError, "a flow file")
    try:
        return reader(path)
    except (OSError, MemoryError) as err:
        raise FlowFileError(f"{path} cannot be read: {err}") from err


def write_flow(
    path: PathLike,
    array: Float[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"] | None = None,
    backward: bool = False,
    *,
    beside: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a flow file; a .png is written in KITTI's format.

    Every format but KITTI's, which rounds to 1/64 pixel, keeps float32 exactly.

    Args:
        path: where to; an existing file is replaced.
        array: the flow in pixels. NaN and infinity are written as unknown; in .flo so is whatever
            exceeds 1e9.
        valid: where the flow is known; everywhere if None.
        backward: whether it leads to the frame before, not to the next; in .exr the channels are
            named by it, other formats do not tell.
        beside: other arrays to keep in the file, by name; .npz alone can hold them.

    Raises:
        FlowFileError: the format is not known, or cannot hold this flow or what is beside it.
        OutputError: the place cannot be written to.
    """
    path = Path(path)
    writer = _format_of(path).write
    if beside:
        if path.suffix.lower() != ".npz":
            raise FlowFileError(f"{path}: {path.suffix} holds flow alone; use .npz")
        writer = partial(write_npz, beside=beside)
    check_arrays(path, array, valid)
    flow = known_part(array, valid)._replace(backward=backward)
    with atomic_write(path) as temporary:
        try:
            writer(temporary, flow)
        except FlowFileError as err:  # the writer does not know the final name
            raise FlowFileError(f"{path}: {err}") from err


def ensure_can_encode(path: PathLike) -> None:
    """Find out before the work whether a format can be written here.

    Raises:
        FlowFileError: the format is not known, or takes a package that is not installed.
    """
    _format_of(Path(path)).need()


def check_arrays(path: Path, array: np.ndarray, valid: np.ndarray | None) -> None:
    """Refuse arrays that are no flow, which the formats would take for one of another shape."""
    if array.ndim != 3 or array.shape[2] != 2 or array.dtype.kind != "f" or 0 in array.shape:
        raise FlowFileError(
            f"{path}: got an array of {array.dtype} and shape {array.shape}; "
            "flow is floating point of height x width x 2"
        )
    if valid is not None and (valid.dtype != np.bool_ or valid.shape != array.shape[:2]):
        raise FlowFileError(
            f"{path}: got a valid of {valid.dtype} and shape {valid.shape}; "
            f"expected bool of {array.shape[0]} x {array.shape[1]}"
        )


def _format_of(path: Path) -> _Format:
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise FlowFileError(
            f"{path}: no flow format is called {path.suffix!r}; use one of {', '.join(_FORMATS)}"
        )
    return found
