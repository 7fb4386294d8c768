"""Draw how a scene looks: silhouettes and textures of its layers, then light, air and lens.

The lighting and lens parameters make the difference between `clean` and `final` frames.
"""

import numpy as np

from gmaflow.scenes.scene_layout import BACKGROUND_LAYERS, OBJECT_LAYERS, OPEN, SceneObjects
from gmaflow.scenes.scene_presets import Traits
from gmaflow.scenes.sheet_geometry import Sheets
from gmaflow.scenes.stateless_random import Array, StatelessRandom
from gmaflow.scenes.texture_bank import TextureBank

EMPTY, WHOLE = 0, 1
"""Numbers of the silhouettes that every texture bank has."""
LAYERS = BACKGROUND_LAYERS + OBJECT_LAYERS


def _pick(rng: StatelessRandom, numbers: range, fallback: range, *shape: int) -> Array:
    chosen = numbers if len(numbers) else fallback
    return chosen.start + rng.index(len(chosen), *shape)


def draw_shapes(
    traits: Traits[Array],
    rng: StatelessRandom,
    kind: Array,
    present: Array,
    objects: SceneObjects,
    bank: TextureBank,
) -> Array:
    """Draw the silhouette numbers `[b, l]`; `present` says which background layers are used."""
    shapes = bank.shapes
    screen = _pick(rng, shapes["screen"], shapes["solid"], BACKGROUND_LAYERS)
    skyline = _pick(rng, shapes["skyline"], shapes["solid"], BACKGROUND_LAYERS)
    background = np.where((kind == OPEN)[:, None], screen, skyline)
    background[:, 1] = np.where(kind != OPEN, WHOLE, background[:, 1])
    background[:, 0] = WHOLE
    background = np.where(present, background, EMPTY)

    solid = _pick(rng, shapes["solid"], shapes["solid"], OBJECT_LAYERS)
    cutout = _pick(rng, shapes["cutout"], shapes["solid"], OBJECT_LAYERS)
    thin = _pick(rng, shapes["thin"], shapes["solid"], OBJECT_LAYERS)
    limb = _pick(rng, shapes["limb"], shapes["solid"], OBJECT_LAYERS)
    drawn = rng.uniform(OBJECT_LAYERS)
    is_thin = drawn < traits.thin[:, None]
    is_cutout = ~is_thin & (drawn < (traits.thin + (1 - traits.thin) * traits.cutout)[:, None])
    chosen = np.where(is_thin, thin, np.where(is_cutout, cutout, solid))
    chosen = np.where(objects.limb, limb, chosen)
    for i in range(1, OBJECT_LAYERS):
        chosen[:, i] = np.where(objects.twin[:, i], chosen[:, i - 1], chosen[:, i])
    return np.concatenate([background, np.where(objects.present, chosen, EMPTY)], axis=1)


def draw_textures(
    traits: Traits[Array],
    rng: StatelessRandom,
    kind: Array,
    objects: SceneObjects,
    shapes: Array,
    bank: TextureBank,
) -> tuple[Array, Array]:
    """Draw the texture numbers `[b, l]`, and which layers show a repeated pattern."""
    textures = bank.textures
    pattern = _pick(rng, textures["pattern"], textures["pattern"], LAYERS)
    photo = _pick(rng, textures["photo"], textures["pattern"], LAYERS)
    material = _pick(rng, textures["material"], textures["pattern"], LAYERS)
    drawn = rng.uniform(LAYERS)
    repeated = rng.chance(traits.repeated[:, None], LAYERS)
    anything = np.where(drawn < 0.45, photo, np.where(drawn < 0.8, material, pattern))
    scenery = np.where(drawn < 0.8, photo, np.where(drawn < 0.9, material, pattern))
    solid_ground = np.where(drawn < 0.9, material, photo)
    chosen = anything
    chosen[:, 0] = scenery[:, 0]
    on_ground = kind != OPEN
    chosen[:, 1] = np.where(on_ground, solid_ground[:, 1], scenery[:, 1])
    chosen[:, 2:4] = np.where(on_ground[:, None], solid_ground[:, 2:4], scenery[:, 2:4])
    repeated[:, 0] = False
    chosen = np.where(repeated & (drawn < 0.6), pattern, chosen)
    for i in range(BACKGROUND_LAYERS + 1, LAYERS):
        same = objects.twin[:, i - BACKGROUND_LAYERS] | objects.limb[:, i - BACKGROUND_LAYERS]
        chosen[:, i] = np.where(same, chosen[:, i - 1], chosen[:, i])
    # A cut-out always has its own picture.
    if len(bank.shapes["cutout"]):
        first = bank.shapes["cutout"].start
        own = shapes >= first
        chosen = np.where(own, textures["cutout"].start + shapes - first, chosen)
        repeated &= ~own
    return chosen, repeated


