"""Changes of colour: brightness, contrast, saturation and hue, in any order."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

_STEPS = ("brightness", "contrast", "saturation", "hue")


@dataclass(frozen=True, kw_only=True)
class ColorJitter:
    """How far colours may change.

    Attributes:
        brightness: factors are drawn from 1 - this to 1 + this, and likewise the next two.
        contrast: towards or away from the mean grey.
        saturation: towards or away from the pixel's own grey.
        hue: shifts are drawn from -this to this; 1 is once around the colour wheel.
    """

    brightness: float
    contrast: float
    saturation: float
    hue: float


@dataclass(frozen=True, kw_only=True)
class ColorChange:
    """One change that was drawn: factors, a shift of hue, and the order in which they come."""

    brightness: float
    contrast: float
    saturation: float
    hue: float
    order: tuple[str, ...] = _STEPS


def draw_change(jitter: ColorJitter, rng: np.random.Generator) -> ColorChange:
    """Draw a change."""

    def factor(width: float) -> float:
        return float(rng.uniform(max(0.0, 1 - width), 1 + width))

    return ColorChange(
        brightness=factor(jitter.brightness),
        contrast=factor(jitter.contrast),
        saturation=factor(jitter.saturation),
        hue=float(rng.uniform(-jitter.hue, jitter.hue)),
        order=tuple(_STEPS[i] for i in rng.permutation(len(_STEPS))),
    )


def change_color(
    image: UInt8[np.ndarray, "h w 3"], change: ColorChange
) -> UInt8[np.ndarray, "h w 3"]:
    """Apply a change to an image."""
    from PIL import Image, ImageEnhance

    enhancers = {
        "brightness": ImageEnhance.Brightness,
        "contrast": ImageEnhance.Contrast,
        "saturation": ImageEnhance.Color,
    }
    picture = Image.fromarray(image)
    for step in change.order:
        if step == "hue":
            hue, saturation, value = picture.convert("HSV").split()
            shift = round(change.hue * 256) % 256
            hue = hue.point([(level + shift) % 256 for level in range(256)])
            picture = Image.merge("HSV", (hue, saturation, value)).convert("RGB")
        else:
            picture = enhancers[step](picture).enhance(getattr(change, step))
    return np.array(picture)


def jitter_pair(
    image1: UInt8[np.ndarray, "h w 3"],
    image2: UInt8[np.ndarray, "h w 3"],
    jitter: ColorJitter,
    rng: np.random.Generator,
    *,
    asymmetric: float,
) -> tuple[UInt8[np.ndarray, "h w 3"], UInt8[np.ndarray, "h w 3"]]:
    """Change the colours of a pair.

    Args:
        image1: the first frame.
        image2: the second frame.
        jitter: how far.
        rng: where randomness comes from.
        asymmetric: the probability that each frame is changed in its own way. Otherwise they change
            as one picture, so that even the mean grey of the contrast is shared.
    """
    if rng.random() < asymmetric:
        return (
            change_color(image1, draw_change(jitter, rng)),
            change_color(image2, draw_change(jitter, rng)),
        )
    both = change_color(np.concatenate([image1, image2]), draw_change(jitter, rng))
    return both[: len(image1)], both[len(image1) :]
