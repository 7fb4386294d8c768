import json
import logging
import math
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.inference import FlowEstimator
from gmaflow.inference.planning import (
    PLANS,
    TILING_BYTES,
    Computation,
    PlanLog,
    bytes_needed,
    plan_work,
)
from gmaflow.inference.tiles import MIN_TILE
from gmaflow.model import MODELS, MemoryPlan
from tests.conftest import random_images
from tests.inference.test_estimator import arrays, checkpoint

GB = 1e9
GMA, RAFT, SMALL = (Computation(MODELS[name]) for name in ("gma", "raft", "raft-small"))
STORED = MemoryPlan(store_correlation=True, store_attention=True)
STREAMED = MemoryPlan(store_correlation=False, store_attention=False)


def test_everything_is_stored_if_it_fits() -> None:
    plan = plan_work(GMA, batch=4, height=440, width=1024, budget=8 * GB)
    assert (plan.memory, plan.pairs, plan.tile) == (STORED, 4, (440, 1024))


def test_pairs_are_estimated_one_by_one_before_anything_is_streamed() -> None:
    plan = plan_work(GMA, batch=4, height=440, width=1024, budget=1 * GB)
    assert (plan.memory, plan.pairs, plan.tile) == (STORED, 1, (440, 1024))


def test_4k_is_streamed_on_a_small_device() -> None:
    plan = plan_work(GMA, batch=1, height=2160, width=3840, budget=24 * GB)
    assert (plan.memory, plan.tile) == (STREAMED, (2160, 3840))


def test_attention_is_stored_before_correlation() -> None:
    plan = plan_work(GMA, batch=1, height=440, width=1024, budget=0.7 * GB)
    assert plan.memory == MemoryPlan(store_correlation=False, store_attention=True)
    raft = plan_work(RAFT, batch=1, height=440, width=1024, budget=0.7 * GB)
    assert raft.memory.store_correlation


BUDGETS = [0.05, 0.2, 0.5, 1.0, 1.5, 3.0, 6.0, 20.0, 100.0]
SIZES = [(64, 64), (440, 1024), (1088, 1920), (2160, 3840)]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("model", ["gma", "raft-small"])
def test_a_plan_fits_its_budget_or_is_refused(model: str, fast: bool) -> None:
    computation = Computation(MODELS[model], half=fast, fast=fast)
    for (height, width), budget in product(SIZES, BUDGETS):
        least = smallest_need(computation, height, width)
        try:
            plan = plan_work(computation, batch=3, height=height, width=width, budget=budget * GB)
        except FlowError:
            tile = min(MIN_TILE, height), min(MIN_TILE, width)
            whole_images = TILING_BYTES * 3 * height * width
            assert whole_images + smallest_need(computation, *tile) > budget * GB
            continue
        assert plan.need <= budget * GB
        # Tiles only if the whole image does not fit with any plan.
        assert (plan.tile == (height, width)) == (least <= budget * GB)
        assert math.prod(plan.tile) <= height * width


def test_tiled_plans_count_the_whole_images_and_their_flow() -> None:
    """Both images and the flow are float32: eight numbers per pixel of every pair."""
    height, width = 1088, 1920
    for budget, batch in product((0.4, 1.0), (1, 3)):
        plan = plan_work(RAFT, batch=batch, height=height, width=width, budget=budget * GB)
        assert plan.in_tiles((batch, 3, height, width))
        tile_height, tile_width = plan.tile
        one_tile = bytes_needed(RAFT, plan.memory, batch=1, height=tile_height, width=tile_width)
        assert one_tile + 8 * 4 * batch * height * width <= plan.need <= budget * GB


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_the_second_attention_is_counted(fast: bool, half: bool) -> None:
    gma, affine = (
        Computation(MODELS[name], half=half, fast=fast) for name in ("gma", "gma-affine")
    )
    matrix = (2 if half or fast else 4) * (440 * 1024 / 64) ** 2
    for plan in PLANS:
        once, twice = (
            bytes_needed(each, plan, batch=1, height=440, width=1024) for each in (gma, affine)
        )
        assert twice >= once
        if plan.store_correlation and plan.store_attention:
            assert twice - once > 0.4 * matrix


def smallest_need(computation: Computation, height: int, width: int) -> float:
    return min(bytes_needed(computation, p, batch=1, height=height, width=width) for p in PLANS)


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(FlowError, match=r"10 MB of memory are not enough for images of 440x1024"):
        plan_work(GMA, batch=1, height=440, width=1024, budget=0.01 * GB)


def test_too_little_memory_is_reported_with_the_unpadded_size() -> None:
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu", max_memory="2MB")
    with pytest.raises(FlowError, match="2 MB of memory are not enough for images of 108x253"):
        estimator(*arrays(108, 253))


def test_tiles_are_logged_as_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    plan = plan_work(GMA, batch=1, height=1000, width=1000, budget=0.4 * GB)
    plan_log = PlanLog()
    for _ in range(2):
        plan_log.log_plan(plan, (1, 3, 1000, 1000), (998, 1000))
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "998x1000 does not fit in memory and is estimated in tiles" in caplog.text


def test_a_plan_is_logged_first_and_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gmaflow")
    estimator = FlowEstimator(checkpoint(), iters=1, device="cpu")
    one, other = arrays(32, 40)
    for flows in (estimator.sequence([one, other] * 2), estimator.sequence([one, other])):
        assert len(list(flows)) > 0
    assert [record.getMessage()[:16] for record in caplog.records] == ["1 pair of 32x40 "]
    estimator.bidirectional(one, other)
    assert len(caplog.records) == 2