def map_textures(
    rng: StatelessRandom,
    sheets: Sheets,
    focal: Array,
    own_picture: Array,
    repeated: Array,
    size: int,
) -> Array:
    """Draw the maps from canvas to texture, `[b, 6, l]`.

    The own picture of a cut-out fits it exactly. Other textures lie at random, scaled so that about
    one texel falls on one pixel, as in photographs.
    """
    depth = np.maximum(np.abs(sheets.centre[..., 2]), 1.0)
    pixels = focal[:, None] / depth
    across = np.sqrt((sheets.right**2).sum(axis=-1)) * pixels
    along = np.sqrt((sheets.down**2).sum(axis=-1)) * pixels
    finer = rng.log_between(0.6, 1.7, LAYERS) * np.where(repeated, 3.0, 1.0)
    # Parts of grounds and walls are much nearer than their centre.
    slanted = np.abs(sheets.right[..., 2]) + np.abs(sheets.down[..., 2])
    steep = slanted > 0.9 * np.sqrt(np.minimum((sheets.right**2).sum(-1), (sheets.down**2).sum(-1)))
    finer = finer * np.where(steep, 2.5, 1.0)
    angle = np.where(rng.chance(0.5, LAYERS), 0.1, np.pi) * rng.between(-1.0, 1.0, LAYERS)
    mirror = rng.sign(LAYERS)
    c, s = np.cos(angle) * finer / size, np.sin(angle) * finer / size
    offset = rng.uniform(2, LAYERS) * 8
    free = [
        mirror * c * across,
        -s * along,
        offset[:, 0],
        s * mirror * across,
        c * along,
        offset[:, 1],
    ]
    half, none = np.full_like(c, 0.5), np.zeros_like(c)
    own = [half, none, half, none, half, half]
    return np.stack([np.where(own_picture, o, f) for o, f in zip(own, free, strict=True)], axis=1)


def draw_paint(traits: Traits[Array], rng: StatelessRandom, own_picture: Array) -> dict[str, Array]:
    """Draw a plain colour for each layer, and how much of the texture shows through it."""
    light = rng.between(0.05, 0.95, 1, LAYERS)
    colour = np.clip(light + 0.15 * rng.normal(3, LAYERS), 0, 1)
    bare = rng.chance(traits.plain[:, None], LAYERS) & ~own_picture
    share = np.where(bare, rng.between(0.0, 0.12, LAYERS), 1.0)
    tinted = rng.chance(0.3, LAYERS) & ~bare
    share = np.where(tinted, rng.between(0.5, 1.0, LAYERS), share)
    return {"paint": colour, "texture_share": share}


def draw_gloss(
    traits: Traits[Array], rng: StatelessRandom, size: tuple[int, int], bank: TextureBank
) -> tuple[Array, dict[str, Array]]:
    """Draw which objects are glossy: how much paint covers their texture, and what they reflect.

    A reflection is a picture that hangs in front of the camera and moves by itself. The surface
    only decides where it shows.
    """
    glossy = rng.chance(traits.gloss[:, None], LAYERS)
    glossy[:, :BACKGROUND_LAYERS] = False
    coat = np.where(glossy & rng.chance(0.7, LAYERS), rng.between(0.85, 1.0, LAYERS), 0.0)
    # Curved surfaces show the world small, and squeezed in one direction.
    across, down = np.moveaxis(rng.log_between(1.0, 4.0, 2, LAYERS) / bank.size, 1, 0)
    tilt = 0.2 * rng.normal(LAYERS)
    a, b, d, e = (
        across * np.cos(tilt), across * np.sin(tilt), -down * np.sin(tilt), down * np.cos(tilt)
    )  # fmt: skip
    c, f = np.moveaxis(rng.uniform(2, LAYERS), 1, 0)
    way = rng.log_between(0.002, 0.1, LAYERS) * size[0]
    heading = rng.between(0.0, 2 * np.pi, LAYERS)
    x, y = way * np.cos(heading), way * np.sin(heading)
    first = np.stack([a, b, c, d, e, f], axis=1)
    second = np.stack([a, b, c - a * x - b * y, d, e, f - d * x - e * y], axis=1)
    textures = bank.textures
    return coat, {
        "reflectance": np.where(glossy, rng.between(0.1, 0.6, LAYERS), 0.0),
        "reflection": _pick(rng, textures["photo"], textures["pattern"], LAYERS),
        "reflection_map": np.stack([first, second], axis=1),
    }


