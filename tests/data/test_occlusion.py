import numpy as np
import pytest

from gmaflow.data.occlusion import leaves_frame, split_occlusion


@pytest.mark.parametrize(
    ("x", "y", "outside"),
    [
        (0, 0, False),
        (-2, 0, False),
        (-2.01, 0, True),
        (3, 0, False),
        (3.01, 0, True),
        (0, -1, False),
        (0, -1.5, True),
        (0, 3, False),
        (0, 3.01, True),
    ],
)
def test_the_frame_ends_at_its_width_and_height(x: float, y: float, outside: bool) -> None:
    flow = np.zeros((4, 5, 2), np.float32)
    flow[1, 2] = x, y  # from there, 3 to the right is the width and 3 down the height
    assert leaves_frame(flow)[1, 2] == outside
    assert leaves_frame(flow).sum() == outside


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
