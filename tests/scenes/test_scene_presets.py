"""The presets keep what they promise; the numbers are of a frame with 400 rows."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from gmaflow.scenes import PRESETS, SceneRenderer, TextureBank
from gmaflow.scenes.scene_presets import KINDS, PRESET_INFO, Traits

# Mean motion in pixels, motion that one pixel in a hundred exceeds, share of occluded pixels.
PROMISED = {
    "chairs": ((384, 512), (5, 16), (40, 160), (0.03, 0.12)),
    "things": ((540, 960), (16, 45), (90, 350), (0.06, 0.18)),
    "film": ((436, 1024), (7, 20), (50, 220), (0.03, 0.12)),
    "chase": ((436, 1024), (20, 70), (130, 500), (0.08, 0.3)),
    "drive": ((375, 1242), (17, 42), (90, 330), (0.09, 0.24)),
    "fast-drive": ((375, 1242), (27, 60), (200, 500), (0.12, 0.3)),
    "mix": ((368, 496), (7, 22), (50, 220), (0.06, 0.18)),
    "fast-mix": ((368, 768), (10, 35), (70, 300), (0.06, 0.2)),
    "deep-film": ((436, 1024), (10, 35), (80, 350), (0.09, 0.2)),
    "deep-chase": ((436, 1024), (16, 50), (150, 500), (0.1, 0.22)),
    "deep-mix": ((368, 768), (10, 35), (70, 350), (0.08, 0.2)),
}


@pytest.mark.parametrize("preset", PROMISED)
def test_motion_and_occlusion_are_as_promised(preset: str, bank: TextureBank) -> None:
    size, mean, tail, occluded = PROMISED[preset]
    smaller = size[0] / 48
    batch = SceneRenderer(preset, (48, round(size[1] / smaller)), 3, bank).render(0, 64)
    motion = batch.flow.norm(dim=1) * smaller
    assert mean[0] < motion.mean() < mean[1]
    assert tail[0] < np.quantile(motion.numpy(), 0.99) < tail[1]
    assert occluded[0] < batch.occluded.float().mean() < occluded[1]
    if preset.startswith("deep-"):
        inside, outside = (m.float().mean() for m in (batch.occluded_in, batch.occluded_out))
        assert inside > 0.06
        assert inside > outside
    of_pairs = motion.mean(dim=(1, 2))
    assert of_pairs.min() == 0, "some pair stands still"
    assert of_pairs.quantile(0.9) > 4 * of_pairs.quantile(0.3).clamp_max(2)


def test_some_motion_is_of_hundreds_of_pixels(bank: TextureBank) -> None:
    batch = SceneRenderer("mix", (46, 62), 2, bank).render(0, 64)
    fastest = (batch.flow.norm(dim=1) * 8).amax(dim=(1, 2))
    assert fastest.quantile(0.9) > 120
    assert fastest.max() > 200


def test_motion_grows_with_the_frame(bank: TextureBank) -> None:
    small = SceneRenderer("film", (48, 64), 4, bank).render(0, 8).flow
    large = SceneRenderer("film", (96, 128), 4, bank).render(0, 8).flow
    torch.testing.assert_close(
        large.norm(dim=1).mean(), 2 * small.norm(dim=1).mean(), rtol=0.05, atol=0.01
    )


def test_every_kind_is_used_and_every_trait_is_sane() -> None:
    assert {kind for shares in PRESETS.values() for kind in shares} == set(KINDS)
    for shares in PRESETS.values():
        assert sum(shares.values()) == pytest.approx(1)
    for traits in KINDS.values():
        assert all(getattr(traits, field.name) >= 0 for field in fields(Traits))
        assert traits.open_set + traits.ground_set + traits.street_set == pytest.approx(1)
        assert traits.strain < 0.5, "a steeper bend would fold the sheet's edges over"


def test_objects_parts_and_scenery_all_appear(bank: TextureBank) -> None:
    batch = SceneRenderer("film", (64, 96), 1, bank).render(0, 40)
    numbers = batch.identity1.flatten(1)
    assert (numbers == 0).any()
    assert (numbers > 3).any(dim=1).float().mean() > 0.8


def test_every_preset_is_described() -> None:
    assert list(PRESET_INFO) == list(PRESETS)
