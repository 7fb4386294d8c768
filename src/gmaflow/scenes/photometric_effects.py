"""Effects of light, lens and sensor that turn a `clean` frame into a `final` one."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from gmaflow.scenes.projection import MIN_INVERSE_DEPTH, HomogeneousPoints, Surface, of_pixels
from gmaflow.scenes.scene_params import Scenes
from gmaflow.scenes.signed_distance import outline_distance

Image = Float[Tensor, "b 3 h w"]

TAPS = 9
"""Samples of motion blur along the motion."""
MAX_STREAK = 0.16
"""Longest streak of motion blur, as a share of the rows."""
_LUMA = (0.299, 0.587, 0.114)


def shade(scenes: Scenes, surface: Surface, image: Image) -> Image:
    """Apply the gain and the highlight of every layer; highlights move over the surface."""
    layer = surface.layer
    x, y = of_pixels(scenes.highlight[:, 0], layer).unbind(1)
    dx, dy = surface.canvas.x - x, surface.canvas.y - y
    width = of_pixels(scenes.highlight_width, layer)
    strength = of_pixels(scenes.highlight_strength, layer)
    highlight = strength * torch.exp(-(dx * dx + dy * dy) / (width * width))
    gain = of_pixels(scenes.gain[:, 0], layer)
    return image * gain[:, None] + highlight[:, None]


def cast_shadow(scenes: Scenes, outlines: Tensor, pixels: HomogeneousPoints, image: Image) -> Image:
    """Darken the frame in the shadow of a moving silhouette."""
    a, b, c, d, e, f = scenes.to_shadow[:, 0, :, None, None].unbind(1)
    x = a * pixels.x + (b * pixels.y + c)
    y = d * pixels.x + (e * pixels.y + f)
    shapes = outline_distance(outlines[scenes.shadow_silhouette.long()])[:, None]
    distance = F.grid_sample(
        shapes, torch.stack([x, y], dim=-1), padding_mode="border", align_corners=False
    )[:, 0]
    strength, softness = (
        parameter[:, None, None] for parameter in (scenes.shadow_strength, scenes.shadow_softness)
    )
    dark = (0.5 + 0.5 * distance / softness).clamp(0, 1) * strength
    return image * (1 - dark)[:, None]


def dim_by_fog(scenes: Scenes, surface: Surface, image: Image) -> Image:
    """Blend in the colour of the fog according to depth."""
    density = scenes.fog[:, None, None]
    depth = 1 / surface.sheet.w.clamp_min(MIN_INVERSE_DEPTH)
    clear = torch.exp(-(density * depth))[:, None]
    colour = scenes.fog_colour[:, :, None, None]
    return colour + (image - colour) * clear


def defocus(scenes: Scenes, surface: Surface, image: Image) -> Image:
    """Blur surfaces that are out of focus, and the whole frame by `lens_blur`."""
    focus, aperture, lens_blur = (
        parameter[:, None, None] for parameter in (scenes.focus, scenes.aperture, scenes.lens_blur)
    )
    radius = (surface.sheet.w - focus).abs() * aperture + lens_blur
    # Repeated smoothing gives frames blurred by 0.7, 1.6 and 3.2 pixels. Every pixel is
    # interpolated between them according to its radius.
    blurred, reached = image, 0.0
    result = image
    for spacing, deviation in ((1, 0.7), (2, 1.6), (4, 3.2)):
        blurred = _smooth(_smooth(blurred, spacing, 2), spacing, 3)
        share = ((radius - reached) / (deviation - reached)).clamp(0, 1)[:, None]
        result = result + (blurred - result) * share
        reached = deviation
    return result


def _smooth(image: Image, spacing: int, axis: int) -> Image:
    """Filter with (1/4, 1/2, 1/4) along an axis."""
    length = image.shape[axis]
    edges = (spacing, spacing, 0, 0) if axis == 3 else (0, 0, spacing, spacing)
    padded = F.pad(image, edges, mode="replicate")
    before = padded.narrow(axis, 0, length)
    after = padded.narrow(axis, 2 * spacing, length)
    return image * 0.5 + (before + after) * 0.25


def motion_blur(
    scenes: Scenes,
    pixels: HomogeneousPoints,
    flow: Float[Tensor, "b 2 h w"],
    layer: Int[Tensor, "b h w"],
    image: Image,
) -> Image:
    """Blur the frame along the true motion, respecting the order of the layers.

    Samples are taken along the strongest motion nearby. A sample of a nearer layer counts if its
    own motion reaches the pixel, a sample of a farther layer if the motion of the pixel uncovers
    it; other samples use the colour of the pixel itself (after McGuire et al., 2012).
    """
    height, width = layer.shape[1:]
    longest = MAX_STREAK * height / 2
    # The exposure is centred on the frame: half of the streak lies on either side.
    half = flow * (0.5 * scenes.shutter[:, None, None, None])
    length = (half[:, 0] * half[:, 0] + half[:, 1] * half[:, 1]).sqrt()
    shrink = longest / length.clamp_min(longest)
    half, reach = half * shrink[:, None], length * shrink
    strongest = _strongest_nearby(half, reach, max(int(longest), 1))
    strongest_length = (strongest[:, 0] ** 2 + strongest[:, 1] ** 2).sqrt()
    # Concatenated, so that one gather reads everything a sample needs.
    channels = torch.cat([image, layer[:, None].float(), reach[:, None]], dim=1).flatten(2)
    jitter = _dither(pixels)
    total = torch.zeros_like(image)
    for tap in range(TAPS):
        along = (tap - (TAPS - 1) / 2 + jitter) * (2 / TAPS)
        x = (pixels.x + along * strongest[:, 0]).round().clamp(0, width - 1)
        y = (pixels.y + along * strongest[:, 1]).round().clamp(0, height - 1)
        index = (y * width + x).long().flatten(1)[:, None].expand(-1, 5, -1)
        samples = channels.gather(2, index).view(-1, 5, height, width)
        sample_colours, sample_layer, sample_reach = samples[:, :3], samples[:, 3], samples[:, 4]
        nearer = sample_layer - layer
        reaching = torch.where(nearer > 0, sample_reach, reach)
        reaching = torch.where(nearer == 0, torch.maximum(sample_reach, reach), reaching)
        # 1 where the motion that counts is longer than the distance to the sample.
        weight = (reaching - along.abs() * strongest_length + 0.5).clamp(0, 1)
        total = total + (sample_colours - image) * weight[:, None]
    return image + total * (1 / TAPS)


def _dither(pixels: HomogeneousPoints) -> Float[Tensor, "1 h w"]:
    """A fixed pattern in -0.5..0.5 that hides the steps between samples."""
    # Jimenez's interleaved gradient noise.
    wave = (pixels.x * 0.06711056 + pixels.y * 0.00583715).remainder(1.0)
    return (wave * 52.9829189).remainder(1.0) - 0.5


def _strongest_nearby(
    half: Float[Tensor, "b 2 h w"], reach: Float[Tensor, "b h w"], tile: int
) -> Float[Tensor, "b 2 h w"]:
    """For each pixel, the longest motion in its tile and the tiles around it."""
    height, width = reach.shape[1:]
    in_tile, index_in_tile = F.max_pool2d(reach[:, None], tile, ceil_mode=True, return_indices=True)
    half = _at(half, index_in_tile)
    _, index_around = F.max_pool2d(in_tile, 3, 1, 1, return_indices=True)
    half = _at(half, index_around)
    columns = torch.arange(width, device=half.device) // tile
    rows = torch.arange(height, device=half.device) // tile
    return half[:, :, rows][:, :, :, columns]


def _at(half: Float[Tensor, "b 2 h w"], index: Int[Tensor, "b 1 y x"]) -> Float[Tensor, "b 2 y x"]:
    """The motions at the indices that max pooling returned."""
    rows, columns = index.shape[2:]
    chosen = index.flatten(2).expand(-1, 2, -1)
    return half.flatten(2).gather(2, chosen).view(-1, 2, rows, columns)


def expose(scenes: Scenes, pixels: HomogeneousPoints, image: Image) -> Image:
    """Apply exposure, contrast, saturation, white balance and uneven light."""
    brightness, contrast, saturation = (
        parameter[:, :1, None, None]
        for parameter in (scenes.brightness, scenes.contrast, scenes.saturation)
    )
    balance = scenes.colour_balance[:, 0, :, None, None]
    slope_x, slope_y = scenes.slope[:, 0, :, None, None].unbind(1)
    height, width = image.shape[2:]
    slope = 1 + slope_x * (pixels.x / width - 0.5) + slope_y * (pixels.y / height - 0.5)
    grey = _luma(image)
    image = grey + (image - grey) * saturation
    image = (image - 0.5) * contrast + 0.5
    return image * (brightness * balance * slope[:, None])


def _luma(image: Image) -> Float[Tensor, "b 1 h w"]:
    red, green, blue = image[:, 0:1], image[:, 1:2], image[:, 2:3]
    return red * _LUMA[0] + (green * _LUMA[1] + blue * _LUMA[2])


def add_noise(scenes: Scenes, image: Image) -> Image:
    """Add roughly normal noise, slightly stronger in bright areas, independent in each frame."""
    channels, height, width = image.shape[1:]
    count = channels * height * width
    place = torch.arange(count, device=image.device).view(1, channels, height, width)
    high, low = scenes.number.long().unbind(1)
    key = (high * 65536 + low)[:, None, None, None]
    bits = _scramble(_scramble(place) ^ key)
    # The sum of the four bytes of a word has mean 510 and standard deviation 147.8.
    four = (bits & 255) + ((bits >> 8) & 255) + ((bits >> 16) & 255) + (bits >> 24)
    normal = (four - 510).float() * (1 / 147.8)
    strength = scenes.noise[:, None, None, None]
    return image + normal * (strength * (0.6 + 0.8 * image.clamp(0, 1)))


def _scramble(bits: Tensor) -> Tensor:
    """Hash 32-bit words held in 64-bit integers (Ettinger's lowbias32)."""
    mask = 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & mask
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & mask
    return bits ^ (bits >> 16)


def compress(scenes: Scenes, image: Image) -> Image:
    """Round the 8 x 8 cosine transform as JPEG does, chroma more coarsely than luma."""
    height, width = image.shape[2:]
    padded = F.pad(image, (0, -width % 8, 0, -height % 8), mode="replicate")
    grey = _luma(padded)
    planes = torch.cat([grey, padded[:, 0:1] - grey, padded[:, 2:3] - grey], dim=1)
    rows, columns = planes.shape[2] // 8, planes.shape[3] // 8
    blocks = planes.reshape(-1, 3, rows, 8, columns, 8)
    frequency = torch.arange(8, device=image.device, dtype=torch.float32)
    coarser = 1 + 0.4 * (frequency[:, None, None] + frequency)
    plane = (1 + frequency[:3].clamp_max(1)).view(1, 3, 1, 1, 1, 1)  # chroma twice as coarse
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


# The eight-point cosine transform, written out: even terms need the sums of opposite samples, odd
# terms their differences. The result of a matrix product could depend on the number of blocks.
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
    terms = [_combine(differences if u % 2 else sums, _BASIS[u]) for u in range(8)]
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
