"""The objects: where they stand, how large they are, how they move, which hang on which."""

from dataclasses import dataclass, replace

import numpy as np

from gmaflow.scenes.dice import Array, Dice
from gmaflow.scenes.geometry import Sheets, cross, rotate, rotation
from gmaflow.scenes.presets import ROWS, Traits
from gmaflow.scenes.stage import OPEN, STREET, Stage, towards

OBJECT_LAYERS = 10


@dataclass(frozen=True)
class Cast:
    """The objects of a batch of scenes, from far to near. Arrays `[b, l]`.

    Attributes:
        sheets: Their planes and motion.
        there: Whether there is one.
        limb: Whether it hangs on the one before it.
        twin: Whether it looks like the one before it.
        upright: Whether it stands on the ground.
        radius: Half its size in pixels.
    """

    sheets: Sheets
    there: Array
    limb: Array
    twin: Array
    upright: Array
    radius: Array


def build_cast(traits: Traits[Array], dice: Dice, stage: Stage, size: tuple[int, int]) -> Cast:
    """Draw the objects."""
    rows, columns = size
    layers = OBJECT_LAYERS
    on_ground = (stage.kind != OPEN)[:, None]
    count = dice.between(traits.fewest, traits.most + 1)
    # Those that are there come last, so that a limb's slot always follows its owner's.
    there = np.arange(layers)[None] >= layers - np.floor(count)[:, None]
    focal = stage.camera.focal[:, None]
    nearness = np.sort(dice.uniform(layers), axis=1)
    depth = np.where(on_ground, 55.0 * (4.5 / 55.0) ** nearness, 9.0 * (1 / 5.0) ** nearness)
    upright = on_ground & dice.chance(0.85, layers)

    per_pixel = depth / focal
    radius = rows * dice.log_between(traits.smallest[:, None], traits.largest[:, None], layers)
    metres = dice.log_between(0.5, 2.4, layers)
    radius = np.where(upright, np.minimum(metres / per_pixel, 0.55 * rows), radius)

    speed = _speeds(traits, dice, stage, size)
    heading = dice.between(0.0, 2 * np.pi, layers)
    dx, dy = speed * np.cos(heading), speed * np.sin(heading) * np.where(upright, 0.05, 1.0)
    # The objects are where they should be halfway between the frames, so that as many leave the
    # picture as enter it.
    x = dice.between(-0.08, 1.08, layers) * columns - dx / 2
    y = dice.between(-0.08, 1.08, layers) * rows - dy / 2
    centre = towards(stage, x, y, depth)
    feet = stage.height[:, None] - radius * per_pixel * 0.93
    centre[..., 1] = np.where(upright, feet, centre[..., 1])

    tilt = np.clip(dice.normal(2, layers), -2, 2) * 0.5 * traits.tilt[:, None, None]
    tilt = np.where(upright[:, None], tilt * 0.3, tilt)
    spin = dice.between(-np.pi, np.pi, layers) * np.where(dice.chance(0.5, layers), 1.0, 0.1)
    spin = np.where(upright, 0.02 * spin, spin)
    orientation = rotation(tilt[:, 0], tilt[:, 1], spin)
    orientation = np.swapaxes(stage.camera.view, -1, -2)[:, None] @ orientation
    slim = dice.log_between(0.6, 1.0, layers)[..., None]
    axes = orientation * (radius * per_pixel)[..., None, None]

    moves = (speed > 0)[..., None]
    sheets = Sheets.resting(centre, axes[..., 0] * slim, axes[..., 1])
    sheets = replace(
        sheets,
        turn=np.where(moves[..., None], _turns(traits, dice, upright), sheets.turn),
        shift=np.where(moves, _shifts(traits, dice, stage, (dx, dy, depth, upright)), 0.0),
    )
    limb = dice.chance(traits.limb[:, None], layers) & there
    limb[:, 1:] &= there[:, :-1]
    limb[:, 0] = False
    sheets = _hang(sheets, limb, dice, stage.still)
    twin = dice.chance(traits.twin[:, None], layers) & ~limb
    twin[:, 0] = False
    return Cast(sheets, there, limb, twin, upright, radius)


