"""Random numbers that depend on the seed and the pair's number, and on nothing else.

A stateless hash replaces a generator's state: what pair 5 draws is the same alone, in a batch of
16, or after a restart. Every draw is made for all pairs at once and for all of them alike, so the
order of the calls, which is part of the hash, never depends on what was drawn before.
"""

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
"""An array of any dtype; shapes are written as a comment where jaxtyping would not help."""

_BLOCK = 1024


def scramble(bits: Array) -> Array:
    """Mix 64-bit words so that neighbouring inputs give unrelated outputs (splitmix64's finish)."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


class Dice:
    """Draws for a list of pairs; every method returns arrays of shape `[pairs, *shape]`."""

    def __init__(self, seed: int, pairs: Array) -> None:
        words = np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
        self._keys = scramble(scramble(words) ^ scramble(pairs.astype(np.uint64)))
        self._drawn = 0
        self._block = self._next_block()

    def __len__(self) -> int:
        return len(self._keys)

    def _next_block(self) -> Array:
        # Many numbers at once: the hash costs next to nothing a number, but a lot a call.
        numbers = np.arange(self._drawn, self._drawn + _BLOCK, dtype=np.uint64)
        bits = scramble(self._keys[:, None] ^ scramble(numbers)[None])
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def uniform(self, *shape: int) -> Array:
        """Uniform in [0, 1)."""
        count = math.prod(shape)
        begin = self._drawn % _BLOCK
        if begin + count > _BLOCK:
            # The rest of this block is left unused, for every pair alike.
            self._drawn += _BLOCK - begin
            begin = 0
        if begin == 0:
            self._block = self._next_block()
        self._drawn += count
        return self._block[:, begin : begin + count].reshape(len(self), *shape)

    def between(self, low: float | Array, high: float | Array, *shape: int) -> Array:
        """Uniform in [low, high)."""
        return low + (high - low) * self.uniform(*shape)

    def log_between(self, low: float | Array, high: float | Array, *shape: int) -> Array:
        """Between two positive numbers, every octave as likely as the next."""
        return low * np.exp(self.uniform(*shape) * np.log(high / low))

    def normal(self, *shape: int) -> Array:
        """Standard normal."""
        radius = np.sqrt(-2.0 * np.log(1.0 - self.uniform(*shape)))
        return radius * np.cos(2.0 * np.pi * self.uniform(*shape))

    def chance(self, probability: float | Array, *shape: int) -> Array:
        """True with the given probability."""
        return self.uniform(*shape) < probability

    def sign(self, *shape: int) -> Array:
        """-1 or 1."""
        return np.where(self.uniform(*shape) < 0.5, -1.0, 1.0)

    def index(self, count: int | Array, *shape: int) -> Array:
        """A whole number in [0, count)."""
        return np.floor(self.uniform(*shape) * count).astype(np.int64)

    def category(self, weights: Array, *shape: int) -> Array:
        """The number of a class; the last axis of `weights` holds the classes' weights."""
        edges = np.cumsum(weights, axis=-1)
        drawn = self.uniform(*shape) * edges[..., -1]
        return (drawn[..., None] >= edges[..., :-1]).sum(axis=-1)
