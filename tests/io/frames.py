"""Frames of small clips, which need no video."""

import numpy as np

SIZE = (48, 64)


def moving(count: int, *, seed: int = 0, size: tuple[int, int] = SIZE) -> list[np.ndarray]:
    """Frames of a texture that moves by a pixel to the left in each of them."""
    height, width = size
    rough = np.random.default_rng(seed).integers(0, 255, (height // 8, (width + count) // 8 + 1, 3))
    texture = np.kron(rough, np.ones((8, 8, 1))).astype(np.uint8)
    return [np.ascontiguousarray(texture[:, n : n + width]) for n in range(count)]
