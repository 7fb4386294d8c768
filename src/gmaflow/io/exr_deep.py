"""Deep pixels, which have any number of values one behind the other, seen from the front."""

import numpy as np
from jaxtyping import Float32, Int, Shaped

from gmaflow.io.exr import Planes


def flatten(planes: Planes, colors: tuple[str, ...]) -> dict[str, Float32[np.ndarray, "h w"]]:
    """Lay the values of each pixel over one another, the nearest in front.

    Colours count as multiplied by alpha already, as the format has it. Without alpha the nearest
    value hides all others; without depth the values lie as they are stored. Black where there are
    none.

    Args:
        planes: the channels of a deep part.
        colors: the names of the channels that are wanted; alpha and depth are found by name.
    """
    layer = colors[0].rpartition(".")[0]
    shape = planes[colors[0]].shape
    counts = _counts(planes[colors[0]])
    pixels = np.repeat(np.arange(counts.size), counts)
    depth = _values(planes, layer, "Z", 0.0, len(pixels))
    order = np.lexsort((depth, pixels))
    alpha = _values(planes, layer, "A", 1.0, len(pixels))[order]
    values = {name: _joined(planes[name])[order] for name in colors}
    seen = {name: np.zeros(counts.size, np.float32) for name in colors}
    clear = np.ones(counts.size, np.float32)
    starts = np.cumsum(counts) - counts
    left, behind = np.flatnonzero(counts), 0
    while left.size:
        at = starts[left] + behind
        for name in colors:
            seen[name][left] += clear[left] * values[name][at]
        clear[left] *= 1 - alpha[at]
        behind += 1
        left = left[(counts[left] > behind) & (clear[left] > 0)]
    return {name: plane.reshape(shape) for name, plane in seen.items()}


def _values(
    planes: Planes, layer: str, letter: str, otherwise: float, count: int
) -> Float32[np.ndarray, " n"]:
    for name in (f"{layer}.{letter}", letter):
        if name in planes:
            return _joined(planes[name])
    return np.full(count, otherwise, np.float32)


def _counts(pixels: Shaped[np.ndarray, "h w"]) -> Int[np.ndarray, " n"]:
    return np.fromiter((0 if one is None else len(one) for one in pixels.flat), np.int64)


def _joined(pixels: Shaped[np.ndarray, "h w"]) -> Float32[np.ndarray, " n"]:
    parts = [one for one in pixels.flat if one is not None]
    return np.concatenate(parts or [np.zeros(0)]).astype(np.float32)
