import numpy as np
import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.inference.images import Padding
from gmaflow.inference.warm_start import check_start, coarsen, forward_project, start_from


def by_definition(flow: np.ndarray) -> np.ndarray:
    """Each pixel takes the vector that landed nearest, found by looking at all of them."""
    _, height, width = flow.shape
    landed = [
        (x + flow[0, y, x], y + flow[1, y, x], y, x) for y in range(height) for x in range(width)
    ]
    landed = [entry for entry in landed if 0 < entry[0] < width and 0 < entry[1] < height]
    result = np.zeros_like(flow)
    for y in range(height):
        for x in range(width):
            distances = [(px - x) ** 2 + (py - y) ** 2 for px, py, _, _ in landed]
            _, _, source_y, source_x = landed[int(np.argmin(distances))]
            result[:, y, x] = flow[:, source_y, source_x]
    return result


def test_every_pixel_takes_the_nearest_vector() -> None:
    random = np.random.default_rng(0)
    flow = random.normal(0, 3, (2, 9, 13)).astype(np.float32)
    found = forward_project(torch.from_numpy(flow)[None])[0].numpy()
    assert np.array_equal(found, by_definition(flow))


def test_a_constant_flow_stays() -> None:
    flow = torch.full((2, 2, 6, 7), 1.5)
    assert torch.equal(forward_project(flow), flow)


def test_when_everything_leaves_nothing_is_known() -> None:
    assert forward_project(torch.full((1, 2, 4, 5), 100.0)).eq(0).all()


def test_a_moving_square_arrives() -> None:
    flow = torch.zeros(1, 2, 12, 16)
    flow[:, 0, 4:8, 2:6] = 5.0
    found = forward_project(flow)
    assert found[0, 0, 4:8, 7:11].eq(5).all()
    assert found[0, 0, :3].eq(0).all()


def test_coarsening_counts_in_coarse_pixels() -> None:
    assert coarsen(torch.full((1, 2, 16, 24), 8.0)).eq(1).all()


def test_what_is_no_flow_cannot_be_started_from() -> None:
    array = np.zeros((32, 40, 2), np.float32)
    with pytest.raises(FlowError, match=r"a ndarray; give what an estimator returned"):
        start_from.__wrapped__(array, array.shape, Padding(0, 0, 0, 0), torch.device("cpu"))  # type: ignore[attr-defined]
    with pytest.raises(FlowError, match="a ndarray; give a tensor"):
        check_start.__wrapped__(array, torch.zeros(1, 3, 32, 40))  # type: ignore[attr-defined]
