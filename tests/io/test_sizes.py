import numpy as np
import pytest

from gmaflow.errors import DatasetError
from gmaflow.io.sizes import check_same_size

FLOW, MASK = np.zeros((4, 5, 2)), np.zeros((4, 5), bool)


def test_channels_and_what_is_not_there_have_no_size_to_match() -> None:
    check_same_size({"the flow": FLOW, "the mask": MASK, "its image": (4, 5, 3), "nothing": None})


def test_the_odd_one_out_is_named() -> None:
    with pytest.raises(
        DatasetError,
        match=r"^a\.flo and c\.png differ in size: 4x5 and 5x4 \(height x width\); mend",
    ):
        check_same_size(
            {"a.flo": FLOW, "b.png": MASK, "c.png": MASK.T}, error=DatasetError, remedy="mend it"
        )
