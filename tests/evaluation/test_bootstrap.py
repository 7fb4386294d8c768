import math

import numpy as np
import pytest

from gmaflow.evaluation.bootstrap import FEW, Improvement, improvements
from gmaflow.evaluation.metrics import Averaging, Column, measure
from tests.evaluation.samples import random_case


def tables(count: int, *, seed: int = 0) -> np.ndarray:
    cases = (random_case(100 * seed + i, size=(13, 17)) for i in range(count))
    return np.stack([measure(*case).table for case in cases])


def scaled(some: np.ndarray, factor: float | np.ndarray) -> np.ndarray:
    result = some.copy()
    result[..., Column.ERROR] *= factor
    result[..., Column.MEANS] *= factor
    return result


@pytest.mark.parametrize("averaging", ["pixels", "images"])
def test_a_fifth_less_everywhere_is_20_percent_for_certain(averaging: Averaging) -> None:
    before = tables(20)
    for found in improvements(before, scaled(before, 0.8), averaging=averaging):
        if not math.isnan(found.percent):
            assert (found.percent, found.low, found.high) == pytest.approx((20, 20, 20))
            assert found.certain == (found.pairs >= FEW)


def test_a_few_pairs_make_nothing_certain() -> None:
    before = tables(FEW)
    after = scaled(before, 0.8)
    assert improvements(before, after, averaging="pixels")[0].certain
    before[0, 0] = after[0, 0] = 0  # one of them has no pixel of the region
    found = improvements(before, after, averaging="pixels")[0]
    assert found.pairs == FEW - 1
    assert found.low > 0
    assert not found.certain


def test_the_same_is_no_improvement_and_not_certain() -> None:
    before = tables(20)
    found = improvements(before, before, averaging="pixels")[0]
    assert found == Improvement(percent=0.0, low=0.0, high=0.0, pairs=20)
    assert not found.certain


def test_a_region_without_pixels_has_no_improvement() -> None:
    before = tables(3)
    before[:, 5] = 0
    found = improvements(before, before, averaging="images")[5]
    assert math.isnan(found.percent)
    assert math.isnan(found.low)


def test_intervals_are_those_of_drawing_the_pairs_themselves() -> None:
    before = tables(30)
    rng = np.random.default_rng(1)
    after = scaled(before, rng.uniform(0.5, 1.4, size=(30, 1)))
    found = improvements(before, after, averaging="pixels")[0]
    drawn = []
    for _ in range(4000):
        chosen = rng.integers(0, 30, 30)
        first, second = (
            some[chosen, 0, Column.ERROR].sum() / some[chosen, 0, Column.PIXELS].sum()
            for some in (before, after)
        )
        drawn.append(100 * (1 - second / first))
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert low < found.percent < high
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.08 * (high - low))
