import numpy as np
import pytest
from jaxtyping import UInt8

from gmaflow.viz._ramp import EMBER, REEF, colorize


@pytest.mark.parametrize("ramp", [EMBER, REEF])
def test_more_is_always_lighter_and_nothing_is_near_black(ramp: UInt8[np.ndarray, "256 3"]) -> None:
    linear = (ramp / 255.0) ** 2.2
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    assert np.all(np.diff(luminance[::3]) > 0)
    assert ramp.max(axis=1).min() > 64


def test_values_outside_are_clipped_and_nan_is_black() -> None:
    values = np.array([-1, 0, 1, 7, np.inf, np.nan], np.float32)
    low, high = EMBER[0].tolist(), EMBER[-1].tolist()
    assert colorize(values, EMBER).tolist() == [low, low, high, high, high, [0, 0, 0]]
