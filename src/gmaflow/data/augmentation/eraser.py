"""Boxes of the second frame painted over, so that motion must be found from around them."""

import numpy as np
from jaxtyping import UInt8

_MOST_BOXES = 2
_SMALLEST, _LARGEST = 50, 99


def erase_boxes(
    image2: UInt8[np.ndarray, "h w 3"], rng: np.random.Generator
) -> UInt8[np.ndarray, "h w 3"]:
    """Paint one or two boxes in the image's mean colour; the image itself is left as it is."""
    height, width = image2.shape[:2]
    erased = image2.copy()
    color = image2.reshape(-1, 3).mean(axis=0).round().astype(np.uint8)
    for _ in range(rng.integers(1, _MOST_BOXES + 1)):
        top, left = rng.integers(0, height), rng.integers(0, width)
        tall, wide = rng.integers(_SMALLEST, _LARGEST + 1, 2)
        erased[top : top + tall, left : left + wide] = color
    return erased