def test_an_estimator_keeps_to_its_memory_limit(caplog: pytest.LogCaptureFixture) -> None:
    images = random_images(1, 400, 720)
    small = FlowEstimator(checkpoint(), iters=1, device="cpu", max_memory="75MB")
    whole = FlowEstimator(checkpoint(), iters=1, device="cpu")
    actual = small.batch(*images)
    assert "in tiles of" in caplog.text
    assert actual.flow.shape == (1, 2, 400, 720)
    assert actual.coarse.shape == (1, 2, 50, 90)
    exact = whole.batch(*images)
    assert (actual.in_tiles, exact.in_tiles) == (True, False)
    assert not torch.equal(actual.flow, exact.flow)


def test_one_pair_at_a_time_is_the_same_flow() -> None:
    images = random_images(3, 128, 360)
    plan = plan_work(replace(SMALL, fast=True), batch=3, height=128, width=360, budget=33e6)
    assert (plan.pairs, plan.tile) == (1, (128, 360))
    whole = FlowEstimator(checkpoint(), iters=2, device="cpu").batch(*images)
    singly = FlowEstimator(checkpoint(), iters=2, device="cpu", max_memory="33MB").batch(*images)
    torch.testing.assert_close(singly.flow, whole.flow, atol=1e-4, rtol=0)
    torch.testing.assert_close(singly.coarse, whole.coarse, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("plan", "half", "peak"),
    [
        (STORED, False, 0.617),
        (MemoryPlan(store_correlation=False, store_attention=True), False, 0.421),
        (STREAMED, False, 0.275),
        (STORED, True, 0.466),
    ],
)
def test_the_estimate_for_a_cpu_agrees_with_measurements(
    plan: MemoryPlan, half: bool, peak: float
) -> None:
    """Peaks in GB of the fast back end, in float32 or bfloat16."""
    computation = replace(GMA, fast=True, half=half)
    need = bytes_needed(computation, plan, batch=1, height=440, width=1024)
    assert 0.97 * peak * GB <= need <= 1.15 * peak * GB


ON_A_GPU = Computation(MODELS["gma"], half=True, fast=True, device="cuda")


@pytest.mark.parametrize(
    ("plan", "batch", "height", "width", "peak"),
    [
        (STORED, 1, 440, 1024, 0.41),
        (STORED, 8, 440, 1024, 2.57),
        (STORED, 1, 1088, 1920, 5.46),
        (STREAMED, 1, 1088, 1920, 0.54),
        (STREAMED, 1, 2160, 3840, 1.80),
    ],
)
def test_the_estimate_for_a_gpu_agrees_with_measurements(
    plan: MemoryPlan, batch: int, height: int, width: int, peak: float
) -> None:
    """Peaks in GB of what torch 2.11 allocated on an H200."""
    need = bytes_needed(ON_A_GPU, plan, batch=batch, height=height, width=width)
    assert 0.97 * peak * GB <= need <= 1.15 * peak * GB


def test_float8_attention_takes_half_the_memory() -> None:
    short = replace(ON_A_GPU, float8=True)

    def difference(height: int, width: int, plan: MemoryPlan = STORED, **changes: bool) -> float:
        pair = (replace(each, **changes) for each in (ON_A_GPU, short))  # type: ignore[arg-type]
        need = [bytes_needed(c, plan, batch=1, height=height, width=width) for c in pair]
        return need[0] - need[1]

    cells = 136 * 240
    assert difference(1088, 1920) == pytest.approx(cells**2)
    need = bytes_needed(short, STORED, batch=1, height=1088, width=1920)
    assert 0.97 * 4.5 * GB <= need <= 1.15 * 4.5 * GB  # measured on an H200
    assert difference(440, 1024) == 0  # small matrices stay as they are
    assert difference(1088, 1920, STREAMED) == 0
    assert difference(1088, 1920, half=False) == difference(1088, 1920, fast=False) == 0


@pytest.mark.parametrize(("budget", "expected"), [(1.5, STREAMED), (6.0, STORED), (80.0, STORED)])
def test_full_hd_on_a_gpu(budget: float, expected: MemoryPlan) -> None:
    plan = plan_work(ON_A_GPU, batch=1, height=1088, width=1920, budget=budget * GB)
    assert (plan.memory, plan.tile) == (expected, (1088, 1920))


MEASURE = """
import json, sys, torch
from gmaflow.bench.cases import Case, moving_images
from gmaflow.bench.measuring import RESET, RESET_PEAK, status
from gmaflow.inference.engine import make_runner
from gmaflow.runtime.device import release_freed_memory
from gmaflow.model import MemoryPlan

network = Case(model="gma").checkpoint().build()
small, large = (moving_images(1, *size, torch.device("cpu")) for size in ((128, 128), (320, 768)))
for *kept, backend in json.loads(sys.argv[1]):
    how = {"iters": 1, "flow_init": None, "plan": MemoryPlan(*kept)}
    run = make_runner(network, torch.float32, backend)
    with torch.inference_mode():
        run(*small, **how)
        release_freed_memory()
        before = status("VmRSS")
        RESET.write_text(RESET_PEAK)
        run(*large, **how)
    print(status("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_the_estimate_agrees_with_a_measurement() -> None:
    """Resident memory of a fresh process, over the loaded program."""
    cases = [(STORED, "fast"), (STREAMED, "fast"), (STORED, "reference")]
    arguments = json.dumps(
        [[p.store_correlation, p.store_attention, backend] for p, backend in cases]
    )
    command = [sys.executable, "-c", MEASURE, arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    for (plan, backend), measured in zip(cases, map(float, done.stdout.split()), strict=True):
        computation = replace(GMA, fast=backend == "fast")
        expected = bytes_needed(computation, plan, batch=1, height=320, width=768)
        # Sometimes the same work takes a third more, because of huge pages.
        assert 0.65 * measured <= expected <= 1.4 * measured, (plan, backend)
