from dataclasses import fields

import numpy as np
import torch

from gmaflow.scenes import TextureBank
from gmaflow.scenes.scene_params import Scenes, draw_scenes


def test_time_reversed_swaps_what_is_given_for_each_frame_and_that_alone(bank: TextureBank) -> None:
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
