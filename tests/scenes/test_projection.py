"""One square before a plane, where every answer is known by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gmaflow.scenes import SceneBatch, TextureBank
from gmaflow.scenes.appearance_params import WHOLE
from gmaflow.scenes.projection import bend, of_layer, pixel_grid, unbend
from gmaflow.scenes.renderer import render_scenes
from gmaflow.scenes.scene_params import RenderPlan, Scenes, _rows, draw_scenes
from gmaflow.scenes.sheet_geometry import across, inverse
from gmaflow.scenes.signed_distance import outline_texels

ROWS, COLUMNS = 80, 100
EFFECTS = ("fog", "aperture", "lens_blur", "shutter", "noise", "compression")


def square_over_plane(
    bank: TextureBank, square: tuple[float, float], plane: tuple[float, float]
) -> SceneBatch:
    """A square of 20 x 20 pixels, columns 30 to 49 and rows 30 to 49, and what is behind it."""
    side = bank.outlines.shape[-1]
    axis = (torch.arange(2 * side) + 0.5) / side - 1
    mask = (axis.abs() < 0.5) & (axis.abs() < 0.5)[:, None]
    bank = replace(bank, outlines=torch.cat([bank.outlines, outline_texels(mask[None])]))
    first = np.array(
        [
            [[50.0, 0, 49.5], [0, 50, 39.5], [0, 0, 1]],
            [[20.0, 0, 39.5], [0, 20, 39.5], [0, 0, 1]],
        ]
    )
    second = first.copy()
    second[:, :2, 2] += [plane, square]
    first, second = first[None], second[None]
    arrays = {
        "to_canvas": _rows(inverse(first), inverse(second)),
        "to_frame": _rows(first, second),
        "across": _rows(across(first, second), across(second, first)),
        "wave": np.ones((1, 2, 3, 2)),
        "push": np.zeros((1, 2, 2, 2, 2)),
        "silhouette": np.array([[WHOLE, len(bank.outlines) - 1]]),
        "edge_width": np.ones((1, 2)),
        "identity": np.array([[0, 1]]),
        "texture": np.array([[0, 1]]),
        "mirrored": np.ones((1, 2)),
        "texture_map": np.broadcast_to(np.array([1.0, 0, 0, 0, 1, 0])[None, :, None], (1, 6, 2)),
        "paint": np.full((1, 3, 2), 0.5),
        "texture_share": np.ones((1, 2)),
        "reflectance": np.zeros((1, 2)),
        "reflection": np.zeros((1, 2)),
        "reflection_map": np.zeros((1, 2, 6, 2)),
        "gain": np.ones((1, 2, 2)),
        "highlight": np.zeros((1, 2, 2, 2)),
        "highlight_width": np.ones((1, 2)),
        "highlight_strength": np.zeros((1, 2)),
        "to_shadow": np.ones((1, 2, 6)) * [1, 0, 0, 0, 1, 0],
        "shadow_silhouette": np.array([WHOLE]),
        "shadow_softness": np.ones(1),
        "fog_colour": np.zeros((1, 3)),
        "colour_balance": np.ones((1, 2, 3)),
        "slope": np.zeros((1, 2, 2)),
        "number": np.zeros((1, 2)),
        **{name: np.ones((1, 2)) for name in ("brightness", "contrast", "saturation")},
        **{name: np.zeros(1) for name in ("shadow_strength", "focus", *EFFECTS)},
    }
    scenes = Scenes.from_arrays(arrays)
    return render_scenes(scenes, bank, (ROWS, COLUMNS), RenderPlan(layers=(0, 1)))


def box(top: int, left: int) -> torch.Tensor:
    mask = torch.zeros(ROWS, COLUMNS, dtype=torch.bool)
    mask[top : top + 20, left : left + 20] = True
    return mask


def test_the_square_covers_what_it_moves_over(bank: TextureBank) -> None:
    batch = square_over_plane(bank, square=(7.0, -4.0), plane=(0.0, 0.0))
    before, after = box(30, 30), box(26, 37)
    assert torch.equal(batch.identity1[0].bool(), before)
    assert torch.equal(batch.identity2[0].bool(), after)
    assert torch.equal(batch.occluded_in[0], after & ~before)
    assert torch.equal(batch.backward_occluded_in[0], before & ~after)
    assert not batch.occluded_out.any()
    expected = torch.tensor([7.0, -4.0])[:, None, None] * before
    torch.testing.assert_close(batch.flow[0], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(batch.backward[0, :, 26, 37], torch.tensor([-7.0, 4.0]))


def test_the_plane_leaves_the_frame(bank: TextureBank) -> None:
    batch = square_over_plane(bank, square=(0.0, 0.0), plane=(10.0, 0.0))
    expected = torch.zeros(ROWS, COLUMNS, dtype=torch.bool)
    expected[:, -9:] = True  # the tenth from the edge ends exactly at the frame's width
    assert torch.equal(batch.occluded_out[0], expected)
    hidden = box(30, 20) & ~box(30, 30)
    assert torch.equal(batch.occluded_in[0], hidden)
    assert (batch.flow[0][:, box(30, 30)] == 0).all()


def test_without_effects_final_is_clean(bank: TextureBank) -> None:
    batch = square_over_plane(bank, square=(3.0, 0.0), plane=(1.0, 0.0))
    torch.testing.assert_close(batch.final1, batch.clean1, atol=1 / 254, rtol=0)
    assert (batch.final2 == batch.clean2).float().mean() > 0.99


@pytest.mark.parametrize("shift", [(0.5, 0.25), (2.3, -1.7)])
def test_half_pixels_are_followed_too(bank: TextureBank, shift: tuple[float, float]) -> None:
    batch = square_over_plane(bank, square=shift, plane=(-0.4, 0.0))
    inside = box(30, 30)
    expected = torch.tensor(shift)[:, None].expand(-1, 400)
    torch.testing.assert_close(batch.flow[0][:, inside], expected, atol=1e-4, rtol=0)


def test_unbend_inverts_bend(bank: TextureBank) -> None:
    scenes = Scenes.from_arrays(draw_scenes("film", 1, np.arange(30), (48, 60), bank))
    grid = pixel_grid(41, 41, torch.device("cpu"))
    points = grid._replace(x=grid.x / 20 - 1, y=grid.y / 20 - 1)
    for layer in range(scenes.wave.shape[-1]):
        for frame in (0, 1):
            wave = of_layer(scenes.wave, layer)
            push = of_layer(scenes.push[:, frame], layer)
            back = unbend(wave, push, bend(wave, push, points))
            assert (back.x - points.x).abs().max() < 2e-6
            assert (back.y - points.y).abs().max() < 2e-6
    assert (scenes.push != 0).any()
