"""Each effect by itself: what it changes and what it leaves unchanged."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from gmaflow.scenes import TextureBank
from gmaflow.scenes.photometric_effects import (
    add_noise,
    cast_shadow,
    compress,
    defocus,
    dim_by_fog,
    expose,
    motion_blur,
)
from gmaflow.scenes.projection import Surface, find_surface, pixel_grid
from gmaflow.scenes.render_steps import reflect
from gmaflow.scenes.scene_layout import BACKGROUND_LAYERS
from gmaflow.scenes.scene_params import Scenes, draw_scenes

SIZE = (48, 60)
EFFECTS = (
    "reflectance", "shadow_strength", "fog", "fog_colour", "focus", "aperture", "lens_blur",
    "shutter", "noise", "compression",
)  # fmt: skip


@pytest.fixture(scope="module")
def scenes(bank: TextureBank) -> Scenes:
    """Two scenes without any effect."""
    drawn = Scenes.from_arrays(draw_scenes("film", 1, np.arange(2), SIZE, bank))
    return with_all(drawn, **dict.fromkeys(EFFECTS, 0.0))


@pytest.fixture
def image() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(2, 3, 12, 15, generator=generator)
    return torch.nn.functional.interpolate(coarse, size=SIZE, mode="bilinear")


def with_all(scenes: Scenes, **values: float) -> Scenes:
    """The scenes with these parameters set to one value each."""
    filled = {name: torch.full_like(getattr(scenes, name), v) for name, v in values.items()}
    return replace(scenes, **filled)


def backdrop(scenes: Scenes) -> Surface:
    layer = torch.zeros(2, *SIZE, dtype=torch.long)
    return find_surface(scenes, pixel_grid(*SIZE, torch.device("cpu")), layer)


def test_effects_of_no_strength_change_no_bit(
    scenes: Scenes, bank: TextureBank, image: Tensor
) -> None:
    pixels = pixel_grid(*SIZE, torch.device("cpu"))
    surface = backdrop(scenes)
    flow = torch.full((2, 2, *SIZE), 9.0)
    assert torch.equal(reflect(scenes, bank, pixels, surface, image), image)
    assert torch.equal(cast_shadow(scenes, bank.outlines, pixels, image), image)
    assert torch.equal(defocus(scenes, surface, image), image)
    assert torch.equal(motion_blur(scenes, pixels, flow, surface.layer, image), image)
    assert torch.equal(add_noise(scenes, image), image)
    assert torch.equal(compress(scenes, image), image)
    torch.testing.assert_close(dim_by_fog(scenes, surface, image), image)


def test_reflections_move_by_themselves(scenes: Scenes, bank: TextureBank, image: Tensor) -> None:
    pixels = pixel_grid(*SIZE, torch.device("cpu"))
    mirror = with_all(scenes, reflectance=1.0)
    here, there = mirror.reflection_map[:, 0].clone(), mirror.reflection_map[:, 0].clone()
    # In the second frame the picture has moved by 5 px to the right and 3 px down.
    there[:, 2] -= 5 * here[:, 0] + 3 * here[:, 1]
    there[:, 5] -= 5 * here[:, 3] + 3 * here[:, 4]
    mirror = replace(mirror, reflection_map=torch.stack([here, there], dim=1))
    shown = reflect(mirror, bank, pixels, backdrop(mirror), image)
    moved = reflect(mirror.reversed(), bank, pixels, backdrop(mirror.reversed()), image)
    assert shown.std() > 0.01  # the frame shows the picture, not its own surface
    assert not torch.allclose(shown, image, atol=0.05)
    torch.testing.assert_close(moved[..., 3:, 5:], shown[..., :-3, :-5], atol=1e-3, rtol=0)


def test_glossy_objects_differ_from_matt_ones_only_in_colour(bank: TextureBank) -> None:
    matt, glossy = (
        draw_scenes(kind, 5, np.arange(12), SIZE, bank) for kind in ("fast-drive", "glossy-drive")
    )
    colour = {"reflectance", "texture_share"}
    same = {name for name in matt if np.array_equal(matt[name], glossy[name])}
    assert set(matt) - same == colour
    assert matt["reflectance"].max() == 0
    objects = glossy["reflectance"][:, BACKGROUND_LAYERS:]
    assert 0.4 < (objects > 0).mean() < 0.8
    assert glossy["reflectance"][:, :BACKGROUND_LAYERS].max() == 0


def test_motion_blur_follows_the_motion(scenes: Scenes) -> None:
    pixels = pixel_grid(*SIZE, torch.device("cpu"))
    layer = torch.zeros(2, *SIZE, dtype=torch.long)
    line = torch.zeros(2, 3, *SIZE)
    line[..., 30] = 1
    along = torch.zeros(2, 2, *SIZE)
    along[:, 0] = 6
    exposed = with_all(scenes, shutter=1.0)
    smeared = motion_blur(exposed, pixels, along, layer, line)
    assert smeared[..., 20, 28:33].min() > 0.05
    assert smeared[..., 20, :25].max() == 0
    assert smeared[..., 20, 36:].max() == 0
    torch.testing.assert_close(smeared.sum(), line.sum(), rtol=0.1, atol=0)
    # Half as long a shutter, half as long a streak: 3 px, with half of it on either side.
    shorter = motion_blur(with_all(scenes, shutter=0.5), pixels, along, layer, line)
    assert shorter[..., 20, 29:32].min() > 0.1
    assert shorter[..., 20, :28].max() == 0
    assert shorter[..., 20, 33:].max() == 0
    assert torch.equal(motion_blur(exposed, pixels, along.flip(1), layer, line), line)


def test_motion_blur_smears_only_what_moves(scenes: Scenes) -> None:
    pixels = pixel_grid(*SIZE, torch.device("cpu"))
    layer = torch.zeros(2, *SIZE, dtype=torch.long)
    layer[:, 10:30, 20:40] = 1
    picture = layer[:, None].expand(-1, 3, -1, -1).float() * 0.8 + 0.1
    flow = torch.zeros(2, 2, *SIZE)
    flow[:, 0] = torch.where(layer == 1, 6.0, 0.0)
    smeared = motion_blur(with_all(scenes, shutter=1.0), pixels, flow, layer, picture)
    edge = smeared[0, 0, 20, 16:25]
    assert edge[0] == pytest.approx(0.1)
    assert edge[-1] == pytest.approx(0.9)
    assert 0.3 < edge[4] < 0.7
    assert torch.equal(smeared[:, :, 35:], picture[:, :, 35:])


def test_noise_is_near_normal_and_differs_between_frames(scenes: Scenes) -> None:
    grey = torch.full((2, 3, *SIZE), 0.5)
    noisy = with_all(scenes, noise=0.05)
    first, second = add_noise(noisy, grey) - 0.5, add_noise(noisy.reversed(), grey) - 0.5
    assert first.std().item() == pytest.approx(0.05, rel=0.05)
    assert abs(first.mean().item()) < 0.002
    for other in (second, first.flip(0), first.roll(1, 3), first.roll(1, 1)):
        assert abs((first * other).mean().item()) < 0.05**2 * 0.05


def test_compression_rounds_frequencies(scenes: Scenes, image: Tensor) -> None:
    slight = compress(with_all(scenes, compression=1e-4), image)
    torch.testing.assert_close(slight, image, atol=1e-2, rtol=0)
    strong = compress(with_all(scenes, compression=0.1), image)
    assert 0.005 < (strong - image).abs().mean() < 0.1
    flat = torch.full_like(image, 0.5)
    assert compress(with_all(scenes, compression=0.1), flat).std() < 1e-6


def test_fog_hides_what_is_far(scenes: Scenes, image: Tensor) -> None:
    surface = backdrop(scenes)
    thick = dim_by_fog(with_all(scenes, fog=10.0), surface, image)
    assert thick.abs().max() < 1e-6  # the fog's colour is black here


def test_blur_and_exposure(scenes: Scenes, image: Tensor) -> None:
    surface = backdrop(scenes)
    sharp = torch.rand(image.shape, generator=torch.Generator().manual_seed(1))
    assert defocus(with_all(scenes, lens_blur=2.0), surface, sharp).std() < 0.4 * sharp.std()
    pixels = pixel_grid(*SIZE, torch.device("cpu"))
    neutral = with_all(
        scenes, brightness=1.0, contrast=1.0, saturation=1.0, colour_balance=1.0, slope=0.0
    )
    torch.testing.assert_close(expose(neutral, pixels, image), image)
    brighter = with_all(neutral, brightness=1.5)
    torch.testing.assert_close(expose(brighter, pixels, image), 1.5 * image)
