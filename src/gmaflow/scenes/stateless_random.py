"""Random numbers that depend only on the seed and the pair's number.

They are a hash of the seed, the pair's number and a running count of the draws. So pair 5 gets the
same numbers in any batch and after a restart. Every draw is made for all pairs at once; which draws
are made must not depend on what was drawn before.
"""

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
"""An array of any dtype; docstrings give the shapes."""

_BLOCK = 1024
_STRIDE = 0x9E3779B97F4A7C15
"""Distance between the seeds of branches: larger than any seed in use."""


def scramble(bits: Array) -> Array:
    """Hash 64-bit words (the finalizer of splitmix64)."""
    bits = bits + np.uint64(_STRIDE)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


class StatelessRandom:
    """Random numbers for a list of pairs; every method returns arrays `[pairs, *shape]`."""

    def __init__(self, seed: int, pairs: Array) -> None:
        self._seed, self._pairs = seed, pairs
        words = np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
        self._keys = scramble(scramble(words) ^ scramble(pairs.astype(np.uint64)))
        self._drawn = 0
        self._block = self._next_block()

    def branch(self, number: int) -> "StatelessRandom":
        """Return an independent stream: what is drawn from it does not change this one."""
        return StatelessRandom(self._seed ^ (number * _STRIDE), self._pairs)

    def __len__(self) -> int:
        return len(self._keys)

    def _next_block(self) -> Array:
        # Hash many numbers in one call: the overhead of a call dominates.
        numbers = np.arange(self._drawn, self._drawn + _BLOCK, dtype=np.uint64)
        bits = scramble(self._keys[:, None] ^ scramble(numbers)[None])
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def uniform(self, *shape: int) -> Array:
        """Uniform in [0, 1)."""
        count = math.prod(shape)
        begin = self._drawn % _BLOCK
        if begin + count > _BLOCK:
            # Skip the rest of this block, for all pairs.
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
        """Log-uniform between two positive numbers."""
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
        """An integer in [0, count)."""
        return np.floor(self.uniform(*shape) * count).astype(np.int64)

    def category(self, weights: Array, *shape: int) -> Array:
        """The index of a class; the last axis of `weights` holds the weights of the classes."""
        edges = np.cumsum(weights, axis=-1)
        drawn = self.uniform(*shape) * edges[..., -1]
        return (drawn[..., None] >= edges[..., :-1]).sum(axis=-1)
