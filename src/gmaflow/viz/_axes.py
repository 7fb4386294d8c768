"""Round numbers for an axis, and where values stand on it."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

_FEWEST_DECADES = 0.05  # a narrower range would have all its ticks in one place


@dataclass(frozen=True)
class Axis:
    """The range of an axis.

    Attributes:
        low: the value at its beginning.
        high: the value at its end, larger than `low`.
        log: equal steps multiply instead of adding; `low` is then above 0.
    """

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Float[np.ndarray, " n"], *, log: bool = False) -> "Axis":
        """The range that holds all values, widened where they are all the same."""
        low, high = float(values.min()), float(values.max())
        if log:
            narrow = math.log10(high / low) < _FEWEST_DECADES
            return cls(low / 2, high * 2, log) if narrow else cls(low, high, log)
        return cls(low, high) if high > low else cls(low, low + 1)

    def place(self, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Where values stand: 0 at the beginning of the axis, 1 at its end."""
        if self.log:
            return np.log(values / self.low) / math.log(self.high / self.low)
        return (values - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """Round values on the axis, at most so many, in order."""
        return self._powers(most) if self.log else self._steps(most)

    def _steps(self, most: int) -> list[float]:
        rough = (self.high - self.low) / max(most, 1)
        power = 10.0 ** math.floor(math.log10(rough))
        for step in (power, 2 * power, 5 * power, 10 * power, 20 * power):
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            if last - first + 1 <= most:
                break
        # Multiplied by a whole number rather than added up, so that 0.3 is 0.3.
        return [float(f"{n * step:.12g}") for n in range(first, last + 1)]

    def _powers(self, most: int) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for leading, every in (((1, 2, 5), 1), ((1, 3), 1), *(((1,), n) for n in range(1, 40))):
            ticks = [
                float(f"{digit}e{power}")
                for power in range(first, last + 1)
                if power % every == 0
                for digit in leading
            ]
            ticks = [t for t in ticks if self.low * (1 - 1e-9) <= t <= self.high * (1 + 1e-9)]
            if len(ticks) <= most:
                break
        return ticks
