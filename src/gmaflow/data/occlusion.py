"""Which pixels are not to be seen again in the second frame, and why."""

import numpy as np
from jaxtyping import Bool, Float32


def leaves_frame(flow: Float32[np.ndarray, "h w 2"]) -> Bool[np.ndarray, "h w"]:
    """Tell which pixels' targets lie outside the second frame.

    Outside means beyond 0..width or 0..height, as the paper counts; the centres of the last pixels
    lie at width - 1 and height - 1.
    """
    height, width = flow.shape[:2]
    x = flow[..., 0] + np.arange(width, dtype=np.float32)
    y = flow[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    outside: np.ndarray = (x < 0) | (x > width) | (y < 0) | (y > height)
    return outside


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
