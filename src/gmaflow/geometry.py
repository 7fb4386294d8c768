"""Where a frame ends. One definition, the paper's, for all that is called out of frame or occ-out.

The paper's code takes a target at (x, y) for out of frame where it lies beyond 0..width or
0..height, while the centres of the last pixels lie at width - 1 and height - 1. Seen from pixel
centres that is lopsided; but the published figures for occ-in and occ-out are counted so.
"""

from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float32
from torch import Tensor

Array = TypeVar("Array", np.ndarray, Tensor)


def outside_frame(x: Array, y: Array, *, height: int, width: int) -> Array:
    """Tell which points lie outside a frame, numpy or torch."""
    return (x < 0) | (x > width) | (y < 0) | (y > height)


def leaves_frame(flow: Float32[np.ndarray, "h w 2"]) -> Bool[np.ndarray, "h w"]:
    """Tell which pixels' targets lie outside the second frame."""
    height, width = flow.shape[:2]
    x = flow[..., 0] + np.arange(width, dtype=np.float32)
    y = flow[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    return outside_frame(x, y, height=height, width=width)
