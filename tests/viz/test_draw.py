import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.viz._draw import blend, shorten, text_width

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)


@given(PRINTABLE, st.integers(0, 300), st.integers(10, 30))
def test_a_shortened_line_fits(text: str, width: int, size: int) -> None:
    short = shorten(text, width=width, size=size)
    assert text_width(short, size) <= width
    assert short == "" or short == " ".join(text.split()) or short.endswith("…")


def test_a_line_that_fits_is_left_alone() -> None:
    assert shorten("Flow", width=200, size=12) == "Flow"
    assert shorten("two\nlines", width=200, size=12) == "two lines"
    assert shorten("Frame number one", width=50, size=12).startswith("Fr")


def test_blending_goes_from_below_to_above() -> None:
    below, above = np.full((2, 2, 3), 10, np.uint8), np.full((2, 2, 3), 210, np.uint8)
    assert (blend(below, above, 0.0) == below).all()
    assert (blend(below, above, 1.0) == above).all()
    assert (blend(below, above, 0.25) == 60).all()
