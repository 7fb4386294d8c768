"""What is true of every scene, tested on random ones of every kind."""

import numpy as np
import pytest
import torch

from gmaflow.scenes import SceneBatch, TextureBank
from gmaflow.scenes.projection import add_sheet, initial_layers, make_sheets, pixel_grid
from gmaflow.scenes.scene_params import RenderPlan, Scenes, draw_scenes
from tests.scenes.conftest import KINDS, SIZE, comparable, inner, sample

every_kind = pytest.mark.parametrize("kind", KINDS)
both_ways = pytest.mark.parametrize("backward", [False, True])


def run(batch: SceneBatch, *, backward: bool) -> SceneBatch:
    """Let time run the way that is asked for."""
    return batch.reversed() if backward else batch


@every_kind
@both_ways
def test_a_visible_pixel_has_its_colour_at_its_target(
    kind: str, backward: bool, batches: dict[str, SceneBatch]
) -> None:
    batch = run(batches[kind], backward=backward)
    error = (sample(batch.clean2, batch.flow) - batch.clean1).abs().amax(dim=1)
    error = error[comparable(batch)]
    # What is left is interpolation, of textures as fine as the pixels.
    assert error.median() < 0.02
    assert error.quantile(0.9) < 0.1
    assert error.quantile(0.99) < 0.25


@every_kind
def test_a_wrong_flow_would_be_noticed(kind: str, batches: dict[str, SceneBatch]) -> None:
    batch = batches[kind]
    right = (sample(batch.clean2, batch.flow) - batch.clean1).abs().amax(dim=1)
    wrong = (sample(batch.clean2, batch.flow + 1.5) - batch.clean1).abs().amax(dim=1)
    visible = comparable(batch)
    assert wrong[visible].mean() > 2.5 * right[visible].mean()


@every_kind
def test_backward_flow_undoes_forward_flow(kind: str, batches: dict[str, SceneBatch]) -> None:
    batch = batches[kind]
    left = (sample(batch.backward, batch.flow) + batch.flow).norm(dim=1)[comparable(batch)]
    # Interpolating the backward flow costs the little that there is; an edge between an object
    # and its own limb, which share a number, the rest.
    assert left.median() < 1e-3
    assert left.quantile(0.99) < 0.05


@every_kind
@both_ways
def test_visible_pixels_find_their_object_and_hidden_ones_another(
    kind: str, backward: bool, batches: dict[str, SceneBatch]
) -> None:
    batch = run(batches[kind], backward=backward)
    height, width = SIZE
    x = (torch.arange(width) + batch.flow[:, 0]).round().long().clamp(0, width - 1)
    y = (torch.arange(height)[:, None] + batch.flow[:, 1]).round().long().clamp(0, height - 1)
    there = batch.identity2.flatten(1).gather(1, (y * width + x).flatten(1)).view_as(x)
    same = there == batch.identity1
    clear = inner(batch.identity2).flatten(1).gather(1, (y * width + x).flatten(1)).view_as(x)
    # A thing thinner than a pixel can be seen exactly at the target and at no pixel around it.
    assert same[clear & ~batch.occluded & batch.valid].float().mean() > 0.998
    # Hidden by another object; a limb may hide its owner, which has the same number.
    assert (~same)[clear & batch.occluded_in].float().mean() > 0.8


@every_kind
@both_ways
def test_out_of_frame_means_that_the_target_is_outside(
    kind: str, backward: bool, batches: dict[str, SceneBatch]
) -> None:
    batch = run(batches[kind], backward=backward)
    height, width = SIZE
    x = torch.arange(width) + batch.flow[:, 0]
    y = torch.arange(height)[:, None] + batch.flow[:, 1]
    outside = (x < 0) | (x > width) | (y < 0) | (y > height)
    assert torch.equal(batch.occluded_out, outside | ~batch.valid)
    assert not (batch.occluded_in & batch.occluded_out).any()
    assert torch.equal(batch.occluded, batch.occluded_in | batch.occluded_out)


@every_kind
def test_everything_is_finite_and_quantised(kind: str, batches: dict[str, SceneBatch]) -> None:
    batch = batches[kind]
    for image in (batch.clean1, batch.clean2, batch.final1, batch.final2):
        assert image.min() >= 0
        assert image.max() <= 1
        assert ((image * 255) - (image * 255).round()).abs().max() < 1e-4
        assert image.std() > 0.05
    assert batch.flow.isfinite().all()
    assert batch.backward.isfinite().all()
    assert batch.valid.float().mean() > 0.97


@every_kind
def test_still_pairs_have_no_flow_at_all(kind: str, batches: dict[str, SceneBatch]) -> None:
    batch = batches[kind]
    still = batch.flow.abs().amax(dim=(1, 2, 3)) == 0
    assert still.any(), "the seed was chosen to have one"
    assert (batch.backward[still] == 0).all()
    assert torch.equal(batch.clean1[still], batch.clean2[still])
    assert not batch.occluded[still].any()


@every_kind
def test_nothing_shines_through_away_from_edges(kind: str, bank: TextureBank) -> None:
    scenes = Scenes.from_arrays(draw_scenes(kind, 3, np.arange(24), SIZE, bank))
    pixels = pixel_grid(*SIZE, torch.device("cpu"))
    visible = initial_layers(scenes, pixels)
    for sheet in make_sheets(scenes, bank.outlines, RenderPlan().layers):
        visible = add_sheet(
            sheet._replace(edge_width=torch.ones_like(sheet.edge_width)), pixels, visible
        )
    mixed = (visible.cover > 0.02) & (visible.cover < 0.98) & inner(visible.shown)
    # What remains are things thinner than a pixel, which no pixel's centre shows.
    assert mixed.float().mean() < 0.01