def draw_bends(traits: Traits[Array], rng: StatelessRandom, still: Array) -> tuple[Array, Array]:
    """Draw bends: waves `[b, 2, 3, l]` and their amplitudes in each frame `[b, 2, 2, 2, l]`."""
    waves, pushes = [], []
    bends = rng.chance(traits.bend[:, None], LAYERS) & ~still[:, None]
    bends[:, :BACKGROUND_LAYERS] &= rng.chance(0.4, BACKGROUND_LAYERS)
    # Half of the sheets are flat in the first frame, the others bend the other way in it.
    first_share = np.where(rng.chance(0.5, LAYERS), 0.0, rng.uniform(LAYERS))
    for _ in range(2):
        angle = rng.between(0.0, 2 * np.pi, LAYERS)
        number = rng.log_between(1.5, 6.0, LAYERS)
        strain = rng.between(-1.0, 1.0, LAYERS) * traits.strain[:, None]
        phase = rng.uniform(LAYERS) * 7
        waves.append(np.stack([number * np.cos(angle), number * np.sin(angle), phase], axis=1))
        reach = np.where(bends, strain / number, 0.0)
        pushes.append(np.stack([-np.sin(angle) * reach, np.cos(angle) * reach], axis=1))
    push = np.stack(pushes, axis=1)
    share = first_share[:, None, None]
    return np.stack(waves, axis=1), np.stack([-push * share, push * (1 - share)], axis=1)


def draw_shine(traits: Traits[Array], rng: StatelessRandom) -> dict[str, Array]:
    """Draw the brightness of each layer in each frame, and a highlight that moves over it."""
    lit = rng.chance(traits.shine[:, None], LAYERS)
    changed = 0.08 * rng.normal(LAYERS) * rng.chance(0.4, LAYERS)
    gain = rng.between(0.85, 1.15, LAYERS)
    place = rng.between(-0.7, 0.7, 2, LAYERS)
    moved = place + 0.25 * rng.normal(2, LAYERS)
    return {
        "gain": np.stack([gain, gain + changed], axis=1),
        "highlight": np.stack([place, moved], axis=1),
        "highlight_width": rng.log_between(0.08, 0.6, LAYERS),
        "highlight_strength": np.where(lit, rng.between(0.1, 0.8, LAYERS), 0.0),
    }


def draw_shadow(
    traits: Traits[Array], rng: StatelessRandom, size: tuple[int, int], bank: TextureBank
) -> dict[str, Array]:
    """Draw a soft shadow: a silhouette that moves independently of the objects."""
    shapes = bank.shapes["solid"]
    silhouette = shapes.start + rng.index(len(shapes))
    half = rng.log_between(0.3, 1.2) * size[0]
    angle = rng.between(0.0, 2 * np.pi)
    place = rng.uniform(2) * np.array([size[1], size[0]])
    strength = np.where(rng.chance(traits.shadow), rng.between(0.15, 0.6), 0.0)
    softness = rng.log_between(1.0, 8.0)
    frames = []
    for _ in range(2):
        c, s = np.cos(angle) / half, np.sin(angle) / half
        x, y = place.T
        frames.append(np.stack([c, s, -c * x - s * y, -s, c, s * x - c * y], axis=-1))
        place = place + rng.normal(2) * 0.05 * size[0]
        angle = angle + 0.05 * rng.normal()
    return {
        "to_shadow": np.stack(frames, axis=1),
        "shadow_silhouette": silhouette,
        "shadow_strength": strength,
        "shadow_softness": softness,
    }


def draw_light(traits: Traits[Array], rng: StatelessRandom) -> dict[str, Array]:
    """Draw brightness and colour of both frames, partly shared."""
    # Logarithms of brightness, contrast, saturation, red, green, blue; then the slope (x, y).
    shared = rng.normal(8) * np.array([0.2, 0.15, 0.2, 0.06, 0.06, 0.06, 0.1, 0.1])
    differs = rng.chance(0.4)[:, None] * traits.colour_change[:, None]
    frames = []
    for _ in range(2):
        own = rng.normal(8) * np.array([0.25, 0.2, 0.2, 0.06, 0.06, 0.06, 0.1, 0.1])
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
    traits: Traits[Array], rng: StatelessRandom, size: tuple[int, int], depths: tuple[Array, Array]
) -> dict[str, Array]:
    """Draw fog, defocus, lens blur, motion blur, noise and compression."""
    near, far = depths
    grey = rng.between(0.3, 0.95)
    colour = np.clip(grey[:, None] + 0.06 * rng.normal(3), 0, 1)
    # The depth at which half of the light is lost.
    half_way = rng.log_between(near, far)
    return {
        "fog": np.where(rng.chance(traits.fog), 0.7 / half_way, 0.0),
        "fog_colour": colour,
        "focus": 1 / rng.log_between(near, far),
        "aperture": np.where(
            rng.chance(traits.defocus), rng.between(0.5, 4.0) * size[0] / 400 * near, 0.0
        ),
        "lens_blur": np.where(rng.chance(traits.blur), rng.between(0.2, 1.4), 0.0),
        "shutter": np.where(rng.chance(traits.motion_blur), rng.between(0.15, 0.8), 0.0),
        "noise": np.where(rng.chance(traits.noise), rng.log_between(0.004, 0.06), 0.0),
        "compression": np.where(rng.chance(traits.compression), rng.log_between(0.01, 0.12), 0.0),
    }
