"""KITTI's flow .png: 16 bits; red and green are 64 * flow + 2^15, blue tells where it is known."""

from pathlib import Path

import numpy as np

from gmaflow.errors import FlowFileError
from gmaflow.io.flow_arrays import FlowArrays, known_part
from gmaflow.io.png16 import encode_png16, read_png16

_STEPS_PER_PIXEL = 64.0
_ZERO = 2**15


def read_kitti(path: Path) -> FlowArrays:
    """Read a KITTI flow file; its values are multiples of 1/64 pixel."""
    codes = read_png16(path)
    flow = (codes[..., :2].astype(np.float32) - _ZERO) / np.float32(_STEPS_PER_PIXEL)
    return known_part(flow, codes[..., 2] > 0)


def write_kitti(path: Path, flow: FlowArrays) -> None:
    """Write a KITTI flow file, rounded to 1/64 pixel.

    Raises:
        FlowFileError: a known value lies outside the format's range of 512 pixels.
    """
    codes = np.rint(flow.array.astype(np.float64) * _STEPS_PER_PIXEL + _ZERO)
    if ((codes < 1) | (codes > 65535)).any():  # unknown pixels are zero, hence inside
        largest = float(np.abs(flow.array).max())
        raise FlowFileError(
            f"a flow of {largest:.1f} pixels does not fit KITTI's format, which ends below 512; "
            "write .flo instead"
        )
    image = np.ones((*flow.valid.shape, 3), np.uint16)
    image[..., :2] = codes
    image[~flow.valid] = 0
    path.write_bytes(encode_png16(image))
