import numpy as np

from gmaflow.data.occlusion import split_occlusion
from gmaflow.geometry import leaves_frame


def test_occluded_is_parted_without_overlap() -> None:
    rng = np.random.default_rng(0)
    flow = rng.normal(0, 4, (20, 30, 2)).astype(np.float32)
    mask, valid = rng.random((20, 30)) < 0.5, rng.random((20, 30)) < 0.8
    inside, outside = split_occlusion(mask, flow, valid)
    assert inside is not None
    assert not (inside & outside).any()
    np.testing.assert_array_equal(inside | outside, mask | (leaves_frame(flow) & valid))
    np.testing.assert_array_equal(split_occlusion(None, flow, valid)[1], outside)
    assert split_occlusion(None, flow, valid)[0] is None
