import json
import re
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from gmaflow.data import MIXTURES
from gmaflow.errors import FlowError, TrainingError
from gmaflow.training import PRESETS, TrainConfig, plan_at, preset
from gmaflow.training.config import (
    CHANGEABLE,
    differences,
    from_json,
    lr_at,
    one_cycle,
    summary,
    to_json,
)
from tests.training.conftest import tiny_config

BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": "raft-smal"}, "did you mean raft-small"),
    ({"model": "raft", "num_heads": 2}, "no heads"),
    ({"model": "gma", "combination": "sum"}, "combination 'sum'"),
    ({"data": "scenes"}, "unknown data source 'scenes'"),
    ({"data": "scenes:mixx"}, "did you mean mix"),
    ({"data": "stage:chair"}, "did you mean chairs"),
    ({"data": "stage:sintel", "without": ("hd1",)}, "has no 'hd1'; did you mean hd1k"),
    ({"data": "scenes:mix", "without": ("hd1k",)}, "leaves data sets out of a stage"),
    ({"data": "stage:kitti", "without": ("kitti-2015",)}, "is empty"),
    ({"validate_on": ("stage:chairs",)}, "for training only"),
    ({"crop": (100, 96)}, "multiples of 8"),
    ({"crop": (8, 96)}, "at least 16"),
    ({"batch": 0}, "batch=0 must be at least 1"),
    ({"steps": 0}, "steps=0"),
    ({"batch": 6, "accumulate": 4}, "cannot be split into 4 equal parts; choose a multiple of 4"),
    ({"lr": 0.0}, "lr=0.0 is out of range"),
    ({"lr": float("nan")}, "lr=nan"),
    ({"gamma": 1.5}, "gamma=1.5"),
    ({"ema": 1.0}, "ema=1.0"),
    ({"occluded_from": 1.0}, "occluded_from"),
    ({"disturbed_from": 1.0}, "disturbed_from"),
    ({"model": "gma-affine", "continued": 0.0}, "continued=0.0 is out of range"),
    ({"continued": 0.5}, "gma does not continue motion"),
    ({"precision": "fp8"}, "fp8"),
    ({"textures_split": "held-out"}, "unknown textures_split 'held-out'; there are train, all"),
    ({"start_step": 5}, "needs initial weights"),
    ({"start_step": 5, "steps": 5, "init": "x"}, "must be less than steps=5"),
    ({"validate_every": 5, "validate_on": ()}, "validate_every needs data"),
    ({"iters_growth": "4 8"}, "invalid iters_growth"),
    ({"iters_growth": "0.1:4"}, "invalid iters_growth"),
    ({"iters_growth": "0:4 0.5:0"}, "invalid iters_growth"),
    ({"iters_growth": "0:4+x"}, "invalid iters_growth"),
    ({"iters_growth": "0:4+-4"}, "invalid iters_growth"),
    ({"iters_growth": "0:4 0.5:6 0.4:8"}, "invalid iters_growth"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD)
def test_nonsense_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        TrainConfig(**changes)


def test_ablations_are_networks() -> None:
    config = TrainConfig(model="gma", num_heads=2, learned_alpha=False, combination="replace")
    assert config.network.num_heads == 2
    assert config.network.combination == "replace"
    assert not config.network.learned_alpha


def test_what_may_change_is_a_field() -> None:
    assert set(TrainConfig.__annotations__) >= CHANGEABLE


def test_errors_are_the_callers() -> None:
    with pytest.raises(TrainingError):
        TrainConfig(batch=-1)


@pytest.mark.parametrize("name", PRESETS)
def test_configs_survive_json(name: str) -> None:
    assert from_json(to_json(preset(name))) == preset(name)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"stepz": 1}', '{"steps": 0}', "null"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(FlowError):
        from_json(text)


def test_differences_are_named() -> None:
    changed = replace(preset("chairs"), crop=(64, 96), ema=0.5, keep=9)
    assert differences(preset("chairs"), changed) == [
        "crop 368x496, not 64x96",
        "ema 0, not 0.5",
    ]


def test_textures_may_move_but_not_come_or_go() -> None:
    plain, here = preset("scenes-pretrain"), replace(preset("scenes-pretrain"), textures="a")
    moved = replace(here, textures="b")
    assert differences(here, moved) == []
    assert differences(here, plain) == ['textures a, not ""']
    assert differences(plain, here) == ['textures "", not a']


def test_a_run_from_before_textures_were_split_used_all_of_them() -> None:
    new = replace(preset("scenes-pretrain"), textures="a")
    values = json.loads(to_json(new))
    del values["textures_split"]
    old = from_json(json.dumps(values))
    assert differences(old, new) == ["textures_split all, not train"]
    assert differences(old, replace(new, textures_split="all")) == []
    assert from_json(json.dumps(values | {"textures": ""})) == preset("scenes-pretrain")


