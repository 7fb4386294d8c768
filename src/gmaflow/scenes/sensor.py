"""What the camera makes of the light: exposure, colour, noise and compression."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from gmaflow.scenes.follow import Points
from gmaflow.scenes.scene import Scenes

Image = Float[Tensor, "b 3 h w"]

_LUMA = (0.299, 0.587, 0.114)


def expose(scenes: Scenes, pixels: Points, image: Image) -> Image:
    """Exposure, contrast, saturation, white balance, and light uneven across the frame."""
    brightness, contrast, saturation = (
        parameter[:, :1, None, None]
        for parameter in (scenes.brightness, scenes.contrast, scenes.saturation)
    )
    balance = scenes.colour_balance[:, 0, :, None, None]
    slope_x, slope_y = scenes.slope[:, 0, :, None, None].unbind(1)
    height, width = image.shape[2:]
    slope = 1 + slope_x * (pixels.x / width - 0.5) + slope_y * (pixels.y / height - 0.5)
    grey = _weighted(image, _LUMA)
    image = grey + (image - grey) * saturation
    image = (image - 0.5) * contrast + 0.5
    return image * (brightness * balance * slope[:, None])


def _weighted(image: Image, weights: tuple[float, float, float]) -> Float[Tensor, "b 1 h w"]:
    red, green, blue = image[:, 0:1], image[:, 1:2], image[:, 2:3]
    return red * weights[0] + (green * weights[1] + blue * weights[2])


def add_noise(scenes: Scenes, image: Image) -> Image:
    """Noise that is near normal, a little stronger where it is bright, other in each frame."""
    channels, height, width = image.shape[1:]
    count = channels * height * width
    place = torch.arange(count, device=image.device).view(1, channels, height, width)
    high, low = scenes.number.long().unbind(1)
    key = (high * 65536 + low)[:, None, None, None]
    bits = _scramble(_scramble(place) ^ key)
    # The sum of a word's four bytes has mean 510 and standard deviation 147.8.
    four = (bits & 255) + ((bits >> 8) & 255) + ((bits >> 16) & 255) + (bits >> 24)
    normal = (four - 510).float() * (1 / 147.8)
    strength = scenes.noise[:, None, None, None]
    return image + normal * (strength * (0.6 + 0.8 * image.clamp(0, 1)))


def _scramble(bits: Tensor) -> Tensor:
    """Mix 32-bit words held in 64-bit integers (Ettinger's triple-free low-bias hash)."""
    mask = 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & mask
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & mask
    return bits ^ (bits >> 16)


def compress(scenes: Scenes, image: Image) -> Image:
    """Round the frame's 8 x 8 cosine transform as JPEG does, colour more coarsely than light."""
    height, width = image.shape[2:]
    padded = F.pad(image, (0, -width % 8, 0, -height % 8), mode="replicate")
    grey = _weighted(padded, _LUMA)
    planes = torch.cat([grey, padded[:, 0:1] - grey, padded[:, 2:3] - grey], dim=1)
    rows, columns = planes.shape[2] // 8, planes.shape[3] // 8
    blocks = planes.reshape(-1, 3, rows, 8, columns, 8)
    frequency = torch.arange(8, device=image.device, dtype=torch.float32)
    coarser = 1 + 0.4 * (frequency[:, None, None] + frequency)
    plane = (1 + frequency[:3].clamp_max(1)).view(1, 3, 1, 1, 1, 1)  # colour twice as coarse
    strength = scenes.compression.view(-1, 1, 1, 1, 1, 1)
    step = strength.clamp_min(1e-6) * plane * coarser
    spectrum = _cosines(_cosines(blocks, 3), 5)
    rounded = (spectrum / step).round() * step
    planes = _inverse_cosines(_inverse_cosines(rounded, 3), 5).flatten(4, 5).flatten(2, 3)
    planes = planes[:, :, :height, :width]
    grey, red, blue = (
        planes[:, 0:1],
        planes[:, 1:2] + planes[:, 0:1],
        planes[:, 2:3] + planes[:, 0:1],
    )
    green = (grey - _LUMA[0] * red - _LUMA[2] * blue) * (1 / _LUMA[1])
    packed = torch.cat([red, green, blue], dim=1)
    return torch.where(strength.view(-1, 1, 1, 1) > 0, packed, image)


# The eight-point cosine transform, written out: even terms need only the sums of opposite samples,
# odd ones only their differences. A matrix product would be shorter, but its bits may depend on how
# many blocks there are.
_BASIS = [
    [
        math.sqrt((1 if u == 0 else 2) / 8) * math.cos((2 * k + 1) * u * math.pi / 16)
        for k in range(4)
    ]
    for u in range(8)
]


def _cosines(blocks: Tensor, axis: int) -> Tensor:
    samples = blocks.unbind(axis)
    sums = [samples[k] + samples[7 - k] for k in range(4)]
    differences = [samples[k] - samples[7 - k] for k in range(4)]
    terms = [
        _combine(differences if u % 2 else sums, [_BASIS[u][k] for k in range(4)]) for u in range(8)
    ]
    return torch.stack(terms, dim=axis)


def _inverse_cosines(spectrum: Tensor, axis: int) -> Tensor:
    terms = spectrum.unbind(axis)
    even = [_combine(terms[0::2], [_BASIS[u][k] for u in (0, 2, 4, 6)]) for k in range(4)]
    odd = [_combine(terms[1::2], [_BASIS[u][k] for u in (1, 3, 5, 7)]) for k in range(4)]
    first = [e + o for e, o in zip(even, odd, strict=True)]
    last = [e - o for e, o in zip(even, odd, strict=True)]
    return torch.stack([*first, *reversed(last)], dim=axis)


def _combine(parts: list[Tensor] | tuple[Tensor, ...], weights: list[float]) -> Tensor:
    a, b, c, d = (part * weight for part, weight in zip(parts, weights, strict=True))
    return (a + b) + (c + d)
