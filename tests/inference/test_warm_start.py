import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from gmaflow.errors import FlowError, OutputError
from gmaflow.inference import Flow
from gmaflow.inference.images import Padding
from gmaflow.inference.warm_start import (
    LastFlows,
    coarsen,
    forward_project,
    read_coarse_flows,
    start_from,
)


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


def test_when_all_vectors_leave_the_flow_is_zero() -> None:
    assert forward_project(torch.full((1, 2, 4, 5), 100.0)).eq(0).all()


def test_a_moving_square_arrives() -> None:
    flow = torch.zeros(1, 2, 12, 16)
    flow[:, 0, 4:8, 2:6] = 5.0
    found = forward_project(flow)
    assert found[0, 0, 4:8, 7:11].eq(5).all()
    assert found[0, 0, :3].eq(0).all()


@pytest.mark.parametrize("border", [(0, 2), (4, 2), (2, 0), (2, 3)])
def test_a_vector_that_lands_on_the_border_is_dropped(border: tuple[int, int]) -> None:
    flow = torch.full((1, 2, 3, 4), 100.0)
    flow[0, :, 1, 2] = torch.tensor(border) - torch.tensor([2, 1])
    flow[0, :, 1, 1] = 0.5
    assert forward_project(flow).eq(0.5).all()


def test_a_flow_from_a_file_is_padded_like_the_images() -> None:
    array = np.random.default_rng(0).normal(0, 9, (34, 45, 2)).astype(np.float32)
    padded = np.pad(array, ((3, 3), (1, 2), (0, 0)), mode="edge")
    device, no_padding = torch.device("cpu"), Padding(0, 0, 0, 0)
    start = start_from(Flow(array), array.shape, Padding.to_stride(34, 45), device)
    assert start.equal(start_from(Flow(padded), padded.shape, no_padding, device))


def test_coarsening_counts_in_coarse_pixels() -> None:
    assert coarsen(torch.full((1, 2, 16, 24), 8.0)).eq(1).all()


def test_a_warm_start_needs_a_flow() -> None:
    array = np.zeros((32, 40, 2), np.float32)
    with pytest.raises(FlowError, match=r"a ndarray; give what an estimator returned"):
        start_from.__wrapped__(array, array.shape, Padding(0, 0, 0, 0), torch.device("cpu"))  # type: ignore[attr-defined]


def random_flow(seed: int) -> Flow:
    values = np.random.default_rng(seed)
    array = values.normal(size=(40, 56, 2)).astype(np.float32)
    return Flow(array, coarse=values.normal(size=(5, 7, 2)).astype(np.float32))


def test_the_last_two_flows_are_kept_whatever_their_names(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    names = ["b/c", "frame 10", "frame 9", os.fsdecode(b"\xff.1"), "a"]
    flows = LastFlows(path)
    for number, name in enumerate(names):
        flows.save(name, random_flow(number))
        assert list(read_coarse_flows(path)) == names[: number + 1][-2:]
        for other in names[: number + 1][-2:]:
            actual, expected = LastFlows(path).load(other), random_flow(names.index(other))
            assert actual is not None
            assert actual.coarse is not None
            assert expected.coarse is not None
            np.testing.assert_array_equal(actual.coarse, expected.coarse)
            assert actual.array.shape == expected.array.shape
    assert LastFlows(path).load("b/c") is None


def test_a_resumed_run_drops_the_older_flow(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    flows = LastFlows(path)
    flows.save("z", random_flow(0))
    flows.save("a", random_flow(1))
    again = LastFlows(path)
    assert again.load("z") is not None
    again.save("m", random_flow(2))
    assert list(read_coarse_flows(path)) == ["a", "m"]


def test_there_may_be_no_last_flow_or_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    assert LastFlows(path).load("a") is None
    path.write_bytes(b"torn")
    with pytest.raises(OutputError, match="is damaged"):
        LastFlows(path).load("a")
    # Nothing of the size that a file claims is made.
    coarse = np.zeros((2, 2, 2), np.float32)
    path.write_bytes(save({"0/size/61": np.array([2**20, 2**20]), "0/coarse/61": coarse}))
    assert LastFlows(path).load("a") is not None
    LastFlows(path).remove()
    assert not path.exists()
