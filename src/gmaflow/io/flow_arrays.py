"""What every flow format shares: the value that is read, and distrust of headers."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32

from gmaflow.errors import FlowFileError

# 16,384 squared: 2 GiB of flow, far above any camera.
MAX_PIXELS = 2**28
# Deflate cannot pack more than 1032 bytes into one; a header that claims more is lying.
MAX_DEFLATE_RATIO = 1032


class FlowArrays(NamedTuple):
    """A flow and where it is known.

    Attributes:
        array: x and y displacement in pixels; 0 where unknown.
        valid: true where the flow is known.
        backward: whether it leads to the frame before, not to the next; of the formats .exr alone
            tells, and all others are taken for forward.
    """

    array: Float32[np.ndarray, "h w 2"]
    valid: Bool[np.ndarray, "h w"]
    backward: bool = False

    def marked(self, unknown: float = np.nan) -> Float32[np.ndarray, "h w 2"]:
        """Return the flow with a mark in place of what is unknown, as formats without a mask do."""
        return np.where(self.valid[..., None], self.array, np.float32(unknown))


def known_part(
    array: Float[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"] | None = None,
    *,
    limit: float = np.inf,
) -> FlowArrays:
    """Make a flow with zeros where it is unknown.

    Args:
        array: the flow; NaN and infinity mean unknown.
        valid: where the flow is known besides; everywhere if None.
        limit: magnitudes above it mean unknown.
    """
    with np.errstate(over="ignore"):
        flow = array.astype(np.float32)  # always a copy
    # NaN fails the comparison, and infinity is below no finite limit.
    largest = np.minimum(limit, np.finfo(np.float32).max).astype(np.float32)
    with np.errstate(invalid="ignore"):
        within = np.abs(flow) <= largest
    known = within[..., 0] & within[..., 1]
    if valid is not None:
        known &= valid
    flow[~known] = 0
    return FlowArrays(flow, known)


def check_size(path: Path, height: int, width: int) -> None:
    """Refuse sizes that no flow has, before anything is allocated for them."""
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise FlowFileError(
            f"{path}: its header gives a size of {height} x {width}; "
            "the file is broken or not a flow file"
        )


def check_length(path: Path, claimed: int, actual: int) -> None:
    """Refuse a file whose length is not what its header claims."""
    if claimed != actual:
        raise FlowFileError(
            f"{path}: its header asks for {claimed} bytes of flow but {actual} are there; "
            "the file is cut off or broken"
        )


def check_ratio(path: Path, unpacked: int, packed: int) -> None:
    """Refuse a claim of more data than the packed bytes could hold."""
    if unpacked > MAX_DEFLATE_RATIO * packed + 1024:
        raise FlowFileError(
            f"{path}: its header asks for {unpacked} bytes, more than {packed} packed bytes can "
            "hold; the file is cut off or broken"
        )
