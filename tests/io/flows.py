"""Flows for the tests of this folder."""

from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from gmaflow.io import FlowArrays

SUFFIXES = (".flo", ".png", ".pfm", ".npy", ".npz", ".flo5", ".exr")


@st.composite
def flows(draw: st.DrawFn, *, largest: float = 1e9) -> FlowArrays:
    """A flow of random size and validity, with zeros where it is unknown."""
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 1e-3, 1.0, 40.0, 511.9, 1e9]))
    array = rng.uniform(-1, 1, (height, width, 2)) * min(scale, largest)
    valid = rng.random((height, width)) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    array[~valid] = 0
    return FlowArrays(array.astype(np.float32), valid)


def ramp(height: int = 5, width: int = 7) -> FlowArrays:
    """A flow whose every value differs, with one unknown pixel."""
    array = np.arange(height * width * 2, dtype=np.float32).reshape(height, width, 2) / 4 - 3
    valid = np.ones((height, width), bool)
    valid[1, 2] = False
    array[~valid] = 0
    return FlowArrays(array, valid)


def assert_same(path: Path, got: FlowArrays, wanted: FlowArrays, *, within: float = 0) -> None:
    assert got.array.dtype == np.float32, path
    np.testing.assert_array_equal(got.valid, wanted.valid)
    np.testing.assert_allclose(got.array, wanted.array, rtol=0, atol=within)
