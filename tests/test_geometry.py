import numpy as np
import pytest
import torch

from gmaflow.geometry import leaves_frame
from gmaflow.training import loss


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


def test_tensors_and_arrays_are_counted_alike() -> None:
    flow = np.random.default_rng(0).normal(0, 6, (20, 30, 2)).astype(np.float32)
    tensor = torch.from_numpy(flow).permute(2, 0, 1)[None]
    np.testing.assert_array_equal(loss.leaves_frame(tensor)[0].numpy(), leaves_frame(flow))
