"""Sizes as people write them."""

import numpy as np
import pytest

from gmaflow.errors import DatasetError, FlowError
from gmaflow.io import sizes
from gmaflow.io.sizes import check_same_size, read_size
from gmaflow.model import MIN_SIDE

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


@pytest.mark.parametrize("text", ["440x1024", " 440X1024 ", "440\N{MULTIPLICATION SIGN}1024"])
def test_height_comes_first(text: str) -> None:
    assert read_size(text) == (440, 1024)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("440", "'440' is not a size; give height x width"),
        ("440x", "is not a size"),
        ("-440x1024", "is not a size"),
        ("1x2x3", "is not a size"),
        ("8x1024", "8x1024 is too small; give at least 16x16"),
        ("440x99999", "440x99999 is too large; give at most 16384x16384"),
    ],
)
def test_nonsense_is_refused(text: str, told: str) -> None:
    with pytest.raises(FlowError, match=told):
        read_size(text)


def test_the_smallest_side_is_the_networks() -> None:
    assert sizes.MIN_SIDE == MIN_SIDE
