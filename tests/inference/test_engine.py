"""Both back ends give the same flow, overflow falls back to float32, and watchers are called."""

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch

from gmaflow.errors import FlowError, ImageError
from gmaflow.inference import FlowEstimator, Padding, Refinement, engine
from gmaflow.inference.engine import Backend, as_backend, make_runner
from gmaflow.inference.fast import FastNetwork, RecordedNetwork
from gmaflow.inference.planning import TILING_BYTES, Computation, bytes_needed, candidates
from gmaflow.inference.tiles import tile_sizes
from gmaflow.model import MODELS, FlowNetwork, MemoryPlan, NetworkConfig
from gmaflow.runtime.device import Precision
from tests.conftest import random_images
from tests.inference.test_estimator import arrays, checkpoint

Make = Callable[[str | NetworkConfig], FlowNetwork]


def test_a_cpu_is_fast_in_float32(make_network: Make) -> None:
    network = make_network("raft-small")
    assert isinstance(make_runner(network, torch.float32, "auto"), FastNetwork)
    assert isinstance(make_runner(network, torch.float16, "auto"), FlowNetwork)
    assert isinstance(make_runner(network, torch.float32, "reference"), FlowNetwork)


@pytest.mark.parametrize("has_instructions", [True, False])
def test_a_cpu_is_fast_in_bfloat16_if_it_has_the_instructions(
    has_instructions: bool, make_network: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "has_bfloat16", lambda: has_instructions)
    runner = make_runner(make_network("raft-small"), torch.bfloat16, "auto")
    assert isinstance(runner, FastNetwork if has_instructions else FlowNetwork)


def test_the_fast_back_end_is_refused_where_it_cannot_run(make_network: Make) -> None:
    with pytest.raises(FlowError, match=r"on cpu in fp32 or .* bf16, not on cpu in float16"):
        make_runner(make_network("raft-small"), torch.float16, "fast")
    with pytest.raises(FlowError, match="unknown back end 'slow'; there are auto, reference, fast"):
        as_backend("slow")


@pytest.mark.parametrize("model", ["gma", "raft-small"])
def test_both_back_ends_give_the_same_flow(model: str, make_network: Make) -> None:
    network = make_network(model)
    images = random_images(1, 48, 64)
    with torch.inference_mode():
        reference, fast = (
            make_runner(network, torch.float32, backend)(
                *images, iters=3, flow_init=None, plan=MemoryPlan()
            ).flow
            for backend in ("reference", "fast")
        )
    torch.testing.assert_close(fast, reference, atol=1e-4, rtol=1e-4)


def test_frames_that_overflow_are_computed_again_in_float32(
    caplog: pytest.LogCaptureFixture,
) -> None:
    weights = checkpoint()
    # Overflows float16 after the last layer, which has no norm; not float32.
    weights.tensors["features.conv_out.weight"] = 3e5 * weights.tensors["features.conv_out.weight"]
    first, second = arrays(32, 40)
    half = FlowEstimator(weights, iters=1, device="cpu", precision="fp16")
    flow = half(half.encode(first), half.encode(second))
    assert "overflowed" in caplog.text
    full = FlowEstimator(weights, iters=1, device="cpu", precision="fp32")
    np.testing.assert_allclose(flow.array, full(first, second).array, atol=1e-2)


def test_a_repeated_computation_is_planned_again(caplog: pytest.LogCaptureFixture) -> None:
    weights = checkpoint()
    weights.tensors["features.conv_out.weight"] = 3e5 * weights.tensors["features.conv_out.weight"]
    enough = bytes_needed(
        Computation(weights.config, half=True), MemoryPlan(), batch=2, height=32, width=40
    )
    half = FlowEstimator(weights, iters=1, device="cpu", precision="fp16", max_memory=enough)
    first, second = (half.encode(array) for array in arrays(32, 40))
    with caplog.at_level("INFO"):
        half.bidirectional(first, second)
    plans = [record.message for record in caplog.records if "at once" in record.message]
    assert [plan.partition(" of ")[0] for plan in plans] == ["2 pairs", "1 pair"]


