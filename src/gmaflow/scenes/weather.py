"""Light, air and lens of a scene: what tells `final` frames from `clean` ones."""

import numpy as np

from gmaflow.scenes.dice import Array, Dice
from gmaflow.scenes.presets import Traits
from gmaflow.scenes.textures import TextureBank


def draw_shadow(
    traits: Traits[Array], dice: Dice, size: tuple[int, int], bank: TextureBank
) -> dict[str, Array]:
    """A soft shadow of some silhouette that moves by itself."""
    shapes = bank.shapes["solid"]
    silhouette = shapes.start + dice.index(len(shapes))
    half = dice.log_between(0.3, 1.2) * size[0]
    angle = dice.between(0.0, 2 * np.pi)
    place = dice.uniform(2) * np.array([size[1], size[0]])
    strength = np.where(dice.chance(traits.shadow), dice.between(0.15, 0.6), 0.0)
    softness = dice.log_between(1.0, 8.0)
    frames = []
    for _ in range(2):
        c, s = np.cos(angle) / half, np.sin(angle) / half
        x, y = place.T
        frames.append(np.stack([c, s, -c * x - s * y, -s, c, s * x - c * y], axis=-1))
        place = place + dice.normal(2) * 0.05 * size[0]
        angle = angle + 0.05 * dice.normal()
    return {
        "to_shadow": np.stack(frames, axis=1),
        "shadow_silhouette": silhouette,
        "shadow_strength": strength,
        "shadow_softness": softness,
    }


def draw_light(traits: Traits[Array], dice: Dice) -> dict[str, Array]:
    """Brightness and colour of both frames, partly shared."""
    # Brightness, contrast, saturation, red, green and blue as logarithms; the slope (x, y) plain.
    shared = dice.normal(8) * np.array([0.2, 0.15, 0.2, 0.06, 0.06, 0.06, 0.1, 0.1])
    differs = dice.chance(0.4)[:, None] * traits.colour_change[:, None]
    frames = []
    for _ in range(2):
        own = dice.normal(8) * np.array([0.25, 0.2, 0.2, 0.06, 0.06, 0.06, 0.1, 0.1])
        values = np.clip(shared + own * differs, -0.7, 0.7)
        frames.append((np.exp(values[:, :6]), values[:, 6:]))
    factors, slope = (np.stack(both, axis=1) for both in zip(*frames, strict=True))
    brightness, contrast, saturation, *balance = np.moveaxis(factors, -1, 0)
    return {
        "brightness": brightness,
        "contrast": contrast,
        "saturation": saturation,
        "colour_balance": np.stack(balance, axis=-1),
        "slope": slope,
    }


def draw_air(
    traits: Traits[Array], dice: Dice, size: tuple[int, int], depths: tuple[Array, Array]
) -> dict[str, Array]:
    """Fog, focus, blur by the lens and by motion, noise and compression."""
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
    lens_blur = np.where(dice.chance(traits.blur), dice.between(0.2, 1.4), 0.0)
    shutter = np.where(dice.chance(traits.motion_blur), dice.between(0.15, 0.8), 0.0)
    noise = np.where(dice.chance(traits.noise), dice.log_between(0.004, 0.06), 0.0)
    compression = np.where(dice.chance(traits.compression), dice.log_between(0.01, 0.12), 0.0)
    return {
        "fog": fog,
        "fog_colour": colour,
        "focus": focus,
        "aperture": aperture,
        "lens_blur": lens_blur,
        "shutter": shutter,
        "noise": noise,
        "compression": compression,
    }
