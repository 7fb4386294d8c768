"""The set and the camera: backdrop, ground, walls and screens, and how they are looked at."""

from dataclasses import dataclass

import numpy as np

from gmaflow.scenes.dice import Array, Dice
from gmaflow.scenes.geometry import Camera, Sheets, rotate, rotation
from gmaflow.scenes.presets import ROWS, Traits

OPEN, GROUND, STREET = range(3)
"""Kinds of sets: a backdrop with screens before it, open ground, a street with walls."""
SET_LAYERS = 4
BACKDROP = 10.0
"""Depth of an open set's backdrop; only ratios of depths matter there."""
_MEETING = 8.0
"""Depth at which an open ground's camera motion has the size that the preset gives, metres."""


@dataclass(frozen=True)
class Stage:
    """Where a scene takes place. Arrays `[b]`.

    Attributes:
        kind: `OPEN`, `GROUND` or `STREET`.
        camera: The camera, moving.
        height: Its height above the ground, metres.
        far: Depth of the backdrop.
        stirred: How lively the pair is: a factor for the objects' motion too.
        still: Whether nothing at all moves.
    """

    kind: Array
    camera: Camera
    height: Array
    far: Array
    stirred: Array
    still: Array


def build_stage(traits: Traits[Array], dice: Dice, size: tuple[int, int]) -> Stage:
    """Draw the place and the camera's motion."""
    rows, columns = size
    count = len(dice)
    kind = dice.category(np.stack([traits.open_set, traits.ground_set, traits.street_set], axis=-1))
    focal = rows * np.where(kind == STREET, dice.between(1.6, 2.2), dice.between(1.1, 2.2))
    # A narrow frame of a street is a part of a wide one, cut anywhere but at its far ends.
    spare = max(3.3 * rows - columns, 0.0) * 0.3
    off_centre = np.where(kind == STREET, dice.between(-spare, spare), 0.0)
    centre = np.stack([(columns - 1) / 2 + off_centre, np.full(count, (rows - 1) / 2)], axis=-1)
    height = np.where(kind == STREET, dice.between(1.4, 2.0), dice.log_between(0.8, 4.0))
    far = np.where(kind == OPEN, BACKDROP, dice.log_between(60.0, 300.0))
    pitch = np.where(kind == OPEN, 0.0, dice.normal() * np.where(kind == GROUND, 0.1, 0.03))
    roll = np.where(kind == OPEN, 0.0, dice.normal() * np.where(kind == GROUND, 0.05, 0.01))
    view = rotation(pitch, np.zeros(count), roll)

    liveliness = dice.normal()
    motion = traits.camera_motion * np.exp(traits.camera_spread * liveliness) * rows / ROWS
    motion = np.minimum(motion, 0.8 * rows)
    still = dice.chance(traits.still_pair)
    rests = still | dice.chance(traits.still_camera)
    turn, shift, zoom = _camera_motion(traits, dice, kind, (motion, focal, columns))
    turn, shift, zoom = (np.where(rests[(...,) + (None,) * (a.ndim - 1)], r, a) for a, r in (
        (turn, np.zeros(3)), (shift, np.zeros(3)), (zoom, np.ones(())),
    ))  # fmt: skip
    camera = Camera(focal, zoom, centre, view, rotation(*turn.T), shift)
    return Stage(kind, camera, height, far, np.exp(0.5 * liveliness), still)


def _camera_motion(
    traits: Traits[Array], dice: Dice, kind: Array, scales: tuple[Array, Array, int]
) -> tuple[Array, Array, Array]:
    """Rotation angles, shift and zoom that together move the picture by about `motion` pixels."""
    motion, focal, columns = scales
    # Sideways, up, forward, pan, tilt, roll, zoom: mostly one or two of them at a time.
    shares = dice.uniform(7) ** 3
    shares[:, 1] *= 0.5
    shares[:, 4] *= 0.5
    shares[:, 5:] *= 2 * traits.camera_roll[:, None]
    shares = shares / np.sqrt((shares**2).sum(axis=1, keepdims=True)) * dice.sign(7)
    amount = shares * motion[:, None]
    _, _, _, pan, tilt, roll, zooming = amount.T
    edge = columns / 2
    # A turn moves all of the picture alike, a shift what is at this depth by the promised amount;
    # going forward, rolling and zooming move the left and right edge by it.
    reference = np.where(kind == OPEN, 0.6 * BACKDROP, _MEETING)
    shift = amount[:, :3] * reference[:, None] / np.stack([focal, focal, focal * 0 + edge], axis=-1)
    angles = np.stack([tilt / focal, pan / focal, roll / edge], axis=-1)
    zoom = np.exp(np.clip(zooming / edge, -0.4, 0.4))
    # In a street the camera drives: forward, and about its upright axis where the road bends.
    way = traits.speed * np.exp(0.6 * dice.normal())
    way = np.minimum(way, 2.0)
    sway = dice.normal(4)
    driving = np.stack([0.05 * way * sway[:, 0], 0.01 * sway[:, 1], -way], axis=-1)
    bends = dice.chance(0.35)
    steering = np.stack(
        [0.003 * sway[:, 2], np.where(bends, 0.03, 0.004) * sway[:, 3], 0.002 * sway[:, 0]], axis=-1
    )
    street = kind == STREET
    shift[:, 2] = np.clip(shift[:, 2], -0.45 * reference, 0.45 * reference)
    return (
        np.where(street[:, None], steering, np.clip(angles, -0.5, 0.5)),
        np.where(street[:, None], driving, shift),
        np.where(street, 1.0, zoom),
    )


