"""How far each pixel is from the nearest of some others: exact, and bounded."""

import numpy as np
from jaxtyping import Bool, Float32


def distance_to(mask: Bool[np.ndarray, "h w"], *, limit: int) -> Float32[np.ndarray, "h w"]:
    """Return the Euclidean distance to the nearest pixel of the mask.

    Squares of distances add up over the two directions, so each is searched by itself: down the
    columns by running maxima, then along the rows by shifts up to the limit.

    Args:
        mask: the pixels to measure from.
        limit: distances beyond it are infinite.
    """
    height, width = mask.shape
    far = limit + 1
    rows = np.arange(height, dtype=np.int32)[:, None]
    above = np.maximum.accumulate(np.where(mask, rows, -far), axis=0)
    below = np.minimum.accumulate(np.where(mask, rows, height + far)[::-1], axis=0)[::-1]
    vertical = np.minimum(np.minimum(rows - above, below - rows), far).astype(np.int32) ** 2
    nearest = vertical.copy()
    for shift in range(1, min(limit, width - 1) + 1):
        beside = vertical + np.int32(shift * shift)
        np.minimum(nearest[:, shift:], beside[:, :-shift], out=nearest[:, shift:])
        np.minimum(nearest[:, :-shift], beside[:, shift:], out=nearest[:, :-shift])
    distance = np.sqrt(nearest.astype(np.float32))
    distance[nearest > limit * limit] = np.inf
    return distance


def boundary_of(mask: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    """Return the pixels of a mask that have a neighbour, above, below or beside, outside it."""
    inner = mask.copy()
    inner[1:] &= mask[:-1]
    inner[:-1] &= mask[1:]
    inner[:, 1:] &= mask[:, :-1]
    inner[:, :-1] &= mask[:, 1:]
    return mask & ~inner
