import subprocess
import sys

import numpy as np
import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.scenes import PRESETS, SceneBatch, SceneRenderer, TextureBank
from gmaflow.scenes.renderer import render_scenes
from gmaflow.scenes.scene_params import RenderPlan, Scenes, draw_scenes

SIZE = (64, 96)


def assert_equal(one: SceneBatch, other: SceneBatch) -> None:
    for name, tensor in one._asdict().items():
        assert torch.equal(tensor, getattr(other, name)), name


def take(batch: SceneBatch, index: list[int]) -> SceneBatch:
    return SceneBatch(*(tensor[index] for tensor in batch))


def test_batches_and_order_change_nothing(bank: TextureBank) -> None:
    renderer = SceneRenderer("mix", SIZE, 11, bank)
    together = renderer.render(20, 6)
    singles = SceneBatch.join([renderer.render(i, 1) for i in range(20, 26)])
    assert_equal(together, singles)
    assert_equal(take(together, [5, 4, 3, 2, 1, 0]), renderer.render_pairs(np.arange(25, 19, -1)))
    assert_equal(take(together, [0, 1]), renderer.render(20, 2))
    assert_equal(together, SceneRenderer("mix", SIZE, 11, bank).render(20, 6))


@pytest.mark.parametrize("preset", ["mix", "slow-mix-2"])
def test_doing_more_than_is_needed_changes_nothing(preset: str, bank: TextureBank) -> None:
    rendered = SceneRenderer(preset, SIZE, 5, bank).render(0, 8)
    scenes = Scenes.from_arrays(draw_scenes(preset, 5, np.arange(8), SIZE, bank))
    for plan in (RenderPlan(), RenderPlan.for_preset(preset)):
        assert_equal(rendered, render_scenes(scenes, bank, SIZE, plan))


def test_only_presets_with_glossy_objects_are_planned_with_reflections() -> None:
    planned = {preset for preset in PRESETS if RenderPlan.for_preset(preset).reflections}
    assert planned == {"glossy-drive", "wide-mix-2", "slow-mix-2", "wide-mix-3"}


RECORD = """
from dataclasses import replace

import numpy, torch
from gmaflow.scenes import SceneRenderer, TextureBank
from gmaflow.scenes.scene_params import RenderPlan
from gmaflow.scenes.renderer import render_scenes
from gmaflow.scenes.scene_params import draw_scenes
from gmaflow.scenes.scene_params import Scenes
from gmaflow.scenes.render_steps import EAGER, Steps

size, plan = (32, 40), RenderPlan(layers=(0, 4, 5))
recorded = Steps(
    *(torch.compile(step, backend="eager", dynamic=False, fullgraph=True) for step in EAGER)
)
small = TextureBank.procedural(32)
large = replace(small, texels=small.texels.repeat(2), outlines=small.outlines.repeat(2, 1, 1))
for textures in (small, large):
    bank = SceneRenderer("mix", size, textures=textures, compiled=True).bank
    scenes = Scenes.from_arrays(draw_scenes("mix", 5, numpy.arange(2), size, bank))
    one, other = (
        render_scenes(scenes, bank, size, plan, steps) for steps in (recorded, EAGER)
    )
    assert all(map(torch.equal, one, other))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == len(EAGER)
"""


def test_each_step_is_recorded_once_for_all_layers_both_frames_and_any_bank() -> None:
    # In another process, without the shape checks of the tests, which cannot be compiled.
    done = subprocess.run(
        [sys.executable, "-c", RECORD], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_seeds_and_numbers_give_other_pairs(bank: TextureBank) -> None:
    renderer = SceneRenderer("mix", SIZE, 1, bank)
    pairs = renderer.render(0, 4).clean1
    assert len({pair.numpy().tobytes() for pair in pairs}) == 4
    assert not torch.equal(pairs, SceneRenderer("mix", SIZE, 2, bank).render(0, 4).clean1)


@pytest.mark.parametrize("size", [(33, 41), (64, 200), (101, 57)])
def test_any_size(size: tuple[int, int], bank: TextureBank) -> None:
    batch = SceneRenderer("mix", size, 1, bank).render(0, 2)
    assert batch.final1.shape == (2, 3, *size)
    assert batch.flow.shape == (2, 2, *size)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_renders_the_same_pairs(bank: TextureBank) -> None:
    cpu = SceneRenderer("mix", SIZE, 1, bank).render(0, 8)
    gpu = SceneRenderer("mix", SIZE, 1, bank, device="cuda").render(0, 8)
    same = gpu.identity1.cpu() == cpu.identity1
    assert same.float().mean() > 0.9999
    assert (gpu.flow.cpu() - cpu.flow).abs().amax(dim=1)[same].max() < 1e-3
    assert ((gpu.clean1.cpu() - cpu.clean1).abs() < 1.01 / 255).float().mean() > 0.9999


def test_bad_requests_are_answered(bank: TextureBank) -> None:
    with pytest.raises(FlowError, match=r"unknown preset 'sintel'; there are chairs"):
        SceneRenderer("sintel", SIZE, 1, bank).render(0, 1)
    with pytest.raises(FlowError, match="too small"):
        SceneRenderer("mix", (16, 200), 1, bank)
    with pytest.raises(FlowError, match="at least 1"):
        SceneRenderer("mix", SIZE, 1, bank).render(0, 0)
