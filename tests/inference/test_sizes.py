"""Sizes as people write them."""

import pytest

from gmaflow.errors import FlowError
from gmaflow.inference.sizes import read_size


@pytest.mark.parametrize("text", ["440x1024", " 440X1024 ", "440\N{MULTIPLICATION SIGN}1024"])
def test_height_comes_first(text: str) -> None:
    assert read_size(text) == (440, 1024)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("440", "'440' is no size; give height x width"),
        ("440x", "is no size"),
        ("-440x1024", "is no size"),
        ("1x2x3", "is no size"),
        ("8x1024", "8x1024 is too small; give at least 16x16"),
        ("440x99999", "440x99999 is too large; give at most 16384x16384"),
    ],
)
def test_nonsense_is_refused(text: str, told: str) -> None:
    with pytest.raises(FlowError, match=told):
        read_size(text)
