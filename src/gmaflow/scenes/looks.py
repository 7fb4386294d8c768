"""What the sheets look like: silhouette, texture, plain colour, edges, bends, highlights."""

import numpy as np

from gmaflow.scenes.actors import OBJECT_LAYERS, Cast
from gmaflow.scenes.dice import Array, Dice
from gmaflow.scenes.geometry import Sheets
from gmaflow.scenes.presets import Traits
from gmaflow.scenes.stage import OPEN, SET_LAYERS, Stage
from gmaflow.scenes.textures import TextureBank

EMPTY, WHOLE = 0, 1
"""The silhouettes that every texture bank has, by number."""
LAYERS = SET_LAYERS + OBJECT_LAYERS


def _pick(dice: Dice, numbers: range, fallback: range, *shape: int) -> Array:
    chosen = numbers if len(numbers) else fallback
    return chosen.start + dice.index(len(chosen), *shape)


def draw_shapes(
    traits: Traits[Array], dice: Dice, stage: Stage, there: Array, cast: Cast, bank: TextureBank
) -> Array:
    """The silhouettes' numbers, `[b, l]`."""
    shapes = bank.shapes
    screen = _pick(dice, shapes["screen"], shapes["solid"], SET_LAYERS)
    skyline = _pick(dice, shapes["skyline"], shapes["solid"], SET_LAYERS)
    of_set = np.where((stage.kind == OPEN)[:, None], screen, skyline)
    of_set[:, 1] = np.where(stage.kind != OPEN, WHOLE, of_set[:, 1])
    of_set[:, 0] = WHOLE
    of_set = np.where(there, of_set, EMPTY)

    solid = _pick(dice, shapes["solid"], shapes["solid"], OBJECT_LAYERS)
    cutout = _pick(dice, shapes["cutout"], shapes["solid"], OBJECT_LAYERS)
    thin = _pick(dice, shapes["thin"], shapes["solid"], OBJECT_LAYERS)
    limb = _pick(dice, shapes["limb"], shapes["solid"], OBJECT_LAYERS)
    kind = dice.uniform(OBJECT_LAYERS)
    is_thin = kind < traits.thin[:, None]
    is_cutout = ~is_thin & (kind < (traits.thin + (1 - traits.thin) * traits.cutout)[:, None])
    objects = np.where(is_thin, thin, np.where(is_cutout, cutout, solid))
    objects = np.where(cast.limb, limb, objects)
    for i in range(1, OBJECT_LAYERS):
        objects[:, i] = np.where(cast.twin[:, i], objects[:, i - 1], objects[:, i])
    return np.concatenate([of_set, np.where(cast.there, objects, EMPTY)], axis=1)


def draw_textures(
    traits: Traits[Array], dice: Dice, stage: Stage, cast: Cast, shapes: Array, bank: TextureBank
) -> tuple[Array, Array]:
    """The textures' numbers `[b, l]`, and which layers show a repeated pattern."""
    textures = bank.textures
    pattern = _pick(dice, textures["pattern"], textures["pattern"], LAYERS)
    photo = _pick(dice, textures["photo"], textures["pattern"], LAYERS)
    material = _pick(dice, textures["material"], textures["pattern"], LAYERS)
    kind = dice.uniform(LAYERS)
    repeated = dice.chance(traits.repeated[:, None], LAYERS)
    anything = np.where(kind < 0.45, photo, np.where(kind < 0.8, material, pattern))
    scenery = np.where(kind < 0.8, photo, np.where(kind < 0.9, material, pattern))
    solid_ground = np.where(kind < 0.9, material, photo)
    chosen = anything
    chosen[:, 0] = scenery[:, 0]
    on_ground = stage.kind != OPEN
    chosen[:, 1] = np.where(on_ground, solid_ground[:, 1], scenery[:, 1])
    chosen[:, 2:4] = np.where(on_ground[:, None], solid_ground[:, 2:4], scenery[:, 2:4])
    repeated[:, 0] = False
    chosen = np.where(repeated & (kind < 0.6), pattern, chosen)
    for i in range(SET_LAYERS + 1, LAYERS):
        same = cast.twin[:, i - SET_LAYERS] | cast.limb[:, i - SET_LAYERS]
        chosen[:, i] = np.where(same, chosen[:, i - 1], chosen[:, i])
    # A cut-out always wears its own picture.
    if len(bank.shapes["cutout"]):
        first = bank.shapes["cutout"].start
        own = shapes >= first
        chosen = np.where(own, textures["cutout"].start + shapes - first, chosen)
        repeated &= ~own
    return chosen, repeated


