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
def test_each_view_is_estimated_as_an_image_of_its_own(views: int, model: str) -> None:
    images = random_images(2, 40, 64)
    one, averaged = estimator(1, model), estimator(views, model)
    flows = [one.batch(*(x.flip(dims) for x in images)).flow for dims in FLIPS[views]]
    result = averaged.batch(*images)
    expected = MirroredViews(views).average(torch.stack(flows, dim=1).flatten(0, 1))
    torch.testing.assert_close(result.flow, expected, atol=1e-3, rtol=1e-4)
    assert (expected - flows[0]).abs().max() > 0.01  # the views do differ
    assert result.iterations == (3, 3)


def views_of(flows: list[Tensor]) -> Tensor:
    """Return flow as it would be estimated in each view."""
    return torch.cat(
        [mirror_flow(flow, dims) for flow, dims in zip(flows, FLIPS[len(flows)], strict=True)]
    )


@VIEWS
def test_views_that_agree_do_not_change(views: int) -> None:
    flow = 20 * torch.randn(1, 2, 6, 8)
    average = MirroredViews(views).average(views_of([flow] * views))
    torch.testing.assert_close(average, flow)


@VIEWS
def test_views_that_nearly_agree_count_the_same(views: int) -> None:
    flow = 20 * torch.randn(1, 2, 6, 8)
    flows = [flow + 0.02 * torch.randn(1, 2, 6, 8) for _ in range(views)]
    average = MirroredViews(views).average(views_of(flows))
    torch.testing.assert_close(average, torch.stack(flows).mean(0), atol=1e-4, rtol=0)


@VIEWS
def test_views_that_are_far_off_do_not_count(views: int) -> None:
    flow = 20 * torch.randn(1, 2, 6, 8)
    flows = [flow, *(flow + 500 * (number + 1) for number in range(views - 1))]
    average = MirroredViews(views).average(views_of(flows))
    torch.testing.assert_close(average, flow, atol=0.02, rtol=0)


@VIEWS
@pytest.mark.parametrize("spread", [0.5, 2, 8, 1000])
def test_views_move_the_flow_by_a_pixel_each_at_most(views: int, spread: float) -> None:
    flows = [spread * torch.randn(1, 2, 20, 20) for _ in range(views)]
    average = MirroredViews(views).average(views_of(flows))
    moved = (average - flows[0]).norm(dim=1)
    assert 0.01 * min(spread, 1 / spread) < moved.mean()
    assert moved.max() <= (views - 1) * (1 + 1e-4)


def test_the_pair_as_it_is_counts_most() -> None:
    first, second = torch.zeros(1, 2, 1, 1), torch.tensor([3.0, 0.0]).view(1, 2, 1, 1)
    average = MirroredViews(2).average(views_of([first, second]))
    assert 0 < average[0, 0] < 1.5


def test_a_coarse_flow_is_averaged_as_the_flow_it_stands_for() -> None:
    flows = [torch.randn(1, 2, 6, 8) for _ in range(4)]
    coarse = MirroredViews(4).average(views_of([flow / 8 for flow in flows]), stride=8)
    torch.testing.assert_close(8 * coarse, MirroredViews(4).average(views_of(flows)))


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
    flows = [
        estimator().batch(*(x.flip(dims) for x in images), start=mirror_flow(start, dims)).flow
        for dims in FLIPS[views]
    ]
    flow = estimator(views).batch(*images, start=start).flow
    expected = MirroredViews(views).average(torch.cat(flows))
    torch.testing.assert_close(flow, expected, atol=1e-3, rtol=1e-4)


def test_views_are_estimated_in_parts_if_memory_is_short() -> None:
    images = random_images(1, 192, 256)
    whole = estimator(4).batch(*images)
    parts = estimator(4, max_memory="32MB").batch(*images)  # for one view at a time
    assert not parts.in_tiles
    torch.testing.assert_close(parts.flow, whole.flow, atol=1e-3, rtol=1e-4)


def test_views_are_estimated_in_tiles_if_memory_is_shorter() -> None:
    images = random_images(1, 256, 640)
    one, averaged = (estimator(views, iters=1, max_memory="56MB") for views in (1, 2))
    result = averaged.batch(*images)
    assert result.in_tiles
    flows = [one.batch(*(x.flip(dims) for x in images)).flow for dims in FLIPS[2]]
    expected = MirroredViews(2).average(torch.cat(flows))
    torch.testing.assert_close(result.flow, expected, atol=1e-3, rtol=1e-4)


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
