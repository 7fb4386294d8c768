from collections.abc import Callable
from inspect import unwrap  # tests check types first
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from gmaflow.errors import FlowError
from gmaflow.geometry import (
    compose,
    distance_to,
    hole_depths,
    leaves_frame,
    sample,
    sample_grid,
    warp,
)
from gmaflow.training import loss as training_loss
from tests.evaluation import plain


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
    np.testing.assert_array_equal(training_loss.leaves_frame(tensor)[0].numpy(), leaves_frame(flow))


def distances(mask: np.ndarray, limit: int) -> np.ndarray:
    return distance_to(torch.from_numpy(mask)[None], limit)[0].numpy()


def test_a_knights_move_is_the_root_of_5() -> None:
    mask = np.zeros((5, 6), bool)
    mask[2, 2] = True
    distance = distances(mask, 10)
    assert distance[2, 2] == 0
    assert distance[0, 1] == pytest.approx(5**0.5)
    assert distance[2, 5] == 3


def test_no_distance_exceeds_the_limit() -> None:
    mask = np.zeros((1, 9), bool)
    mask[0, 0] = True
    assert distances(mask, 3)[0].tolist() == [0, 1, 2, 3, *[3] * 5]


def test_nothing_is_near_nothing() -> None:
    assert (distances(np.zeros((4, 5), bool), 100) == 100).all()


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    height=st.integers(1, 14),
    width=st.integers(1, 14),
    share=st.floats(0, 1),
)
def test_it_is_what_trying_all_pixels_gives(
    seed: int, height: int, width: int, share: float
) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < share
    for limit in (5, 128, 140):  # the last two are computed in other types
        expected = np.minimum(plain.nearest(mask), limit)
        assert distances(mask, limit) == pytest.approx(expected)
    assert hole_depths(mask) == pytest.approx(np.minimum(plain.nearest(mask), 128) / 8)


def test_tensors_are_warped_as_pictures_are() -> None:
    image = torch.rand(2, 3, 20, 30)
    flow = torch.zeros(2, 2, 20, 30)
    flow[:, 0], flow[:, 1] = 2, -1
    found = warp(image, flow)
    torch.testing.assert_close(found[..., 1:, :-2], image[..., :-1, 2:])
    assert torch.equal(found[..., 3, -1], found[..., 3, -2])  # the border's pixel
    assert torch.autograd.gradcheck(warp, (image[:1, :1].double().requires_grad_(), flow[:1] + 0.3))


def test_mps_lacks_the_border_which_is_sampled_on_the_cpu() -> None:
    sampled_on = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self,
            func: Callable[..., Any],
            types: object,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> object:
            if "grid_sampler" in str(func):
                sampled_on.append(args[0].device.type)
            return func(*args, **(kwargs or {}))

    with FakeTensorMode(), Watch():  # type: ignore[no-untyped-call]
        image = torch.empty(1, 3, 8, 9, device="mps")
        found = sample_grid(image, torch.empty(1, 4, 5, 2, device="mps"))
    assert (found.shape, found.device.type) == ((1, 3, 4, 5), "mps")
    assert sampled_on == ["cpu"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_round_places(dtype: torch.dtype) -> None:
    image = torch.linspace(0, 1, 1000).expand(1, 1, 4, 1000).to(dtype)
    flow = (3 * torch.rand(1, 2, 4, 1000)).to(dtype)
    found = warp(image, flow)
    assert found.dtype == dtype
    assert found.equal(warp(image.float(), flow.float()).to(dtype))
    assert warp(image.float(), flow).equal(warp(image.float(), flow.float()))
    points = torch.tensor([[[700.4, 1.0]]]).to(dtype)
    assert sample(image, points).equal(sample(image.float(), points.float()).to(dtype))


def test_flows_compose() -> None:
    x, y = torch.meshgrid(torch.arange(30.0), torch.arange(20.0), indexing="xy")
    first = torch.stack([torch.full_like(x, 1.5), torch.full_like(y, -2)])[None]
    second = torch.stack([y / 4, x / 8])[None]
    expected = torch.stack([1.5 + (y - 2) / 4, -2 + (x + 1.5) / 8])[None]  # read where it arrives
    inside = ..., slice(2, None), slice(None, -2)
    torch.testing.assert_close(compose(first, second)[inside], expected[inside])


def test_what_cannot_be_warped_is_refused() -> None:
    image = torch.rand(1, 3, 20, 30)
    with pytest.raises(FlowError, match="the image is str; use a float tensor"):
        unwrap(warp)("a.png", image[:, :2])
    with pytest.raises(FlowError, match="of the image's size"):
        unwrap(warp)(image, torch.zeros(1, 2, 10, 30))


def test_points_are_sampled_between_pixels() -> None:
    x, y = torch.meshgrid(torch.arange(30.0), torch.arange(20.0), indexing="xy")
    image = torch.stack([x, y])[None].double()
    points = torch.tensor([[[3.25, 4.5], [28.9, 0.0], [-5.0, 50.0]]], dtype=torch.float64)
    found = sample(image, points)
    expected = torch.tensor([[3.25, 28.9, 0.0], [4.5, 0.0, 19.0]], dtype=torch.float64)
    torch.testing.assert_close(found[0], expected)  # beyond the border, its nearest pixel
    on_a_grid = sample(image, points.reshape(1, 3, 1, 2))
    assert on_a_grid.shape == (1, 2, 3, 1)
    assert torch.autograd.gradcheck(
        sample, (image[..., :3, :4].clone().requires_grad_(), points[:, :1].requires_grad_())
    )


def test_points_have_two_coordinates() -> None:
    with pytest.raises(FlowError, match=r"use points \[b, \.\.\., 2\]"):
        unwrap(sample)(torch.rand(1, 3, 20, 30), torch.rand(1, 5, 3))
