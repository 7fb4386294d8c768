"""From a pair's number to its scene: all random choices, made on the CPU in double precision.

The device sees only the finished numbers, so that a GPU renders the very scene the CPU does.
"""

import numpy as np

from gmaflow.scenes.actors import OBJECT_LAYERS, build_cast
from gmaflow.scenes.dice import Array, Dice
from gmaflow.scenes.geometry import across, homographies, inverse
from gmaflow.scenes.looks import (
    LAYERS,
    draw_bends,
    draw_paint,
    draw_shapes,
    draw_shine,
    draw_textures,
    map_textures,
)
from gmaflow.scenes.presets import draw_traits
from gmaflow.scenes.stage import OPEN, SET_LAYERS, build_set, build_stage
from gmaflow.scenes.textures import TextureBank
from gmaflow.scenes.weather import draw_air, draw_light, draw_shadow


def draw_scenes(
    preset: str, seed: int, pairs: Array, size: tuple[int, int], bank: TextureBank
) -> dict[str, Array]:
    """The parameters of the given pairs' scenes, under the names of `Scenes`' attributes."""
    dice = Dice(seed, pairs)
    traits = draw_traits(preset, dice)
    stage = build_stage(traits, dice, size)
    set_sheets, set_there = build_set(traits, dice, stage, size)
    cast = build_cast(traits, dice, stage, size)
    sheets = set_sheets.beside(cast.sheets)
    first, second = homographies(sheets, stage.camera)

    silhouettes = draw_shapes(traits, dice, stage, set_there, cast, bank)
    textures, repeated = draw_textures(traits, dice, stage, cast, silhouettes, bank)
    own_picture = (silhouettes >= bank.shapes["cutout"].start) & (len(bank.shapes["cutout"]) > 0)
    focal = stage.camera.focal
    texture_map = map_textures(dice, sheets, focal, own_picture, repeated, bank.size)
    wave, push = draw_bends(traits, dice, stage.still)
    soft = dice.chance(traits.soft[:, None], LAYERS)
    edge_width = np.where(soft, dice.between(2.0, 6.0, LAYERS), 1.0)
    nearest = np.where(stage.kind == OPEN, 2.0, 5.0)
    # What follows throws the dice, too: in another order the scenes would be others.
    return {
        "to_canvas": _rows(inverse(first), inverse(second)),
        "to_frame": _rows(first, second),
        "across": _rows(across(first, second), across(second, first)),
        "wave": wave,
        "push": push,
        "silhouette": silhouettes,
        "edge_width": edge_width,
        "identity": _identities(cast.limb),
        "texture": textures,
        "mirrored": ~np.array(bank.tileable)[textures],
        "texture_map": texture_map,
        **draw_paint(traits, dice, own_picture),
        **draw_shine(traits, dice),
        **draw_shadow(traits, dice, size, bank),
        **draw_light(traits, dice),
        **draw_air(traits, dice, size, (nearest, stage.far)),
        "number": dice.index(65536, 2),
    }


def _rows(first: Array, second: Array) -> Array:
    """Two stacks of matrices `[b, l, 3, 3]` as `[b, 2, 9, l]`."""
    both = np.stack([first, second], axis=1)
    return both.reshape(*both.shape[:3], 9).swapaxes(2, 3)


def _identities(limb: Array) -> Array:
    """Number the objects; a limb has its owner's number. The set's layers come first."""
    number = np.cumsum(~limb, axis=1) + SET_LAYERS - 1
    of_set = np.broadcast_to(np.arange(SET_LAYERS), (len(limb), SET_LAYERS))
    assert number.shape[1] == OBJECT_LAYERS
    return np.concatenate([of_set, number], axis=1)
