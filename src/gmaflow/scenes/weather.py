"""Light, air and lens of a scene: what tells `final` frames from `clean` ones."""

import numpy as np

from gmaflow.scenes.dice import Array, Dice
from gmaflow.scenes.presets import Traits
from gmaflow.scenes.textures import TextureBank


def draw_shadow(
    traits: Traits[Array], dice: Dice, size: tuple[int, int], bank: TextureBank
) -> Array:
    """A soft shadow of some silhouette that moves by itself, `[b, 2, 9]`."""
    shapes = bank.shapes["solid"]
    shape = shapes.start + dice.index(len(shapes))
    half = dice.log_between(0.3, 1.2) * size[0]
    angle = dice.between(0.0, 2 * np.pi)
    place = dice.uniform(2) * np.array([size[1], size[0]])
    strength = np.where(dice.chance(traits.shadow), dice.between(0.15, 0.6), 0.0)
    softness = dice.log_between(1.0, 8.0)
    frames = []
    for _ in range(2):
        c, s = np.cos(angle) / half, np.sin(angle) / half
        x, y = place.T
        frames.append(
            np.stack(
                [c, s, -c * x - s * y, -s, c, s * x - c * y, strength, softness, shape], axis=-1
            )
        )
        place = place + dice.normal(2) * 0.05 * size[0]
        angle = angle + 0.05 * dice.normal()
    return np.stack(frames, axis=1)


def draw_light(traits: Traits[Array], dice: Dice) -> Array:
    """Exposure and colour of both frames, partly shared, `[b, 2, 8]`."""
    shared = dice.normal(8) * np.array([0.2, 0.15, 0.2, 0.06, 0.06, 0.06, 0.1, 0.1])
    differs = dice.chance(0.4)[:, None] * traits.colour_change[:, None]
    frames = []
    for _ in range(2):
        own = dice.normal(8) * np.array([0.25, 0.2, 0.2, 0.06, 0.06, 0.06, 0.1, 0.1])
        values = np.clip(shared + own * differs, -0.7, 0.7)
        frames.append(np.concatenate([np.exp(values[:, :6]), values[:, 6:]], axis=1))
    return np.stack(frames, axis=1)


def draw_air(
    traits: Traits[Array], dice: Dice, size: tuple[int, int], depths: tuple[Array, Array]
) -> Array:
    """Fog, focus, blur, exposure time, noise and compression, `[b, 10]`."""
    near, far = depths
    grey = dice.between(0.3, 0.95)
    colour = np.clip(grey[:, None] + 0.06 * dice.normal(3), 0, 1)
    # Half of the light is lost somewhere between the nearest thing and the backdrop.
    half_way = dice.log_between(near, far)
    fog = np.where(dice.chance(traits.fog), 0.7 / half_way, 0.0)
    focus = 1 / dice.log_between(near, far)
    aperture = np.where(
        dice.chance(traits.defocus), dice.between(0.5, 4.0) * size[0] / 400 * near, 0.0
    )
    blur = np.where(dice.chance(traits.blur), dice.between(0.2, 1.4), 0.0)
    exposure = np.where(dice.chance(traits.motion_blur), dice.between(0.15, 0.8), 0.0)
    noise = np.where(dice.chance(traits.noise), dice.log_between(0.004, 0.06), 0.0)
    compression = np.where(dice.chance(traits.compression), dice.log_between(0.01, 0.12), 0.0)
    rest = [focus, aperture, blur, exposure, noise, compression]
    return np.concatenate([fog[:, None], colour, np.stack(rest, axis=-1)], axis=1)
