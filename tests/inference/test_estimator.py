import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gmaflow.errors import FlowError, ImageError
from gmaflow.inference import Flow, FlowEstimator, estimate
from gmaflow.inference.engine import Backend, check_iters
from gmaflow.inference.images import check_tensors
from gmaflow.inference.tiles import blend_weights, tile_starts
from gmaflow.model import MODELS, FlowNetwork, MemoryPlan
from gmaflow.weights import Checkpoint, ModelCard, save_checkpoint
from tests.conftest import random_images

STREAMED = MemoryPlan(store_correlation=False, store_attention=False)


def checkpoint(model: str = "raft-small", *, spoil: float | None = None) -> Checkpoint:
    torch.manual_seed(0)
    network = FlowNetwork(MODELS[model])
    if spoil is not None:
        torch.nn.init.constant_(network.features.conv_in.weight, spoil)
    return Checkpoint(config=MODELS[model], tensors=network.state_dict())


def arrays(height: int, width: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    pair = random_images(1, height, width, seed=seed)
    first, second = ((255 * x[0].permute(1, 2, 0)).byte().numpy() for x in pair)
    return first, second


@pytest.mark.parametrize(("height", "width"), [(16, 16), (17, 50), (61, 43), (128, 131)])
def test_flow_has_the_size_of_the_images(height: int, width: int) -> None:
    flow = FlowEstimator(checkpoint(), iters=2, device="cpu")(*arrays(height, width))
    assert flow.array.shape == (height, width, 2)
    assert flow.array.dtype == np.float32
    assert np.isfinite(flow.array).all()


def test_arrays_and_tensors_give_the_same_flow() -> None:
    estimator = FlowEstimator(checkpoint(), iters=2, device="cpu")
    pairs = [arrays(40, 52, seed=seed) for seed in range(3)]
    tensors = [
        torch.stack([torch.from_numpy(pair[i]).permute(2, 0, 1) for pair in pairs]).float() / 255
        for i in (0, 1)
    ]
    together = estimator.batch(*tensors).flow.permute(0, 2, 3, 1).numpy()
    for pair, flow in zip(pairs, together, strict=True):
        np.testing.assert_allclose(estimator(*pair).array, flow, atol=1e-4)


def pickled(estimator: FlowEstimator) -> FlowEstimator:
    return pickle.loads(pickle.dumps(estimator))  # noqa: S301


@pytest.mark.parametrize("again", [pickled, copy.deepcopy])
@pytest.mark.parametrize("backend", ["fast", "reference"])
def test_an_estimator_can_be_pickled_and_copied(
    again: Callable[[FlowEstimator], FlowEstimator], backend: Backend
) -> None:
    estimator = FlowEstimator(
        checkpoint("gma"),
        iters=2,
        device="cpu",
        backend=backend,
        max_memory="1GB",
        padding="kitti",
        views=2,
    )
    pair = arrays(40, 52)
    flow = estimator(*pair)  # after which a back end may hold tensors that cannot be pickled
    twin = again(estimator)
    assert twin.settings == estimator.settings
    assert twin.card == estimator.card
    np.testing.assert_array_equal(twin(*pair).array, flow.array)
    assert again(estimator.with_iters("auto")).settings == estimator.with_iters("auto").settings


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not fork")
def test_a_forked_process_can_estimate(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a.safetensors", checkpoint())
    program = """
import os, signal, sys
import numpy as np, torch
from gmaflow import FlowEstimator
torch.set_num_threads(2)
estimator = FlowEstimator(sys.argv[1], iters=1, device="cpu")
image = np.zeros((160, 160, 3), np.uint8)
estimator(image, image)
if os.fork() == 0:
    signal.alarm(60)  # it would wait for ever
    estimator(image, image)
    os._exit(0)
sys.exit(os.wait()[1] != 0)
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "a.safetensors"], check=True)


def test_the_flow_of_a_batch_can_be_a_training_target() -> None:
    found = FlowEstimator(checkpoint(), iters=1, device="cpu").batch(*random_images(2, 32, 40))
    for target in (found.flow, found.coarse):
        scale = torch.ones(1, requires_grad=True)
        (scale * target).sum().backward()
        assert scale.grad is not None


def test_tensors_of_other_classes_are_images_too() -> None:
    class Annotated(torch.Tensor):
        pass

    estimator = FlowEstimator(checkpoint("gma"), iters=1, device="cpu")
    pair = random_images(1, 32, 40)
    plain = estimator.batch(*pair)
    found = estimator.batch(*(x.as_subclass(Annotated) for x in pair), start=0 * plain.coarse)
    assert type(found.flow) is torch.Tensor
    assert torch.equal(found.flow, plain.flow)


@contextmanager
def torch_defaults(dtype: torch.dtype, device: str) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


@pytest.mark.parametrize(
    ("dtype", "device", "suffix"),
    [
        (torch.float64, "cpu", ".safetensors"),
        (torch.bfloat16, "cpu", ".pth"),
        (torch.float32, "meta", ".pth"),
    ],
)
def test_torchs_defaults_change_nothing(
    dtype: torch.dtype, device: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"gma{suffix}"
    save_checkpoint(path, checkpoint("gma"))
    pair = arrays(64, 72)  # large enough for instance norm to be summed in parts

    def everything() -> list[np.ndarray]:
        made = FlowEstimator(path, model="gma", iters=1, device="cpu")
        flow = made(*pair)
        again = made.bidirectional(*pair, previous=flow)
        weights = torch.cat(blend_weights(800, 480, tile_starts(800, 480))).numpy()
        attention = made.attention(pair[0], [(3.0, 5.0)])
        return [flow.array, again.forward.array, again.confidence, attention, weights]

    expected = everything()
    with torch_defaults(dtype, device):
        actual = everything()
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_estimate_loads_and_runs_in_one_call(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a.safetensors", checkpoint())
    pair = arrays(32, 40)
    flow = estimate(*pair, weights=tmp_path / "a.safetensors")
    expected = FlowEstimator(checkpoint())(*pair)
    np.testing.assert_allclose(flow.array, expected.array, atol=1e-4)


def test_forward_and_backward_in_one_call() -> None:
    estimator = FlowEstimator(checkpoint(), iters=2, device="cpu")
    first, second = arrays(40, 52)
    both = estimator.bidirectional(first, second)
    np.testing.assert_allclose(both.forward.array, estimator(first, second).array, atol=1e-4)
    np.testing.assert_allclose(both.backward.array, estimator(second, first).array, atol=1e-4)
    assert both.occluded.shape == both.confidence.shape == (40, 52)
    assert not (both.occluded_in & both.occluded_out).any()
    assert (both.confidence[both.occluded] < 0.5).all()
    assert (both.confidence[~both.occluded] >= 0.5).all()


def test_a_sequence_is_its_pairs() -> None:
    estimator = FlowEstimator(checkpoint(), iters=2, device="cpu")
    frames = [arrays(32, 40, seed=seed)[0] for seed in range(4)]
    flows = list(estimator.sequence(iter(frames)))
    assert len(flows) == 3
    for flow, first, second in zip(flows, frames, frames[1:], strict=False):
        np.testing.assert_allclose(flow.array, estimator(first, second).array, atol=1e-4)


def test_a_warm_sequence_starts_from_the_pair_before() -> None:
    estimator = FlowEstimator(checkpoint(), iters=2, device="cpu")
    frames = [arrays(32, 40, seed=seed)[0] for seed in range(3)]
    warm = list(estimator.sequence(frames, warm_start=True))
    np.testing.assert_allclose(warm[0].array, estimator(*frames[:2]).array, atol=1e-4)
    by_hand = estimator(frames[1], frames[2], previous=warm[0])
    np.testing.assert_allclose(warm[1].array, by_hand.array, atol=1e-4)
    assert not np.allclose(warm[1].array, estimator(frames[1], frames[2]).array, atol=1e-2)
    from_file = estimator(frames[1], frames[2], previous=Flow(warm[0].array))
    assert np.isfinite(from_file.array).all()


def test_a_warm_start_of_another_size_is_refused() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    previous = Flow(np.zeros((64, 64, 2), np.float32))
    with pytest.raises(
        FlowError, match="the previous flow and the images differ in size: 64x64 and 32x40"
    ):
        estimator(*arrays(32, 40), previous=previous)


def test_attention_maps_are_where_the_image_is() -> None:
    estimator = FlowEstimator(checkpoint("gma"), device="cpu")
    image, _ = arrays(45, 60)
    maps = estimator.attention(image, [(0.0, 0.0), (59.0, 44.0), (30.5, 20.0)])
    assert maps.shape == (3, 45, 60)
    assert (maps >= 0).all()
    # Each cell of the 1/8 grid is 64 pixels here, and the cells' shares sum to 1.
    padded_share = 45 * 60 / (48 * 64)
    assert maps.sum(axis=(1, 2)) / 64 == pytest.approx([padded_share] * 3, rel=0.1)


@pytest.mark.parametrize("point", [(60.0, 0.0), (-1.0, 3.0), (0.0, 45.0)])
def test_points_outside_the_image_are_refused(point: tuple[float, float]) -> None:
    estimator = FlowEstimator(checkpoint("gma"), device="cpu")
    with pytest.raises(FlowError, match="outside the frame of 45x60; x runs from 0 to 59, y"):
        estimator.attention(arrays(45, 60)[0], [point])


def test_raft_has_no_attention_to_show() -> None:
    with pytest.raises(FlowError, match="this network has no attention"):
        FlowEstimator(checkpoint(), device="cpu").attention(arrays(32, 40)[0], [(1.0, 1.0)])


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_is_close(precision: str) -> None:
    pair = arrays(64, 80)
    whole = FlowEstimator(checkpoint("gma"), iters=3, device="cpu", precision="fp32")(*pair)
    half = FlowEstimator(checkpoint("gma"), iters=3, device="cpu", precision=precision)(*pair)  # type: ignore[arg-type]
    assert half.array.dtype == np.float32
    assert np.abs(half.array - whole.array).mean() < 0.05 * np.abs(whole.array).mean() + 0.05


def test_memory_plans_change_only_memory() -> None:
    pair = arrays(64, 80)
    stored = FlowEstimator(checkpoint("gma"), iters=3, device="cpu", plan=MemoryPlan())(*pair)
    streamed = FlowEstimator(checkpoint("gma"), iters=3, device="cpu", plan=STREAMED)(*pair)
    np.testing.assert_allclose(streamed.array, stored.array, atol=1e-3)


def test_weights_that_give_nan_are_reported() -> None:
    estimator = FlowEstimator(checkpoint(spoil=float("nan")), iters=1, device="cpu")
    with pytest.raises(FlowError, match="not finite; are they damaged"):
        estimator(*arrays(32, 40))


@pytest.mark.parametrize("iters", [0, -3, 2.0, "2"])
def test_only_whole_numbers_of_refinements_can_be_made(iters: object) -> None:
    with pytest.raises(FlowError, match=f"iters is {iters!r}; use a whole number, 1 or more"):
        check_iters.__wrapped__(iters)  # type: ignore[attr-defined]
    assert check_iters.__wrapped__(np.int64(2)) == (2, None)  # type: ignore[attr-defined]


def test_iterations_without_end_are_refused() -> None:
    with pytest.raises(FlowError, match="use at most 1000"):
        check_iters(10**21)


def test_settings_are_read_only() -> None:
    estimator = FlowEstimator(checkpoint(), iters=2, device="cpu", max_memory="1GB")
    for name in ("iters", "max_memory"):
        with pytest.raises(AttributeError):
            setattr(estimator, name, 5)
    assert (estimator.iters, estimator.max_memory) == (2, 1e9)
    assert estimator.with_iters(5).max_memory == 1e9


def test_a_plan_and_a_limit_exclude_each_other() -> None:
    with pytest.raises(FlowError, match="plan or max_memory, not both"):
        FlowEstimator(checkpoint(), device="cpu", plan=STREAMED, max_memory="1GB")


def test_bad_arguments_are_refused() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    with pytest.raises(ImageError, match="differ in size"):
        estimator(arrays(32, 40)[0], arrays(32, 48)[0])


def test_images_with_negative_strides_are_accepted() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    first, second = arrays(32, 40)
    flow = estimator(first[..., ::-1], second[..., ::-1])
    again = estimator(first[..., ::-1].copy(), second[..., ::-1].copy())
    assert np.array_equal(flow.array, again.array)


def test_a_source_may_reuse_its_memory() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    first, second = arrays(32, 40)
    buffer = np.empty_like(first)

    def frames() -> Iterator[np.ndarray]:
        for frame in (first, second):
            buffer[:] = frame
            yield buffer

    (flow,) = estimator.sequence(frames())
    np.testing.assert_allclose(flow.array, estimator(first, second).array, atol=1e-4)


@pytest.mark.parametrize(
    ("first", "second", "complaint"),
    [
        (torch.zeros(1, 3, 32, 40), torch.zeros(1, 3, 32, 48), "differ in shape"),
        (torch.zeros(1, 3, 32, 40, dtype=torch.uint8),) * 2 + ("divide them by 255",),
        (torch.full((1, 3, 32, 40), 200.0),) * 2 + ("from 200 to 200; scale them to 0..1",),
        (torch.full((1, 3, 32, 40), float("nan")),) * 2 + ("contain NaN",),
        (torch.zeros(3, 32, 40),) * 2 + (r"\[b, 3, height, width\], not \(3, 32, 40\)",),
        (torch.zeros(1, 3, 9, 9),) * 2 + ("at least 16 pixels",),
        (torch.zeros(0, 3, 32, 40),) * 2 + ("empty; use at least one pair",),
        (torch.zeros(1, 3, 32, 40), torch.zeros(1, 3, 32, 40, device="meta"), "on cpu and meta"),
    ],
)
def test_batches_that_are_not_images_are_refused(
    first: torch.Tensor, second: torch.Tensor, complaint: str
) -> None:
    with pytest.raises(ImageError, match=complaint):
        check_tensors.__wrapped__(first, second)  # type: ignore[attr-defined]


def test_an_initial_flow_is_of_the_coarse_flows_shape() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    pair = random_images(1, 33, 40)
    coarse = estimator.batch(*pair).coarse
    assert estimator.batch(*pair, start=coarse.double()).flow.isfinite().all()
    message = r"has shape \[1, 2, 3, 3\]; these images need \[1, 2, 5, 5\]"
    with pytest.raises(FlowError, match=message):
        estimator.batch(*pair, start=torch.zeros(1, 2, 3, 3))


def test_another_model_than_the_checkpoints_is_refused() -> None:
    with pytest.raises(FlowError, match="the checkpoint holds raft-small, not gma"):
        FlowEstimator(checkpoint(), model="gma")


@pytest.mark.slow
def test_large_images_work_on_a_small_machine() -> None:
    """Untiled, in a plan that fits; the stored volume would take 5.7 GB."""
    pair = random_images(1, 1088, 1920)
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu", plan=STREAMED)
    assert estimator.batch(*pair).flow.shape == (1, 2, 1088, 1920)


def test_the_card_names_the_refinements() -> None:
    assert FlowEstimator(checkpoint(), device="cpu").iters == 12
    own = replace(checkpoint(), card=ModelCard(iters=5))
    assert FlowEstimator(own, device="cpu").iters == 5
    assert FlowEstimator(own, device="cpu", iters=3).iters == 3
    shipped = FlowEstimator("gma", device="cpu")
    assert (shipped.iters, shipped.card.iters) == (12, 12)
