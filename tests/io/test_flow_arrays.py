from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowFileError
from gmaflow.io.flow_arrays import MAX_PIXELS, check_length, check_ratio, check_size, known_part


def test_unknown_values_become_zero_and_invalid() -> None:
    array = np.ones((1, 6, 2))
    array[0, 1, 0] = np.nan
    array[0, 2, 1] = np.inf
    array[0, 3] = 1e300  # infinity as float32
    array[0, 4] = 1e10
    valid = np.array([[True] * 5 + [False]])
    flow = known_part(array, valid)
    assert flow.valid.tolist() == [[True, False, False, False, True, False]]
    assert not flow.array[~flow.valid].any()
    assert known_part(array, valid, limit=1e9).valid.tolist() == [[True] + [False] * 5]
    assert np.isnan(array).any(), "the input is left alone"


def test_claims_are_checked() -> None:
    path = Path("a.flo")
    check_size(path, 1, MAX_PIXELS)
    for height, width in ((0, 5), (5, 0), (-5, -5), (2, MAX_PIXELS)):
        with pytest.raises(FlowFileError, match=r"a\.flo: its header"):
            check_size(path, height, width)
    check_length(path, 8, 8)
    with pytest.raises(FlowFileError, match="asks for 8 bytes of flow but 7"):
        check_length(path, 8, 7)
    check_ratio(path, 100_000, 100)
    with pytest.raises(FlowFileError, match="more than 100 packed bytes"):
        check_ratio(path, 1_000_000, 100)
