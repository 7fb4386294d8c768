"""Where a frame ends: the paper's definition of out of frame (occ-out), used everywhere.

In the paper's code a target (x, y) is out of frame beyond 0..width or 0..height, although the
centres of the last pixels are at width - 1 and height - 1. This is asymmetric, but the published
figures for occ-in and occ-out are computed this way.
"""

from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float32
from torch import Tensor

Array = TypeVar("Array", np.ndarray, Tensor)


def outside_frame(x: Array, y: Array, *, height: int, width: int) -> Array:
    """Return which points are outside a frame; for numpy and torch."""
    return (x < 0) | (x > width) | (y < 0) | (y > height)


def leaves_frame(flow: Float32[np.ndarray, "h w 2"]) -> Bool[np.ndarray, "h w"]:
    """Return which pixels have their target outside the second frame."""
    height, width = flow.shape[:2]
    x = flow[..., 0] + np.arange(width, dtype=np.float32)
    y = flow[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    return outside_frame(x, y, height=height, width=width)
