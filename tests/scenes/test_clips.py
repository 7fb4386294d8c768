"""What is true of every clip: the laws of pairs, extended to any two of its frames."""

import numpy as np
import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.geometry import compose
from gmaflow.scenes import SceneClip, SceneRenderer, TextureBank
from gmaflow.scenes.clip_params import ClipParams
from gmaflow.scenes.scene_params import _PER_FRAME
from gmaflow.scenes.sheet_geometry import power, rotation
from tests.scenes.conftest import KINDS, SIZE, inner, sample

FRAMES = 6
REFERENCE = 2


@pytest.fixture(scope="module")
def clips(bank: TextureBank) -> list[SceneClip]:
    """A clip of each kind, whose third frame is tracked."""
    return [
        SceneRenderer(kind, SIZE, 3, bank).render_clip(1, FRAMES, reference=REFERENCE)
        for kind in KINDS
    ]


def clear(clip: SceneClip, frame: int) -> torch.Tensor:
    """Tracked pixels away from edges in both frames."""
    identity = clip.identity
    there = sample(inner(identity[frame : frame + 1])[:, None].float(), tracks(clip, frame))[:, 0]
    return inner(identity[REFERENCE : REFERENCE + 1]) & (there > 0.999)


def tracks(clip: SceneClip, frame: int) -> torch.Tensor:
    return clip.tracks[frame : frame + 1]


def test_a_clip_begins_with_the_first_frame_of_its_pair(bank: TextureBank) -> None:
    renderer = SceneRenderer("mix", SIZE, 3, bank)
    for number in range(3):
        clip, pair = renderer.render_clip(number, 2), renderer.render(number, 1)
        assert torch.equal(clip.clean[:1], pair.clean1)
        assert torch.equal(clip.identity[:1], pair.identity1)


def test_a_frame_is_the_same_as_first_and_as_second(bank: TextureBank) -> None:
    params = ClipParams("glossy-drive", 3, 1, SIZE, bank)
    before, after = params.between(1, 2), params.between(2, 3)
    for name in set(_PER_FRAME) - {"across"}:  # this one is about two frames
        np.testing.assert_array_equal(before[name][:, 1], after[name][:, 0], err_msg=name)


def test_a_visible_pixel_has_its_colour_wherever_its_track_leads(clips: list[SceneClip]) -> None:
    for frame in range(FRAMES):
        errors = []
        for clip in clips:
            now = clip.clean[REFERENCE : REFERENCE + 1]
            then = sample(clip.clean[frame : frame + 1], tracks(clip, frame))
            kept = clear(clip, frame) & clip.visible[frame : frame + 1]
            errors.append((then - now).abs().amax(dim=1)[kept])
        error = torch.cat(errors)
        assert len(error) > 1000
        assert error.median() < 0.02
        assert error.quantile(0.9) < 0.12


def test_visible_pixels_find_their_object_and_hidden_ones_another(clips: list[SceneClip]) -> None:
    same, other = [], []
    for clip in clips:
        for frame in range(FRAMES):
            moved = tracks(clip, frame)
            there = sample(clip.identity[frame : frame + 1, None].float(), moved)[:, 0]
            equal = there.round() == clip.identity[REFERENCE : REFERENCE + 1]
            x = torch.arange(SIZE[1]) + moved[:, 0]
            y = torch.arange(SIZE[0])[:, None] + moved[:, 1]
            inside = (x >= 0) & (x <= SIZE[1] - 1) & (y >= 0) & (y <= SIZE[0] - 1)
            kept = clear(clip, frame) & inside & clip.known[frame : frame + 1]
            same.append(equal[kept & clip.visible[frame : frame + 1]])
            other.append(~equal[kept & ~clip.visible[frame : frame + 1]])
    assert torch.cat(same).float().mean() > 0.998
    assert len(torch.cat(other)) > 100
    assert torch.cat(other).float().mean() > 0.8  # a limb may hide its owner, with its number


def test_tracks_continue_with_the_flow_of_pairs(clips: list[SceneClip]) -> None:
    for clip in clips:
        assert (tracks(clip, REFERENCE) == 0).all()
        assert clip.visible[REFERENCE].all()
        np.testing.assert_allclose(clip.tracks[REFERENCE + 1], clip.flow[REFERENCE], atol=2e-4)
        assert torch.equal(clip.visible[REFERENCE + 1], ~clip.occluded[REFERENCE])
        for frame in range(REFERENCE + 1, FRAMES - 1):
            chained = compose(tracks(clip, frame), clip.flow[frame : frame + 1])
            kept = clear(clip, frame) & clip.visible[frame] & clip.known[frame + 1]
            away = (chained - tracks(clip, frame + 1)).norm(dim=1)[kept]
            assert not len(away) or away.median() < 1e-3
            assert not len(away) or away.quantile(0.98) < 0.05


def test_things_move_on_and_some_come_back(clips: list[SceneClip]) -> None:
    moved = torch.stack([clip.tracks[:, :, ::4, ::4].norm(dim=1).mean((1, 2)) for clip in clips])
    assert moved[:, FRAMES - 1].mean() > 1.5 * moved[:, REFERENCE + 1].mean()
    assert any((~clip.visible[3:-1] & clip.visible[4:]).any() for clip in clips)
    for clip in clips:
        assert clip.final.isfinite().all()
        assert clip.known.float().mean() > 0.9


def test_a_reference_changes_only_the_tracks(bank: TextureBank) -> None:
    renderer = SceneRenderer("film", SIZE, 3, bank)
    one, other = (renderer.render_clip(1, 4, reference=r) for r in (0, 3))
    assert torch.equal(one.final, other.final)
    assert torch.equal(one.flow, other.flow)
    back = sample(other.tracks[:1], one.tracks[3:]) + one.tracks[3:]
    assert back.norm(dim=1)[one.visible[3:]].median() < 1e-3


def test_part_of_a_rotation() -> None:
    angles = np.array([0.3, 0.0]), np.array([-0.2, 0.0]), np.array([0.5, 0.0])
    turn = rotation(*angles)
    half = power(turn, np.array([0.5, 0.5]))
    np.testing.assert_allclose(half @ half, turn, atol=1e-12)
    np.testing.assert_array_equal(half[1], np.eye(3))


def test_bad_requests_are_answered(bank: TextureBank) -> None:
    renderer = SceneRenderer("mix", SIZE, 1, bank)
    with pytest.raises(FlowError, match="1 frame has no motion; give at least 2"):
        renderer.render_clip(0, 1)
    with pytest.raises(FlowError, match="no frame 4; give one from 0 to 3"):
        renderer.render_clip(0, 4, reference=4)
