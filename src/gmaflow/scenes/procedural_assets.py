"""Built-in silhouettes and textures, drawn by procedures from seeded random generators.

A silhouette is a mask on the square [-1, 1]: a blob, a polygon, a fence, a branch, a skyline. A
texture is a tileable scalar field made of noise and lattices, coloured by a random palette.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from gmaflow.scenes.signed_distance import outline_texels
from gmaflow.scenes.stateless_random import Array

SilhouetteMaker = Callable[[np.random.Generator, Array, Array], Array]
PatternMaker = Callable[[np.random.Generator, int], Array]
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Map a function over items in a pool of threads, one thread of torch each."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(function, items)
    finally:
        torch.set_num_threads(threads)


def _blob(random: np.random.Generator, x: Array, y: Array) -> Array:
    angle, radius = np.arctan2(y, x), np.hypot(x, y)
    edge = np.full_like(x, 0.68)
    for frequency in range(1, 9):
        share = 0.5 * random.normal() / (1 + frequency) ** 1.1
        edge = edge * (1 + share * np.cos(frequency * angle + random.uniform(0, 7)))
    return radius < np.clip(edge, 0.12, 0.93)


def _holed_blob(random: np.random.Generator, x: Array, y: Array) -> Array:
    mask = _blob(random, x, y)
    for _ in range(random.integers(1, 5)):
        cx, cy = random.uniform(-0.5, 0.5, 2)
        mask &= np.hypot(x - cx, (y - cy) * random.uniform(0.6, 1.6)) > random.uniform(0.06, 0.25)
    return mask


def _ellipse(random: np.random.Generator, x: Array, y: Array) -> Array:
    return np.hypot(x, y / random.uniform(0.35, 1.0)) < 0.9


def _polygon(random: np.random.Generator, x: Array, y: Array) -> Array:
    count = random.integers(3, 8)
    angles = random.uniform(0, 7) + np.arange(count) * (2 * np.pi / count)
    mask = np.ones(x.shape, dtype=bool)
    for angle in angles + random.uniform(-0.3, 0.3, count):
        mask &= x * np.cos(angle) + y * np.sin(angle) < random.uniform(0.4, 0.65)
    return mask & (np.maximum(abs(x), abs(y)) < 0.93)


def _box(random: np.random.Generator, x: Array, y: Array) -> Array:
    corner = random.uniform(0, 0.3)
    width, height = 0.9, random.uniform(0.3, 0.9)
    dx = np.maximum(abs(x) - (width - corner), 0)
    dy = np.maximum(abs(y) - (height - corner), 0)
    return np.hypot(dx, dy) < max(corner, 0.01)


def _ring(random: np.random.Generator, x: Array, y: Array) -> Array:
    radius = np.hypot(x, y)
    return (radius < 0.9) & (radius > random.uniform(0.45, 0.82))


def _window(random: np.random.Generator, x: Array, y: Array) -> Array:
    columns, rows = random.integers(1, 4, 2)
    bar = random.uniform(0.06, 0.22)
    u = np.mod((x + 0.9) / 1.8 * columns, 1.0)
    v = np.mod((y + 0.9) / 1.8 * rows, 1.0)
    solid = (np.minimum(u, 1 - u) < bar) | (np.minimum(v, 1 - v) < bar)
    return solid & (np.maximum(abs(x), abs(y)) < 0.9)


def _pole(random: np.random.Generator, x: Array, y: Array) -> Array:
    width = np.exp(random.uniform(np.log(0.015), np.log(0.1)))
    mask = (abs(x) < width) & (abs(y) < 0.94)
    if random.random() < 0.5:  # a sign or lamp at its end
        half = random.uniform(0.1, 0.35)
        mask |= (abs(x) < half) & (abs(y + 0.92 - half * 0.6) < half * 0.6) & (abs(y) < 0.94)
    return mask


def _poles(random: np.random.Generator, x: Array, y: Array) -> Array:
    mask = np.zeros(x.shape, dtype=bool)
    for _ in range(random.integers(2, 6)):
        lean = random.normal() * 0.15
        centre = random.uniform(-0.8, 0.8)
        mask |= abs(x - centre - lean * y) < np.exp(random.uniform(np.log(0.012), np.log(0.05)))
    return mask & (abs(y) < 0.94) & (abs(x) < 0.94)


def _grid(random: np.random.Generator, x: Array, y: Array) -> Array:
    turn = random.choice([0.0, np.pi / 4, random.uniform(0, np.pi)])
    u = x * np.cos(turn) + y * np.sin(turn)
    v = y * np.cos(turn) - x * np.sin(turn)
    pitch, bar = random.uniform(0.12, 0.45), random.uniform(0.014, 0.035)
    bars = abs(np.mod(u, pitch) - pitch / 2) < bar
    if random.random() < 0.7:
        bars |= abs(np.mod(v, pitch * random.uniform(0.7, 2)) - pitch / 2) < bar
    return bars & (np.maximum(abs(x), abs(y)) < 0.94)


def _stroke(x: Array, y: Array, start: Array, end: Array, width: float) -> Array:
    mask = np.zeros(x.shape, dtype=bool)
    low, high = np.minimum(start, end) - width, np.maximum(start, end) + width
    columns = slice(*np.searchsorted(x[0], [low[0], high[0]]))
    rows = slice(*np.searchsorted(y[:, 0], [low[1], high[1]]))
    x, y = x[rows, columns] - start[0], y[rows, columns] - start[1]
    along = end - start
    length = max(float(along @ along), 1e-9)
    t = np.clip((x * along[0] + y * along[1]) / length, 0, 1)
    mask[rows, columns] = np.hypot(x - t * along[0], y - t * along[1]) < width
    return mask


def _branch(random: np.random.Generator, x: Array, y: Array) -> Array:
    mask = np.zeros(x.shape, dtype=bool)
    twigs = [(np.array([random.uniform(-0.3, 0.3), 0.94]), -np.pi / 2, 0.8, 0.06)]
    for _ in range(26):
        start, heading, length, width = twigs.pop(0)
        end = start + length * np.array([np.cos(heading), np.sin(heading)])
        mask |= _stroke(x, y, start, end, max(width, 0.012))
        for _ in range(2):
            at = start + (end - start) * random.uniform(0.5, 1.0)
            twigs.append((at, heading + random.normal() * 0.7, length * 0.72, width * 0.62))
    return mask & (np.maximum(abs(x), abs(y)) < 0.95)


def _hair(random: np.random.Generator, x: Array, y: Array) -> Array:
    mask = np.zeros(x.shape, dtype=bool)
    for _ in range(random.integers(3, 8)):
        at, heading = random.uniform(-0.7, 0.7, 2), random.uniform(0, 2 * np.pi)
        bend, width = random.normal() * 0.4, random.uniform(0.01, 0.025)
        for _ in range(6):
            end = at + 0.25 * np.array([np.cos(heading), np.sin(heading)])
            mask |= _stroke(x, y, at, end, width)
            at, heading = end, heading + bend + random.normal() * 0.2
    return mask & (np.maximum(abs(x), abs(y)) < 0.95)


def _limb(random: np.random.Generator, x: Array, y: Array) -> Array:
    width = random.uniform(0.12, 0.3)
    taper = 1 - random.uniform(0, 0.5) * (y + 0.9) / 1.8
    return np.hypot(np.maximum(abs(y) - (0.9 - width), 0), x) < width * taper


def _skyline(random: np.random.Generator, x: Array, y: Array) -> Array:
    knots = random.integers(4, 14)
    heights = random.uniform(-0.9, 0.6, knots)
    position = np.clip((x[0] + 1) / 2 * knots, 0, knots - 1.001)
    if random.random() < 0.5:
        top = heights[position.astype(int)]
    else:
        top = np.interp(position, np.arange(knots), heights)
        top = top + 0.04 * np.sin(position * random.uniform(5, 30))
    return (y > top[None]) & (np.maximum(abs(x), abs(y)) < 0.96)


def _foliage(random: np.random.Generator, x: Array, y: Array) -> Array:
    field = np.zeros_like(x)
    for _ in range(14):
        frequency = np.exp(random.uniform(np.log(2), np.log(22)))
        heading = random.uniform(0, 2 * np.pi)
        wave = frequency * (x * np.cos(heading) + y * np.sin(heading)) + random.uniform(0, 7)
        field += np.sin(wave + 1.5 * np.sin(2.3 * x - 3.1 * y)) / frequency**0.5
    level = np.quantile(field, random.uniform(0.35, 0.7))
    return field > level + 0.8 * np.maximum(np.hypot(x, y) - 0.75, 0) * np.abs(field).max() * 4


SILHOUETTES: dict[str, tuple[SilhouetteMaker, ...]] = {
    "solid": (_blob, _blob, _holed_blob, _ellipse, _polygon, _box, _ring, _foliage),
    "thin": (_pole, _poles, _grid, _branch, _hair, _window),
    "screen": (_skyline, _foliage, _grid, _window, _branch, _holed_blob),
    "skyline": (_skyline,),
    "limb": (_limb, _ellipse, _box),
}


def draw_silhouettes(size: int, each: int) -> dict[str, torch.Tensor]:
    """Draw `each` silhouettes with every maker: outline texels `[n, size, size]` by kind."""
    axis = (np.arange(2 * size) + 0.5) / size - 1
    x, y = np.meshgrid(axis, axis)
    shapes = [
        (kind, make) for kind, makers in SILHOUETTES.items() for make in makers for _ in range(each)
    ]

    def draw(number: int) -> torch.Tensor:
        random = np.random.default_rng((20211011, number))
        mask = shapes[number][1](random, x, y)
        return outline_texels(torch.from_numpy(mask)[None])

    drawn = list(in_threads(draw, range(len(shapes))))
    kinds = [kind for kind, _ in shapes]
    return {
        kind: torch.cat([one for one, its in zip(drawn, kinds, strict=True) if its == kind])
        for kind in SILHOUETTES
    }


def _noise(random: np.random.Generator, size: int, slope: float, stretch: float = 1.0) -> Array:
    """Tileable noise in 0..1 with a spectrum of 1 / frequency**slope."""
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
    """Opaque shapes of all sizes on top of one another: edge statistics as in photographs."""
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


PATTERNS: tuple[PatternMaker, ...] = (
    _leaves, _clouds, _cells, _grain, _stripes, _leaves, _bricks, _wood, _checks, _dots, _grain,
)  # fmt: skip


def _colour(random: np.random.Generator, tone: Array) -> Array:
    """Colour a scalar field with a random palette and add some noise."""
    size = len(tone)
    # Within a material, brightness varies far more than hue; few materials are vivid.
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
    """Draw `count` colour textures `[3, size, size]` in 0..1; they are always the same."""

    def draw(number: int) -> Array:
        random = np.random.default_rng((20211017, number))
        return _colour(random, PATTERNS[number % len(PATTERNS)](random, size))

    return in_threads(draw, range(count))