@pytest.mark.parametrize("backend", ["fast", "reference"])
def test_the_callers_autocast_changes_nothing(backend: Backend) -> None:
    estimator = FlowEstimator(checkpoint("gma"), iters=2, device="cpu", backend=backend)
    first, second = arrays(32, 40)

    def everything() -> list[np.ndarray]:
        frames = estimator.encode(first), estimator.encode(second)
        flows = [estimator(first, second), estimator(*frames)]
        return [*(flow.array for flow in flows), estimator.attention(first, [(20.0, 9.0)])]

    expected = everything()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = everything()
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_initial_flow_that_is_not_finite_is_reported_as_such() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    with pytest.raises(FlowError, match="initial flow"):
        estimator.batch(*random_images(1, 32, 40), start=torch.full((1, 2, 4, 5), torch.nan))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("backend", ["fast", "reference"])
def test_the_current_gpu_need_not_be_the_one_that_computes(backend: Backend) -> None:
    pair = arrays(32, 40)
    here, there = (
        FlowEstimator(checkpoint("gma"), iters=2, device=f"cuda:{n}", backend=backend)(*pair)
        for n in (0, 1)
    )
    np.testing.assert_allclose(there.array, here.array, atol=1e-2)


def recorded_estimator(monkeypatch: pytest.MonkeyPatch) -> FlowEstimator:
    """Return an estimator that computes on a CPU as if it were a GPU, without recordings."""

    def make(network: FlowNetwork, dtype: torch.dtype, _backend: Backend) -> RecordedNetwork:
        return RecordedNetwork(
            FastNetwork(network, dtype=dtype), lambda run, _: lambda *x: tuple(run(*x))
        )

    monkeypatch.setattr("gmaflow.inference.estimator.make_runner", make)
    return FlowEstimator(checkpoint(), iters=1, device="cpu")


