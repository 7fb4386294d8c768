"""Which pixels are not to be seen again in the second frame, and why."""

import numpy as np
from jaxtyping import Bool, Float32

from gmaflow.geometry import leaves_frame


def split_occlusion(
    occluded: Bool[np.ndarray, "h w"] | None,
    flow: Float32[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"],
) -> tuple[Bool[np.ndarray, "h w"] | None, Bool[np.ndarray, "h w"]]:
    """Part what is occluded in the frame from what has left it.

    Args:
        occluded: a data set's own mask, or None where it has none.
        flow: the true flow.
        valid: where it is known.

    Returns:
        Occluded in the frame (None without a mask), and out of the frame.
    """
    outside = leaves_frame(flow) & valid
    return (None if occluded is None else occluded & ~outside), outside