def map_textures(
    dice: Dice, sheets: Sheets, focal: Array, own_picture: Array, repeated: Array, size: int
) -> Array:
    """Canvas to texture, `[b, 6, l]`: an object's own picture fits it, others lie at random.

    Their scale is such that about one texel falls on one pixel, which is what photographs have.
    """
    depth = np.maximum(np.abs(sheets.centre[..., 2]), 1.0)
    pixels = focal[:, None] / depth
    across = np.sqrt((sheets.right**2).sum(axis=-1)) * pixels
    along = np.sqrt((sheets.down**2).sum(axis=-1)) * pixels
    finer = dice.log_between(0.6, 1.7, LAYERS) * np.where(repeated, 3.0, 1.0)
    # Grounds and walls are seen from much nearer than their centre, too.
    slanted = np.abs(sheets.right[..., 2]) + np.abs(sheets.down[..., 2])
    steep = slanted > 0.9 * np.sqrt(np.minimum((sheets.right**2).sum(-1), (sheets.down**2).sum(-1)))
    finer = finer * np.where(steep, 2.5, 1.0)
    angle = np.where(dice.chance(0.5, LAYERS), 0.1, np.pi) * dice.between(-1.0, 1.0, LAYERS)
    mirror = dice.sign(LAYERS)
    c, s = np.cos(angle) * finer / size, np.sin(angle) * finer / size
    offset = dice.uniform(2, LAYERS) * 8
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


def draw_paint(traits: Traits[Array], dice: Dice, own_picture: Array) -> dict[str, Array]:
    """A plain colour, and how much of the texture shows through it."""
    light = dice.between(0.05, 0.95, 1, LAYERS)
    colour = np.clip(light + 0.15 * dice.normal(3, LAYERS), 0, 1)
    bare = dice.chance(traits.plain[:, None], LAYERS) & ~own_picture
    share = np.where(bare, dice.between(0.0, 0.12, LAYERS), 1.0)
    tinted = dice.chance(0.3, LAYERS) & ~bare
    share = np.where(tinted, dice.between(0.5, 1.0, LAYERS), share)
    return {"paint": colour, "texture_share": share}


def draw_bends(traits: Traits[Array], dice: Dice, still: Array) -> tuple[Array, Array]:
    """Waves `[b, 2, 3, l]` and how far they push in each frame `[b, 2, 2, 2, l]`."""
    waves, pushes = [], []
    bends = dice.chance(traits.bend[:, None], LAYERS) & ~still[:, None]
    bends[:, :SET_LAYERS] &= dice.chance(0.4, SET_LAYERS)
    # Half of the sheets are flat in the first frame, the others bent the other way there.
    first_share = np.where(dice.chance(0.5, LAYERS), 0.0, dice.uniform(LAYERS))
    for _ in range(2):
        angle = dice.between(0.0, 2 * np.pi, LAYERS)
        number = dice.log_between(1.5, 6.0, LAYERS)
        strain = dice.between(-1.0, 1.0, LAYERS) * traits.strain[:, None]
        phase = dice.uniform(LAYERS) * 7
        waves.append(np.stack([number * np.cos(angle), number * np.sin(angle), phase], axis=1))
        reach = np.where(bends, strain / number, 0.0)
        pushes.append(np.stack([-np.sin(angle) * reach, np.cos(angle) * reach], axis=1))
    push = np.stack(pushes, axis=1)
    share = first_share[:, None, None]
    return np.stack(waves, axis=1), np.stack([-push * share, push * (1 - share)], axis=1)


def draw_shine(traits: Traits[Array], dice: Dice) -> dict[str, Array]:
    """How brightly each layer is lit in each frame, and a highlight that moves over it."""
    lit = dice.chance(traits.shine[:, None], LAYERS)
    changed = 0.08 * dice.normal(LAYERS) * dice.chance(0.4, LAYERS)
    gain = dice.between(0.85, 1.15, LAYERS)
    place = dice.between(-0.7, 0.7, 2, LAYERS)
    moved = place + 0.25 * dice.normal(2, LAYERS)
    width = dice.log_between(0.08, 0.6, LAYERS)
    strength = np.where(lit, dice.between(0.1, 0.8, LAYERS), 0.0)
    return {
        "gain": np.stack([gain, gain + changed], axis=1),
        "highlight": np.stack([place, moved], axis=1),
        "highlight_width": width,
        "highlight_strength": strength,
    }
