import re
from dataclasses import asdict

import pytest

from gmaflow.data import MIXTURES
from gmaflow.errors import TrainingError
from gmaflow.training import PRESETS, preset
from gmaflow.training.presets import summary

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
def test_what_is_optional_is_off(name: str) -> None:
    config = preset(name)
    assert config.occluded_from == config.ema == 0
    assert config.accumulate == 1
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