def build_set(
    traits: Traits[Array], dice: Dice, stage: Stage, size: tuple[int, int]
) -> tuple[Sheets, Array]:
    """The set's four sheets, from far to near, and which of them are there."""
    count = len(dice)
    half = stage.far * max(size) / 2 / stage.camera.focal
    centre, right, down = (np.zeros((count, SET_LAYERS, 3)) for _ in range(3))
    there = dice.chance(traits.screens[:, None], SET_LAYERS)
    there[:, 0] = True

    # 0: the backdrop, upright before the camera, tilted in an open set.
    lean = np.clip(dice.normal(3), -1.5, 1.5) * (0.55 * traits.tilt * (stage.kind == OPEN))[:, None]
    lean[:, 2] *= 0.3
    orientation = rotation(*lean.T)
    centre[:, 0, 2] = stage.far
    right[:, 0] = orientation[..., 0] * half[:, None]
    down[:, 0] = orientation[..., 1] * half[:, None]

    # 1: the ground; 2 and 3: walls to the left and right of a street, or rows of things far off.
    ground = stage.kind != OPEN
    there[:, 1] |= ground
    centre[:, 1] = np.stack([0 * half, stage.height, 0 * half + 10], axis=-1)
    right[:, 1, 0] = 10.0
    down[:, 1, 2] = -10.0
    tall, long = dice.log_between(2.0, 9.0, 2), dice.between(14.0, 60.0, 2)
    aside = dice.log_between(3.5, 15.0, 2) * np.array([-1.0, 1.0])
    begin = dice.between(-12.0, 12.0, 2)
    distance = np.sort(dice.log_between(0.15, 0.7, 2), axis=1)[:, ::-1] * stage.far[:, None]
    for slot in (2, 3):
        w = slot - 2
        wall = np.stack([aside[:, w], stage.height - tall[:, w], begin[:, w] + long[:, w]], axis=-1)
        wide = distance[:, w] * max(size) / stage.camera.focal
        row = np.stack([0 * half, stage.height - 0.15 * wide, distance[:, w]], axis=-1)
        street = (stage.kind == STREET)[:, None]
        centre[:, slot] = np.where(street, wall, row)
        right[:, slot] = np.where(
            street, long[:, w, None] * [0.0, 0.0, 1.0], wide[:, None] * [1.0, 0.0, 0.0]
        )
        down[:, slot] = np.where(
            street, tall[:, w, None] * [0.0, 1.0, 0.0], 0.15 * wide[:, None] * [0.0, 1.0, 0.0]
        )
    screens = _screens(dice, stage, size)
    opened = (stage.kind == OPEN)[:, None, None]
    centre[:, 1:] = np.where(opened, screens.centre, centre[:, 1:])
    right[:, 1:] = np.where(opened, screens.right, right[:, 1:])
    down[:, 1:] = np.where(opened, screens.down, down[:, 1:])
    return Sheets.resting(centre, right, down), there


def _screens(dice: Dice, stage: Stage, size: tuple[int, int]) -> Sheets:
    """Three large sheets with holes or a ragged edge, at depths before an open set's backdrop."""
    count, layers = len(dice), SET_LAYERS - 1
    nearer = np.sort(dice.log_between(0.3, 0.85, layers), axis=1)[:, ::-1]
    depth = stage.far[:, None] * nearer
    per_pixel = depth / stage.camera.focal[:, None]
    reach = dice.between(0.5, 1.3, layers) * max(size) / 2 * per_pixel
    x = dice.between(-0.5, 0.5, layers) * size[1] * per_pixel
    y = dice.between(-0.2, 0.6, layers) * size[0] * per_pixel
    lean = dice.normal(layers, 3) * 0.12
    orientation = rotation(lean[..., 0], lean[..., 1], lean[..., 2])
    axes = orientation * reach[..., None, None]
    centre = np.stack([x, y, depth], axis=-1)
    return Sheets.resting(centre, axes[..., 0].reshape(count, layers, 3), axes[..., 1])


def towards(stage: Stage, x: Array, y: Array, depth: Array) -> Array:
    """The point of the world that the first frame shows at a pixel, at a depth; arrays `[b, l]`."""
    camera = stage.camera
    ray = np.stack(
        [
            (x - camera.centre[:, None, 0]) / camera.focal[:, None] * depth,
            (y - camera.centre[:, None, 1]) / camera.focal[:, None] * depth,
            depth,
        ],
        axis=-1,
    )
    return rotate(np.swapaxes(camera.view, -1, -2)[:, None], ray)
