from dataclasses import fields

import numpy as np
import torch

from gmaflow.scenes import TextureBank
from gmaflow.scenes.scene_layout import BACKGROUND_LAYERS, STREET
from gmaflow.scenes.scene_params import Scenes, draw_motion, draw_scenes


def test_reversing_time_swaps_only_the_parameters_of_frames(bank: TextureBank) -> None:
    scenes = Scenes.from_arrays(draw_scenes("film", 1, np.arange(8), (48, 60), bank))
    backward = scenes.reversed()
    for field in fields(Scenes):
        before, after = getattr(scenes, field.name), getattr(backward, field.name)
        if "frame=2" in field.type.dim_str:  # type: ignore[union-attr]
            assert torch.equal(after, before.flip(1)), field.name
        elif field.name != "number":
            assert torch.equal(after, before), field.name
    assert (backward.number != scenes.number).any(dim=1).all()


def test_packing_keeps_every_parameter(bank: TextureBank) -> None:
    arrays = draw_scenes("mix", 2, np.arange(3), (48, 60), bank)
    assert set(arrays) == {field.name for field in fields(Scenes)}
    scenes = Scenes.from_arrays(arrays)
    for name, array in arrays.items():
        assert np.array_equal(getattr(scenes, name).numpy(), array.astype(np.float32)), name


def test_most_upright_objects_of_fast_drive_stand_along_the_street(bank: TextureBank) -> None:
    def share(preset: str) -> float:
        """Share of the objects that are much longer in depth than across."""
        _, motion = draw_motion(preset, 1, np.arange(400), (375, 1242), bank)
        right = motion.sheets.right[motion.kind == STREET][:, BACKGROUND_LAYERS:]
        return float((np.abs(right[..., 2]) > np.abs(right[..., 0])).mean())

    assert share("drive") < 0.05
    assert 0.3 < share("fast-drive") < 0.6
