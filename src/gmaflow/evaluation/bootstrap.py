"""How far a difference between two networks can be trusted.

Legend: n pairs, r regions, c columns of sums, t times drawn.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from gmaflow.evaluation.metrics import Averaging, Column

FEW = 10
"""Fewer pairs than these can be drawn in so few ways that an interval means little."""
TIMES = 2000
_AT_ONCE = 200
_SHARE = 95.0


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """By how much an error is smaller than another, in percent of that one.

    Attributes:
        percent: positive is better; NaN where there is no pixel.
        low: the lower end of the interval that holds 95 of 100 resampled data sets.
        high: its upper end.
        pairs: how many pairs have pixels in the region.
    """

    percent: float
    low: float
    high: float
    pairs: int

    @property
    def certain(self) -> bool:
        """Whether the interval leaves no doubt about the sign; that of a few pairs always does."""
        return self.pairs >= FEW and (self.low > 0 or self.high < 0)


def improvements(
    before: Float64[np.ndarray, "n r c"],
    after: Float64[np.ndarray, "n r c"],
    *,
    averaging: Averaging,
    seed: int = 0,
) -> list[Improvement]:
    """Compare the sums of the same pairs under two networks, region by region.

    The pairs are drawn anew, with replacement, 2000 times, the same ones for both networks: what
    makes a pair hard for both cancels out, which it would not if each were drawn by itself.
    """
    columns = _columns(averaging)
    first, second = before[..., columns], after[..., columns]
    once = np.ones((1, len(before)))
    found = _percent(once, first, second)[0]
    drawn = np.concatenate(
        [_percent(weights, first, second) for weights in _draw(len(before), seed)]
    )
    pairs = (first[..., -1] > 0).sum(axis=0)
    return [
        Improvement(percent=float(percent), low=low, high=high, pairs=int(count))
        for percent, (low, high), count in zip(found, map(_interval, drawn.T), pairs, strict=True)
    ]


def _columns(averaging: Averaging) -> list[int]:
    by_image = averaging == "images"
    return [Column.MEANS, Column.IMAGES] if by_image else [Column.ERROR, Column.PIXELS]


def _draw(count: int, seed: int) -> Iterator[Float64[np.ndarray, "t n"]]:
    """Yield how often each pair is drawn."""
    rng = np.random.default_rng(seed)
    for _ in range(TIMES // _AT_ONCE):
        yield rng.multinomial(count, np.full(count, 1 / count), size=_AT_ONCE).astype(np.float64)


def _percent(
    weights: Float64[np.ndarray, "t n"],
    first: Float64[np.ndarray, "n r 2"],
    second: Float64[np.ndarray, "n r 2"],
) -> Float64[np.ndarray, "t r"]:
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = []
        for sums in (first, second):
            total, count = np.moveaxis(np.einsum("tn,nrk->trk", weights, sums), 2, 0)
            errors.append(total / count)
        result: np.ndarray = 100 * (errors[0] - errors[1]) / errors[0]
    return result


def _interval(values: Float64[np.ndarray, " t"]) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not known.size:
        return float("nan"), float("nan")
    outside = (100 - _SHARE) / 2
    low, high = np.percentile(known, [outside, 100 - outside])
    return float(low), float(high)