@pytest.mark.parametrize("limit", [None, 24e6])
@pytest.mark.parametrize(("bad", "reason"), [(np.nan, "contain NaN"), (1.5, "from .* to 1.5")])
def test_values_are_checked_with_the_result(
    bad: float, reason: str, limit: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = recorded_estimator(monkeypatch)
    images = random_images(2, 128, 160)
    if limit is not None:  # a pair at a time
        monkeypatch.setattr(engine, "memory_budget", lambda *_: limit)
    whole = estimator.batch(*images).flow
    (plan,) = estimator._engine.plans.values()
    assert plan.pairs == (2 if limit is None else 1)
    images[1][1, 1, 2, 3] = bad
    for _ in range(3):
        with pytest.raises(ImageError, match=reason):
            estimator.batch(*images)
    assert not whole.is_inference()


def test_a_plan_is_kept_until_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = recorded_estimator(monkeypatch)
    asked: list[object] = []

    def budget(*_: object) -> float:
        asked.append(None)
        return 1e9

    monkeypatch.setattr(engine, "memory_budget", budget)
    images = random_images(1, 32, 40)
    for _ in range(3):
        estimator.batch(*images)
    assert len(asked) == 1
    with monkeypatch.context() as crowded:
        crowded.setattr(RecordedNetwork, "__call__", no_memory)
        with pytest.raises(FlowError, match="not enough memory"):
            estimator.batch(*images)
    estimator.batch(*images)
    assert len(asked) == 2


def test_a_plan_for_half_precision_is_not_used_in_float32() -> None:
    half = FlowEstimator(checkpoint(), iters=1, device="cpu", precision="fp16")._engine
    half.plans[(1, 3, 32, 40), None] = half.plan_for((1, 3, 32, 40), Padding(0, 0, 0, 0))
    assert half._in_float32(None).plans == {}
    assert half.plans


def no_memory(*_: object, **__: object) -> None:
    raise torch.OutOfMemoryError("none left")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("backend", ["fast", "reference"])
def test_a_gpu_refuses_bad_values_and_continues(backend: Backend) -> None:
    estimator = FlowEstimator(checkpoint("gma"), iters=2, device="cuda", backend=backend)
    good = [image.cuda() for image in random_images(1, 40, 48)]
    expected = estimator.batch(*good).flow
    for _ in range(3):  # directly, recorded, replayed
        for bad, reason in ((torch.nan, "contain NaN"), (1.5, "hold values from .* to 1.5")):
            image = good[1].clone()
            image[0, 1, 2, 3] = bad
            with pytest.raises(ImageError, match=reason):
                estimator.batch(good[0], image)
        actual = estimator.batch(*good).flow
        torch.testing.assert_close(actual, expected, atol=1e-2, rtol=1e-2)
        assert not actual.is_inference()


def make_estimator(model: str = "gma", *, iters: int = 3) -> FlowEstimator:
    return FlowEstimator(checkpoint(model), iters=iters, device="cpu")


@pytest.mark.parametrize("model", ["gma", "raft-small"])
def test_the_flow_shown_after_n_refinements_is_that_of_n_iterations(model: str) -> None:
    estimator = make_estimator(model)
    seen: list[Refinement] = []
    flows = []

    def watch(refinement: Refinement) -> None:
        flow = refinement.flow()
        assert flow is not None
        seen.append(refinement)
        flows.append(flow)

    both = estimator.bidirectional(*arrays(34, 45), watch=watch)
    assert [(step.number, step.total) for step in seen] == [(1, 3), (2, 3), (3, 3)]
    assert np.abs(flows[-1] - both.forward.array).max() < 1e-4
    for number, flow in enumerate(flows, start=1):
        expected = estimator.with_iters(number).bidirectional(*arrays(34, 45)).forward.array
        assert np.abs(flow - expected).max() < 1e-4


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_flow_of_a_refinement_may_be_computed_later(precision: Precision) -> None:
    estimator = FlowEstimator(
        checkpoint("gma"), iters=2, device="cpu", backend="reference", precision=precision
    )
    seen: list[Refinement] = []
    flow = estimator(*arrays(34, 45), watch=seen.append)
    last = seen[-1].flow()
    assert last is not None
    assert np.abs(last - flow.array).max() < (1e-4 if precision == "fp32" else 0.5)


def least_memory(model: str, height: int, width: int) -> float:
    """Bytes with which one pair of that size is estimated at once, by the fast back end."""
    computation = Computation(MODELS[model], fast=True)
    return min(plan.need for plan in candidates(computation, 1, (height, width)))


@pytest.mark.parametrize("encoded", [False, True])
def test_a_watcher_sees_estimates_in_parts_too(*, encoded: bool) -> None:
    (tile,) = tile_sizes(384, 520)
    memory = least_memory("raft-small", *tile) + TILING_BYTES * 2 * 384 * 520
    estimator = FlowEstimator(
        checkpoint(), iters=2, device="cpu", backend="fast", max_memory=memory
    )
    pair = arrays(384, 520)
    frames = tuple(map(estimator.encode, pair)) if encoded else pair
    seen: list[Refinement] = []
    estimator.bidirectional(*frames, watch=seen.append)
    # Two tiles for each of two directions.
    assert [(step.number, step.total) for step in seen] == [(n, 8) for n in range(1, 9)]
    assert all(step.flow() is None for step in seen)

    def stop(refinement: Refinement) -> None:
        if refinement.number == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        estimator(*frames, watch=stop)


def test_an_exception_of_a_watcher_stops_the_estimate() -> None:
    numbers = []

    def watch(refinement: Refinement) -> None:
        numbers.append(refinement.number)
        if refinement.number == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        make_estimator(iters=9)(*arrays(34, 45), watch=watch)
    assert numbers == [1, 2]


@pytest.mark.parametrize("backend", ["fast", "reference"])
def test_iters_may_be_a_numpy_integer(backend: Backend) -> None:
    estimator = FlowEstimator(checkpoint(), iters=np.int64(2), device="cpu", backend=backend)
    assert estimator(*arrays(32, 40)).iterations == 2
    assert json.loads(json.dumps(estimator.settings.as_json()))["iters"] == 2


def test_with_iters_does_not_change_the_estimator() -> None:
    estimator = make_estimator()
    twin = estimator.with_iters(1)
    assert (twin.iters, estimator.iters) == (1, 3)
    assert twin.network is estimator.network


def test_flow_of_a_sequence_on_the_device() -> None:
    estimator = make_estimator("raft-small")
    frames = [image for seed in range(2) for image in arrays(34, 45, seed=seed)]
    actual = list(estimator.sequence_on_device(frames))
    expected = list(estimator.sequence(frames))
    assert len(actual) == len(expected) == 3
    for batch, flow in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(batch.to_flows()[0].array, flow.array)
    assert not list(estimator.sequence_on_device(frames[:1]))


def test_images_that_do_not_fit_in_memory_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = make_estimator("raft-small")
    for name in ("to_tensor", "to_tensors"):
        monkeypatch.setattr(f"gmaflow.inference.estimator.{name}", no_memory)
    with pytest.raises(FlowError, match="not enough memory on cpu for 1 pair of 32x40"):
        estimator.consecutive(arrays(32, 40))
    with pytest.raises(FlowError, match="not enough memory on cpu"):
        estimator(*arrays(32, 40))
