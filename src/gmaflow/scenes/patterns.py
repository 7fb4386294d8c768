"""Textures made by rule, for when there is no photograph: rich, sharp, and all of them tileable.

Each maker fills a square with a scalar field in 0..1, built of tileable noise and lattices; a
random palette then turns it into colour.
"""

from collections.abc import Callable, Iterator

import numpy as np

from gmaflow.scenes.dice import Array
from gmaflow.scenes.threads import in_threads

Maker = Callable[[np.random.Generator, int], Array]


def _noise(random: np.random.Generator, size: int, slope: float, stretch: float = 1.0) -> Array:
    """Tileable noise with a spectrum of 1 / frequency**slope, scaled to 0..1."""
    fy = np.fft.fftfreq(size)[:, None] * stretch
    fx = np.fft.rfftfreq(size)[None] / stretch
    frequency = np.hypot(fx, fy)
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(random.normal(size=(size, size))) / frequency**slope
    field = np.fft.irfft2(spectrum, s=(size, size))
    low, high = np.quantile(field, [0.01, 0.99])
    return np.clip((field - low) / (high - low + 1e-12), 0, 1)


def _lattice(size: int) -> tuple[Array, Array]:
    axis = (np.arange(size) + 0.5) / size
    x, y = np.meshgrid(axis, axis)
    return x, y


def _clouds(random: np.random.Generator, size: int) -> Array:
    return _noise(random, size, random.uniform(1.0, 2.2))


def _grain(random: np.random.Generator, size: int) -> Array:
    return _noise(random, size, random.uniform(0.4, 1.1), np.exp(random.normal() * 0.8))


def _stripes(random: np.random.Generator, size: int) -> Array:
    x, y = _lattice(size)
    across, down = random.integers(-12, 13, 2)
    bend = random.choice([0.0, 1.0]) * 4 * _noise(random, size, 2.2)
    wave = np.sin(2 * np.pi * (across * x + max(down, 1) * y) + bend)
    return np.clip(0.5 + wave * random.choice([0.5, 3.0]), 0, 1)


def _checks(random: np.random.Generator, size: int) -> Array:
    x, y = _lattice(size)
    columns, rows = 2 * random.integers(2, 10, 2)
    return np.mod(np.floor(x * columns) + np.floor(y * rows), 2)


def _dots(random: np.random.Generator, size: int) -> Array:
    x, y = _lattice(size)
    count = random.integers(4, 14)
    radius = random.uniform(0.15, 0.48)
    shift = random.choice([0.0, 0.5]) * np.mod(np.floor(y * count), 2)
    u, v = np.mod(x * count + shift, 1) - 0.5, np.mod(y * count, 1) - 0.5
    return np.clip((radius - np.hypot(u, v)) * 12, 0, 1)


def _bricks(random: np.random.Generator, size: int) -> Array:
    x, y = _lattice(size)
    rows, columns = 2 * random.integers(3, 9), random.integers(2, 7)
    row = np.floor(y * rows)
    u = np.mod(x * columns + 0.5 * np.mod(row, 2), columns)
    tone = random.uniform(0.35, 1, (rows, columns))[row.astype(int), u.astype(int)]
    gap_u = np.minimum(np.mod(u, 1), 1 - np.mod(u, 1)) / columns
    gap_v = np.minimum(np.mod(y * rows, 1), 1 - np.mod(y * rows, 1)) / rows
    return np.where(np.minimum(gap_u, gap_v) < 0.007, 0.1, tone)


def _wood(random: np.random.Generator, size: int) -> Array:
    x, y = _lattice(size)
    knots = _noise(random, size, 2.4, random.uniform(2, 4))
    rings = np.sin(2 * np.pi * (random.integers(3, 9) * y + 2.5 * knots))
    return 0.5 + 0.35 * rings + 0.15 * np.sin(2 * np.pi * (9 * x + 3 * knots))


def _cells(random: np.random.Generator, size: int) -> Array:
    x, y = _lattice(size)
    nearest = np.full((size, size), 9.0)
    second = nearest.copy()
    tone = np.zeros((size, size))
    for _ in range(random.integers(20, 70)):
        cx, cy, shade = random.uniform(size=3)
        dx, dy = abs(x - cx), abs(y - cy)
        distance = np.hypot(np.minimum(dx, 1 - dx), np.minimum(dy, 1 - dy))
        tone = np.where(distance < nearest, shade, tone)
        second = np.minimum(second, np.maximum(distance, nearest))
        nearest = np.minimum(nearest, distance)
    edge = np.clip((second - nearest) * 60, 0, 1)
    return tone * (0.3 + 0.7 * edge)


def _leaves(random: np.random.Generator, size: int) -> Array:
    """Opaque shapes of all sizes dropped on one another: edges and areas as in photographs."""
    tone = _noise(random, size, 1.5)
    for radius in np.sort(0.02 / random.uniform(0.06, 1.0, 250))[::-1]:
        reach = min(int(radius * size * 1.5) + 1, size // 2)
        offset = np.arange(-reach, reach) / size
        dx, dy = offset[None], offset[:, None]
        turn, shade, squeeze = 7 * random.random(), random.random(), random.uniform(1, 2.5)
        u, v = dx * np.cos(turn) + dy * np.sin(turn), dy * np.cos(turn) - dx * np.sin(turn)
        round_one = np.hypot(u, v * squeeze)
        extent = round_one if turn < 4 else np.maximum(abs(u), abs(v * squeeze))
        shaded = np.clip(shade + 0.25 * random.normal() * (u + v) / radius, 0, 1)
        rows, columns = (np.arange(-reach, reach) + c for c in random.integers(0, size, 2))
        window = np.ix_(rows % size, columns % size)
        tone[window] = np.where(extent < radius, shaded, tone[window])
    return tone


MAKERS: tuple[Maker, ...] = (
    _leaves, _clouds, _cells, _grain, _stripes, _leaves, _bricks, _wood, _checks, _dots, _grain,
)  # fmt: skip


def _colour(random: np.random.Generator, tone: Array) -> Array:
    """Give a scalar field the colours of a random palette, with some finer noise on top."""
    size = len(tone)
    # Brightness varies far more than hue within one material, and few materials are vivid.
    light = random.uniform(0.2, 0.75) + random.normal(size=(5, 1)) * random.uniform(0.08, 0.35)
    hue = random.normal(size=3) * random.choice([0.03, 0.08, 0.2])
    other_hues = random.normal(size=(5, 3)) * random.choice([0.01, 0.04, 0.15])
    palette = np.clip(light + hue + other_hues, 0, 1)
    stops = np.linspace(0, 1, 5)
    colours = np.stack([np.interp(tone, stops, palette[:, c]) for c in range(3)])
    detail = _noise(random, size, random.uniform(0.3, 1.3)) - 0.5
    broad = _noise(random, size, 2.2) - 0.5
    colours = colours + random.uniform(0, 0.35) * detail + random.uniform(0, 0.3) * broad
    return np.clip(colours, 0, 1)


def draw_patterns(size: int, count: int) -> Iterator[Array]:
    """Draw `count` colour textures `[3, size, size]` in 0..1, always the same ones."""

    def draw(number: int) -> Array:
        random = np.random.default_rng((20211017, number))
        return _colour(random, MAKERS[number % len(MAKERS)](random, size))

    return in_threads(draw, range(count))
