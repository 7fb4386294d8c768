from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from gmaflow.errors import FlowError
from gmaflow.evaluation.evaluating import identify
from gmaflow.inference import Flow, FlowEstimator
from gmaflow.inference.engine import Iterations
from gmaflow.inference.mirroring import FLIPS, MirroredViews
from tests.conftest import random_checkpoint, random_images

VIEWS = pytest.mark.parametrize("views", [2, 4])


def estimator(
    views: int = 1,
    model: str = "raft-small",
    *,
    iters: Iterations = 3,
    max_memory: str | None = None,
) -> FlowEstimator:
    checkpoint = random_checkpoint(model)
    return FlowEstimator(checkpoint, iters=iters, device="cpu", max_memory=max_memory, views=views)


def mirror_flow(flow: Tensor, dims: tuple[int, ...]) -> Tensor:
    flow = flow.flip(dims) if dims else flow
    return (
        flow
        * torch.tensor([-1.0 if -1 in dims else 1.0, -1.0 if -2 in dims else 1.0])[:, None, None]
    )


def as_array(image: Tensor) -> np.ndarray:
    return image.permute(1, 2, 0).contiguous().numpy()


@VIEWS
@pytest.mark.parametrize("model", ["raft-small", "gma-affine"])
def test_flow_is_the_mean_over_the_views(views: int, model: str) -> None:
    images = random_images(2, 40, 64)
    one, averaged = estimator(1, model), estimator(views, model)
    expected = [
        mirror_flow(one.batch(*(x.flip(dims) for x in images)).flow, dims) for dims in FLIPS[views]
    ]
    result = averaged.batch(*images)
    torch.testing.assert_close(result.flow, torch.stack(expected).mean(0), atol=1e-3, rtol=1e-4)
    assert (expected[0] - expected[1]).abs().max() > 0.01  # the views do differ
    assert result.iterations == (3, 3)


@pytest.mark.parametrize("dims", FLIPS[4])
def test_flow_of_a_mirrored_pair_is_the_mirrored_flow(dims: tuple[int, ...]) -> None:
    images = random_images(1, 40, 64)
    averaged = estimator(4)
    mirrored = averaged.batch(*(x.flip(dims) for x in images)).flow
    expected = mirror_flow(averaged.batch(*images).flow, dims)
    torch.testing.assert_close(mirrored, expected, atol=1e-3, rtol=1e-4)


def call(estimate: FlowEstimator, first: np.ndarray, second: np.ndarray) -> Flow:
    return estimate(first, second)


def both_ways(estimate: FlowEstimator, first: np.ndarray, second: np.ndarray) -> Flow:
    there = estimate.bidirectional(first, second).forward
    back = estimate.bidirectional(second, first).backward
    np.testing.assert_allclose(back.array, there.array, atol=1e-3)
    return there


def sequence(estimate: FlowEstimator, first: np.ndarray, second: np.ndarray) -> Flow:
    return list(estimate.sequence([second, first, second]))[1]


def on_device(estimate: FlowEstimator, first: np.ndarray, second: np.ndarray) -> Flow:
    return list(estimate.sequence_on_device([second, first, second]))[1].to_flows()[0]


def consecutive(estimate: FlowEstimator, first: np.ndarray, second: np.ndarray) -> Flow:
    return estimate.consecutive([second, first, second])[1]


@VIEWS
@pytest.mark.parametrize("way", [both_ways, sequence, on_device, consecutive])
def test_every_way_to_estimate_averages(
    way: Callable[[FlowEstimator, np.ndarray, np.ndarray], Flow], views: int
) -> None:
    first, second = (as_array(x[0]) for x in random_images(1, 43, 61))  # padded on all sides
    averaged = estimator(views)
    flow = way(averaged, first, second)
    expected = averaged(first, second)
    np.testing.assert_allclose(flow.array, expected.array, atol=1e-3)
    assert flow.coarse is not None
    assert expected.coarse is not None
    np.testing.assert_allclose(flow.coarse, expected.coarse, atol=1e-3)
    assert np.abs(flow.array - call(estimator(), first, second).array).max() > 0.01


@VIEWS
def test_a_start_is_mirrored_too(views: int) -> None:
    images = random_images(1, 40, 64)
    start = torch.linspace(-2, 2, 80).reshape(1, 2, 5, 8)
    expected = [
        mirror_flow(
            estimator().batch(*(x.flip(dims) for x in images), start=mirror_flow(start, dims)).flow,
            dims,
        )
        for dims in FLIPS[views]
    ]
    flow = estimator(views).batch(*images, start=start).flow
    torch.testing.assert_close(flow, torch.stack(expected).mean(0), atol=1e-3, rtol=1e-4)


def test_views_are_estimated_in_parts_if_memory_is_short() -> None:
    images = random_images(1, 192, 256)
    whole = estimator(4).batch(*images)
    parts = estimator(4, max_memory="32MB").batch(*images)  # for one view at a time
    assert not parts.in_tiles
    torch.testing.assert_close(parts.flow, whole.flow, atol=1e-3, rtol=1e-4)


def test_views_are_estimated_in_tiles_if_memory_is_shorter() -> None:
    images = random_images(1, 256, 640)
    short = estimator(2, iters=1, max_memory="56MB")
    tiles = short.batch(*images)
    assert tiles.in_tiles
    mirrored = short.batch(*(x.flip(-1) for x in images)).flow
    torch.testing.assert_close(mirrored, mirror_flow(tiles.flow, (-1,)), atol=1e-3, rtol=1e-4)


def test_the_iterations_of_a_pair_are_the_most_of_its_views() -> None:
    assert MirroredViews(2).largest((3, 5, 7, 6)) == (5, 7)
    settled = estimator(2, iters="auto").batch(*random_images(2, 40, 64))
    assert len(settled.iterations) == 2


def test_an_encoded_frame_gives_the_attention_of_the_image_as_it_is() -> None:
    image = as_array(random_images(1, 40, 64)[0][0])
    averaged = estimator(4, "gma")
    maps = averaged.attention(averaged.encode(image), [(3.0, 5.0), (40.0, 20.0)])
    np.testing.assert_allclose(
        maps, averaged.attention(image, [(3.0, 5.0), (40.0, 20.0)]), atol=1e-5
    )


def test_settings_say_how_many_views_are_averaged() -> None:
    assert estimator(2).settings.as_json()["views"] == 2
    assert "views" not in estimator().settings.as_json()
    assert estimator(2).with_iters(5).views == 2
    assert len({identify(estimator(views)) for views in FLIPS}) == 3


@pytest.mark.parametrize("views", [0, 3, 8, -1, True])
def test_other_numbers_of_views_are_refused(views: int) -> None:
    with pytest.raises(FlowError, match=r"views is .*; use 1, 2"):
        MirroredViews(views)