# The table of the published code: steps, batch, crop, lr, weight decay, gamma.
PUBLISHED = {
    "chairs": (120_000, 8, (368, 496), 2.5e-4, 1e-4, 0.8),
    "things": (120_000, 6, (400, 720), 1.25e-4, 1e-4, 0.8),
    "sintel": (120_000, 6, (368, 768), 1.25e-4, 1e-5, 0.85),
    "kitti": (50_000, 6, (288, 960), 1.25e-4, 1e-5, 0.85),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_papers_stages_are_as_published(name: str) -> None:
    config = preset(name)
    found = (config.steps, config.batch, config.crop, config.lr, config.weight_decay, config.gamma)
    assert found == PUBLISHED[name]
    assert (config.model, config.iters, config.clip, config.seed) == ("gma", 12, 1.0, 1234)
    assert (config.data, config.precision) == (f"stage:{name}", "auto")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_stages_crop_is_its_mixtures(name: str) -> None:
    assert MIXTURES[name].crop == preset(name).crop


@pytest.mark.parametrize("name", PRESETS)
def test_options_are_off_by_default(name: str) -> None:
    config = preset(name)
    assert config.occluded_from == config.ema == 0
    assert config.accumulate == 0
    assert config.parts == 1
    assert config.iters_growth == config.init == ""
    assert len(summary(name)) > 20


def test_ours_render_their_scenes() -> None:
    assert preset("scenes-pretrain").data == "scenes:mix"
    assert preset("scenes-finetune").data == "scenes:fast-mix"
    config = preset("scenes-pretrain")
    assert (config.batch, config.crop, config.lr) == (16, (368, 496), 4e-4)


def test_an_unknown_preset_names_the_near_ones() -> None:
    with pytest.raises(TrainingError, match=re.escape("'chair'; did you mean chairs?")):
        preset("chair")


def test_presets_are_values() -> None:
    assert asdict(preset("things")) == asdict(preset("things"))


@pytest.mark.parametrize(("steps", "peak"), [(1, 1e-3), (10, 4e-4), (500, 2.5e-4), (1777, 1.0)])
def test_the_rate_is_torchs_one_cycle_value_by_value(steps: int, peak: float) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=peak,
        total_steps=steps + 100,
        pct_start=0.05,
        cycle_momentum=False,
        anneal_strategy="linear",
    )
    for step in range(steps):
        expected = theirs.get_last_lr()[0]
        assert one_cycle(step, steps=steps, peak=peak) == pytest.approx(expected, rel=1e-12)
        optimizer.step()
        theirs.step()


def test_a_start_in_the_middle_warms_up_to_the_schedule() -> None:
    whole = tiny_config(steps=1000)
    later = tiny_config(steps=1000, init="w", start_step=400, warm_up=100)
    assert lr_at(400, later) == pytest.approx(lr_at(400, whole) / 100)
    assert lr_at(449, later) == pytest.approx(lr_at(449, whole) / 2)
    assert lr_at(499, later) == lr_at(499, whole)
    assert lr_at(700, later) == lr_at(700, whole)


def test_iterations_grow() -> None:
    config = tiny_config(steps=100, iters_growth="0:4 0.5:8 0.8:12")
    plans = [plan_at(step, config) for step in (0, 49, 50, 79, 80, 99)]
    assert [plan.iters for plan in plans] == [4, 4, 8, 8, 12, 12]
    assert {plan.ahead for plan in plans} == {0}
    assert plan_at(99, tiny_config(steps=100, iters=3)).iters == 3


def test_iterations_ahead_are_drawn_for_each_step() -> None:
    config = tiny_config(steps=400, iters_growth="0:4 0.5:8+12")
    plans = [plan_at(step, config) for step in range(400)]
    assert {plan.ahead for plan in plans[:200]} == {0}
    drawn = [plan.ahead for plan in plans[200:]]
    assert all(drawn.count(number) > 40 for number in (0, 6, 12))
    assert set(drawn) == {0, 6, 12}
    assert [plan_at(step, config) for step in range(400)] == plans  # the same when resumed
    assert [plan_at(step, replace(config, seed=7)) for step in range(400)] != plans


def test_a_flat_rate_falls_at_the_end() -> None:
    config = tiny_config(steps=1000, lr=1e-4, decay=0.25, warm_up=100)
    rates = [lr_at(step, config) for step in range(1000)]
    assert rates[0] == pytest.approx(1e-6)
    assert set(rates[99:750]) == {1e-4}
    assert rates[875] == pytest.approx(5e-5)
    assert 0 < rates[-1] < 1e-6
    assert sorted(rates[749:], reverse=True) == rates[749:]


def test_occluded_pixels_and_disturbed_starts_are_let_in() -> None:
    config = tiny_config(steps=100, occluded_from=0.3, disturbed_from=0.6)
    plans = [plan_at(step, config) for step in (0, 29, 30, 59, 60, 99)]
    assert [plan.occluded for plan in plans] == [False, False, True, True, True, True]
    assert [plan.disturbed for plan in plans] == [False, False, False, False, True, True]
    assert plan_at(0, tiny_config()).occluded


def test_a_plan_has_it_all() -> None:
    config = preset("chairs")
    assert plan_at(0, config) == (2.5e-4 / 25, 12, True, 0, True)