def _speeds(traits: Traits[Array], dice: Dice, stage: Stage, size: tuple[int, int]) -> Array:
    """Pixels that each object moves of itself."""
    median = traits.object_motion * stage.stirred * size[0] / ROWS
    spread = traits.object_spread[:, None] * dice.normal(OBJECT_LAYERS)
    speed = np.minimum(median[:, None] * np.exp(spread), size[0])
    rests = dice.chance(traits.still_object[:, None], OBJECT_LAYERS) | stage.still[:, None]
    return np.where(rests, 0.0, speed)


def _turns(traits: Traits[Array], dice: Dice, upright: Array) -> Array:
    angles = dice.normal(3, OBJECT_LAYERS)
    angles[:, :2] *= traits.turn[:, None, None] * 0.6
    angles[:, 2] *= traits.roll[:, None] * np.where(upright, 0.15, 1.0)
    angles = np.clip(angles, -1.0, 1.0)
    return rotation(angles[:, 0], angles[:, 1], angles[:, 2])


def _shifts(
    traits: Traits[Array], dice: Dice, stage: Stage, motion: tuple[Array, Array, Array, Array]
) -> Array:
    dx, dy, depth, upright = motion
    per_pixel = depth / stage.camera.focal[:, None]
    nearer = np.clip(dice.normal(OBJECT_LAYERS) * traits.approach[:, None], -0.35, 0.3)
    along = -nearer * depth
    # What drives in a street drives along it, both ways, as fast as the camera does.
    ride = traits.speed[:, None] * dice.sign(OBJECT_LAYERS)
    ride = ride * np.exp(0.5 * dice.normal(OBJECT_LAYERS))
    rides = upright & (stage.kind == STREET)[:, None] & dice.chance(0.8, OBJECT_LAYERS)
    along = np.where(rides, np.clip(ride, -0.25 * depth, 0.25 * depth), along)
    sideways = np.where(rides, 0.2 * dx, dx) * per_pixel
    return np.stack([sideways, dy * per_pixel, along], axis=-1)


def _hang(sheets: Sheets, limb: Array, dice: Dice, still: Array) -> Sheets:
    """Hang each limb on the sheet before it, by a joint about which it turns."""
    layers = limb.shape[1]
    angle = np.clip(0.35 * dice.normal(layers), -1.2, 1.2) * ~still[:, None]
    rest = dice.between(-np.pi, np.pi, layers)
    where = dice.between(-0.55, 0.55, layers, 2)
    length = dice.between(0.45, 0.9, layers)
    centre, right, down = sheets.centre.copy(), sheets.right.copy(), sheets.down.copy()
    turn, pivot, shift = sheets.turn.copy(), sheets.pivot.copy(), sheets.shift.copy()
    for i in range(1, layers):
        hangs = limb[:, i, None]
        owner_right, owner_down = right[:, i - 1], down[:, i - 1]
        joint = centre[:, i - 1] + where[:, i, :1] * owner_right + where[:, i, 1:] * owner_down
        c, s = np.cos(rest[:, i, None]), np.sin(rest[:, i, None])
        limb_right = length[:, i, None] * (c * owner_right + s * owner_down)
        limb_down = length[:, i, None] * (c * owner_down - s * owner_right)
        # A limb turns about its joint, and with its owner. The joint is its pivot, so its shift
        # is how far the owner's motion takes the joint.
        about_joint = _about(cross(owner_right, owner_down), angle[:, i])
        carried = rotate(turn[:, i - 1], joint - pivot[:, i - 1]) + pivot[:, i - 1]
        hung = (
            (centre, joint + 0.8 * limb_down),
            (right, limb_right),
            (down, limb_down),
            (pivot, joint),
            (shift, carried + shift[:, i - 1] - joint),
        )
        for array, value in hung:
            array[:, i] = np.where(hangs, value, array[:, i])
        turn[:, i] = np.where(hangs[..., None], turn[:, i - 1] @ about_joint, turn[:, i])
    return Sheets(centre, right, down, turn, pivot, shift)


def _about(axis: Array, angle: Array) -> Array:
    """Turn about an axis `[b, 3]` by an angle `[b]` (Rodrigues)."""
    unit = axis / np.sqrt((axis * axis).sum(axis=-1, keepdims=True))
    x, y, z = unit.T
    zero = np.zeros_like(x)
    product = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=-1).reshape(-1, 3, 3)
    s, c = np.sin(angle)[:, None, None], np.cos(angle)[:, None, None]
    return np.eye(3) + s * product + (1 - c) * (product @ product)
