"""The 3-D layout of a scene: camera, background and objects, and how they move."""

from dataclasses import dataclass, replace

import numpy as np

from gmaflow.scenes.scene_presets import ROWS, Traits
from gmaflow.scenes.sheet_geometry import Camera, Sheets, cross, rotate, rotation
from gmaflow.scenes.stateless_random import Array, StatelessRandom

OPEN, GROUND, STREET = range(3)
"""Settings: a backdrop behind screens, open ground, a street with walls."""
BACKGROUND_LAYERS = 4
OBJECT_LAYERS = 10
BACKDROP = 10.0
"""Depth of the backdrop in an open setting; only ratios of depths matter there."""
_REFERENCE_DEPTH = 8.0
"""Depth in metres at which camera motion over open ground has the size given by the preset."""


@dataclass(frozen=True)
class Setting:
    """The setting of a scene and its camera. Arrays `[b]`."""

    kind: Array  # OPEN, GROUND or STREET
    camera: Camera
    height: Array  # of the camera above the ground, metres
    far: Array  # depth of the backdrop
    motion_factor: Array  # of objects: pairs with a fast camera have fast objects
    still: Array  # whether nothing moves


def draw_setting(traits: Traits[Array], rng: StatelessRandom, size: tuple[int, int]) -> Setting:
    """Draw the kind of setting and the motion of the camera."""
    rows, columns = size
    count = len(rng)
    kind = rng.category(np.stack([traits.open_set, traits.ground_set, traits.street_set], axis=-1))
    focal = rows * np.where(kind == STREET, rng.between(1.6, 2.2), rng.between(1.1, 2.2))
    # A narrow frame of a street is a crop of a wide one.
    spare = max(3.3 * rows - columns, 0.0) * 0.3
    off_centre = np.where(kind == STREET, rng.between(-spare, spare), 0.0)
    centre = np.stack([(columns - 1) / 2 + off_centre, np.full(count, (rows - 1) / 2)], axis=-1)
    height = np.where(kind == STREET, rng.between(1.4, 2.0), rng.log_between(0.8, 4.0))
    far = np.where(kind == OPEN, BACKDROP, rng.log_between(60.0, 300.0))
    pitch = np.where(kind == OPEN, 0.0, rng.normal() * np.where(kind == GROUND, 0.1, 0.03))
    roll = np.where(kind == OPEN, 0.0, rng.normal() * np.where(kind == GROUND, 0.05, 0.01))
    view = rotation(pitch, np.zeros(count), roll)

    liveliness = rng.normal()
    motion = traits.camera_motion * np.exp(traits.camera_spread * liveliness) * rows / ROWS
    motion = np.minimum(motion, 0.8 * rows)
    still = rng.chance(traits.still_pair)
    rests = still | rng.chance(traits.still_camera)
    turn, shift, zoom = _camera_motion(traits, rng, kind, (motion, focal, columns))
    turn, shift, zoom = (np.where(rests[(...,) + (None,) * (a.ndim - 1)], r, a) for a, r in (
        (turn, np.zeros(3)), (shift, np.zeros(3)), (zoom, np.ones(())),
    ))  # fmt: skip
    camera = Camera(focal, zoom, centre, view, rotation(*turn.T), shift)
    return Setting(kind, camera, height, far, np.exp(0.5 * liveliness), still)


def _camera_motion(
    traits: Traits[Array], rng: StatelessRandom, kind: Array, scales: tuple[Array, Array, int]
) -> tuple[Array, Array, Array]:
    """Rotation angles, shift and zoom that together move the image by about `motion` pixels."""
    motion, focal, columns = scales
    # Sideways, up, forward, pan, tilt, roll, zoom; cubing lets one or two of them dominate.
    shares = rng.uniform(7) ** 3
    shares[:, 1] *= 0.5
    shares[:, 2] *= traits.camera_forward
    shares[:, 4] *= 0.5
    shares[:, 5:] *= 2 * traits.camera_roll[:, None]
    shares = shares / np.sqrt((shares**2).sum(axis=1, keepdims=True)) * rng.sign(7)
    amount = shares * motion[:, None]
    _, _, _, pan, tilt, roll, zooming = amount.T
    edge = columns / 2
    # Pan and tilt move the whole image by the given amount, a sideways shift moves what is at the
    # reference depth by it; moving forward, rolling and zooming move the left and right edges.
    reference = np.where(kind == OPEN, 0.6 * BACKDROP, _REFERENCE_DEPTH)
    shift = amount[:, :3] * reference[:, None] / np.stack([focal, focal, focal * 0 + edge], axis=-1)
    angles = np.stack([tilt / focal, pan / focal, roll / edge], axis=-1)
    zoom = np.exp(np.clip(zooming / edge, -0.4, 0.4))
    # In a street the camera drives forward and turns where the road bends.
    way = traits.speed * np.exp(0.6 * rng.normal())
    way = np.minimum(way, np.maximum(2.0, 2 * traits.speed))
    sway = rng.normal(4)
    driving = np.stack([0.05 * way * sway[:, 0], 0.01 * sway[:, 1], -way], axis=-1)
    bends = rng.chance(0.35)
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


def draw_background(
    traits: Traits[Array], rng: StatelessRandom, setting: Setting, size: tuple[int, int]
) -> tuple[Sheets, Array]:
    """Draw the four background sheets, from far to near, and which of them are present."""
    count = len(rng)
    half = setting.far * max(size) / 2 / setting.camera.focal
    centre, right, down = (np.zeros((count, BACKGROUND_LAYERS, 3)) for _ in range(3))
    present = rng.chance(traits.screens[:, None], BACKGROUND_LAYERS)
    present[:, 0] = True

    # 0: the backdrop, tilted in an open setting.
    lean = (
        np.clip(rng.normal(3), -1.5, 1.5) * (0.55 * traits.tilt * (setting.kind == OPEN))[:, None]
    )
    lean[:, 2] *= 0.3
    orientation = rotation(*lean.T)
    centre[:, 0, 2] = setting.far
    right[:, 0] = orientation[..., 0] * half[:, None]
    down[:, 0] = orientation[..., 1] * half[:, None]

    # 1: the ground; 2 and 3: walls left and right of a street, or distant skylines.
    ground = setting.kind != OPEN
    present[:, 1] |= ground
    centre[:, 1] = np.stack([0 * half, setting.height, 0 * half + 10], axis=-1)
    right[:, 1, 0] = 10.0
    down[:, 1, 2] = -10.0
    tall, long = rng.log_between(2.0, 9.0, 2), rng.between(14.0, 60.0, 2)
    aside = rng.log_between(3.5, 15.0, 2) * np.array([-1.0, 1.0])
    begin = rng.between(-12.0, 12.0, 2)
    distance = np.sort(rng.log_between(0.15, 0.7, 2), axis=1)[:, ::-1] * setting.far[:, None]
    for slot in (2, 3):
        w = slot - 2
        wall = np.stack(
            [aside[:, w], setting.height - tall[:, w], begin[:, w] + long[:, w]], axis=-1
        )
        wide = distance[:, w] * max(size) / setting.camera.focal
        row = np.stack([0 * half, setting.height - 0.15 * wide, distance[:, w]], axis=-1)
        street = (setting.kind == STREET)[:, None]
        centre[:, slot] = np.where(street, wall, row)
        right[:, slot] = np.where(
            street, long[:, w, None] * [0.0, 0.0, 1.0], wide[:, None] * [1.0, 0.0, 0.0]
        )
        down[:, slot] = np.where(
            street, tall[:, w, None] * [0.0, 1.0, 0.0], 0.15 * wide[:, None] * [0.0, 1.0, 0.0]
        )
    screens = _screens(rng, setting, size)
    opened = (setting.kind == OPEN)[:, None, None]
    centre[:, 1:] = np.where(opened, screens.centre, centre[:, 1:])
    right[:, 1:] = np.where(opened, screens.right, right[:, 1:])
    down[:, 1:] = np.where(opened, screens.down, down[:, 1:])
    return Sheets.resting(centre, right, down), present


def _screens(rng: StatelessRandom, setting: Setting, size: tuple[int, int]) -> Sheets:
    """Three large sheets with holes or ragged edges in front of the backdrop of an open setting."""
    count, layers = len(rng), BACKGROUND_LAYERS - 1
    nearer = np.sort(rng.log_between(0.3, 0.85, layers), axis=1)[:, ::-1]
    depth = setting.far[:, None] * nearer
    per_pixel = depth / setting.camera.focal[:, None]
    reach = rng.between(0.5, 1.3, layers) * max(size) / 2 * per_pixel
    x = rng.between(-0.5, 0.5, layers) * size[1] * per_pixel
    y = rng.between(-0.2, 0.6, layers) * size[0] * per_pixel
    lean = rng.normal(layers, 3) * 0.12
    orientation = rotation(lean[..., 0], lean[..., 1], lean[..., 2])
    axes = orientation * reach[..., None, None]
    centre = np.stack([x, y, depth], axis=-1)
    return Sheets.resting(centre, axes[..., 0].reshape(count, layers, 3), axes[..., 1])


def unproject(setting: Setting, x: Array, y: Array, depth: Array) -> Array:
    """World points that pixels of the first frame show at a given depth; arrays `[b, l]`."""
    camera = setting.camera
    ray = np.stack(
        [
            (x - camera.centre[:, None, 0]) / camera.focal[:, None] * depth,
            (y - camera.centre[:, None, 1]) / camera.focal[:, None] * depth,
            depth,
        ],
        axis=-1,
    )
    return rotate(np.swapaxes(camera.view, -1, -2)[:, None], ray)


@dataclass(frozen=True)
class SceneObjects:
    """The objects of a batch of scenes, from far to near. Arrays `[b, l]`."""

    sheets: Sheets  # their planes and motion
    present: Array  # whether the layer is used
    limb: Array  # whether it is attached to the object before it
    twin: Array  # whether it looks like the object before it


def draw_objects(
    traits: Traits[Array], rng: StatelessRandom, setting: Setting, size: tuple[int, int]
) -> SceneObjects:
    """Draw where objects are, how large they are and how they move."""
    rows, columns = size
    layers = OBJECT_LAYERS
    on_ground = (setting.kind != OPEN)[:, None]
    count = rng.between(traits.fewest, traits.most + 1)
    # Unused layers come first, so that the layer before a limb is always its owner's.
    present = np.arange(layers)[None] >= layers - np.floor(count)[:, None]
    focal = setting.camera.focal[:, None]
    nearness = np.sort(rng.uniform(layers), axis=1)
    depth = np.where(on_ground, 55.0 * (4.5 / 55.0) ** nearness, 9.0 * (1 / 5.0) ** nearness)
    upright = on_ground & rng.chance(0.85, layers)

    per_pixel = depth / focal
    radius = rows * rng.log_between(traits.smallest[:, None], traits.largest[:, None], layers)
    metres = rng.log_between(0.5, 2.4, layers)
    radius = np.where(upright, np.minimum(metres / per_pixel, 0.55 * rows), radius)

    speed = _speeds(traits, rng, setting, size)
    heading = rng.between(0.0, 2 * np.pi, layers)
    dx, dy = speed * np.cos(heading), speed * np.sin(heading) * np.where(upright, 0.05, 1.0)
    # Positions are drawn for the moment halfway between the frames, so that as many objects leave
    # the frame as enter it.
    x = rng.between(-0.08, 1.08, layers) * columns - dx / 2
    y = rng.between(-0.08, 1.08, layers) * rows - dy / 2
    centre = unproject(setting, x, y, depth)
    feet = setting.height[:, None] - radius * per_pixel * 0.93
    centre[..., 1] = np.where(upright, feet, centre[..., 1])

    tilt = np.clip(rng.normal(2, layers), -2, 2) * 0.5 * traits.tilt[:, None, None]
    tilt = np.where(upright[:, None], tilt * 0.3, tilt)
    spin = rng.between(-np.pi, np.pi, layers) * np.where(rng.chance(0.5, layers), 1.0, 0.1)
    spin = np.where(upright, 0.02 * spin, spin)
    # Drawn from a stream of their own: other presets were there before.
    cars = rng.branch(1)
    side_on = upright & cars.chance(traits.side_on[:, None], layers)
    yaw = np.where(side_on, cars.sign(layers) * cars.between(0.8, 1.45, layers), tilt[:, 1])
    orientation = rotation(tilt[:, 0], yaw, spin)
    orientation = np.swapaxes(setting.camera.view, -1, -2)[:, None] @ orientation
    slim = rng.log_between(0.6, 1.0, layers) * np.where(side_on, 2.2, 1.0)
    axes = orientation * (radius * per_pixel)[..., None, None]

    moves = (speed > 0)[..., None]
    sheets = Sheets.resting(centre, axes[..., 0] * slim[..., None], axes[..., 1])
    sheets = replace(
        sheets,
        turn=np.where(moves[..., None], _turns(traits, rng, upright), sheets.turn),
        shift=np.where(moves, _shifts(traits, rng, setting, (dx, dy, depth, upright)), 0.0),
    )
    limb = rng.chance(traits.limb[:, None], layers) & present
    limb[:, 1:] &= present[:, :-1]
    limb[:, 0] = False
    sheets = _attach_limbs(sheets, limb, rng, setting.still)
    twin = rng.chance(traits.twin[:, None], layers) & ~limb
    twin[:, 0] = False
    return SceneObjects(sheets, present, limb, twin)


def _speeds(
    traits: Traits[Array], rng: StatelessRandom, setting: Setting, size: tuple[int, int]
) -> Array:
    """Pixels that each object moves, not counting the motion of the camera."""
    median = traits.object_motion * setting.motion_factor * size[0] / ROWS
    spread = traits.object_spread[:, None] * rng.normal(OBJECT_LAYERS)
    speed = np.minimum(median[:, None] * np.exp(spread), size[0])
    rests = rng.chance(traits.still_object[:, None], OBJECT_LAYERS) | setting.still[:, None]
    return np.where(rests, 0.0, speed)


def _turns(traits: Traits[Array], rng: StatelessRandom, upright: Array) -> Array:
    angles = rng.normal(3, OBJECT_LAYERS)
    angles[:, :2] *= traits.turn[:, None, None] * 0.6
    angles[:, 2] *= traits.roll[:, None] * np.where(upright, 0.15, 1.0)
    angles = np.clip(angles, -1.0, 1.0)
    return rotation(angles[:, 0], angles[:, 1], angles[:, 2])


def _shifts(
    traits: Traits[Array],
    rng: StatelessRandom,
    setting: Setting,
    motion: tuple[Array, Array, Array, Array],
) -> Array:
    dx, dy, depth, upright = motion
    per_pixel = depth / setting.camera.focal[:, None]
    nearer = np.clip(rng.normal(OBJECT_LAYERS) * traits.approach[:, None], -0.35, 0.3)
    along = -nearer * depth
    # Vehicles in a street drive along it in both directions, about as fast as the camera.
    ride = traits.speed[:, None] * rng.sign(OBJECT_LAYERS)
    ride = ride * np.exp(0.5 * rng.normal(OBJECT_LAYERS))
    rides = upright & (setting.kind == STREET)[:, None] & rng.chance(0.8, OBJECT_LAYERS)
    along = np.where(rides, np.clip(ride, -0.25 * depth, 0.25 * depth), along)
    sideways = np.where(rides, 0.2 * dx, dx) * per_pixel
    return np.stack([sideways, dy * per_pixel, along], axis=-1)


def _attach_limbs(sheets: Sheets, limb: Array, rng: StatelessRandom, still: Array) -> Sheets:
    """Attach each limb to the sheet before it, by a joint about which it turns."""
    layers = limb.shape[1]
    angle = np.clip(0.35 * rng.normal(layers), -1.2, 1.2) * ~still[:, None]
    rest = rng.between(-np.pi, np.pi, layers)
    where = rng.between(-0.55, 0.55, layers, 2)
    length = rng.between(0.45, 0.9, layers)
    centre, right, down = sheets.centre.copy(), sheets.right.copy(), sheets.down.copy()
    turn, pivot, shift = sheets.turn.copy(), sheets.pivot.copy(), sheets.shift.copy()
    for i in range(1, layers):
        attached = limb[:, i, None]
        owner_right, owner_down = right[:, i - 1], down[:, i - 1]
        joint = centre[:, i - 1] + where[:, i, :1] * owner_right + where[:, i, 1:] * owner_down
        c, s = np.cos(rest[:, i, None]), np.sin(rest[:, i, None])
        limb_right = length[:, i, None] * (c * owner_right + s * owner_down)
        limb_down = length[:, i, None] * (c * owner_down - s * owner_right)
        # A limb turns about its joint and with its owner. The joint is the pivot, so the shift is
        # how far the motion of the owner carries the joint.
        about_joint = _about(cross(owner_right, owner_down), angle[:, i])
        carried = rotate(turn[:, i - 1], joint - pivot[:, i - 1]) + pivot[:, i - 1]
        values = (
            (centre, joint + 0.8 * limb_down),
            (right, limb_right),
            (down, limb_down),
            (pivot, joint),
            (shift, carried + shift[:, i - 1] - joint),
        )
        for array, value in values:
            array[:, i] = np.where(attached, value, array[:, i])
        turn[:, i] = np.where(attached[..., None], turn[:, i - 1] @ about_joint, turn[:, i])
    return Sheets(centre, right, down, turn, pivot, shift)


def _about(axis: Array, angle: Array) -> Array:
    """Rotation about an axis `[b, 3]` by an angle `[b]` (Rodrigues)."""
    unit = axis / np.sqrt((axis * axis).sum(axis=-1, keepdims=True))
    x, y, z = unit.T
    zero = np.zeros_like(x)
    product = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=-1).reshape(-1, 3, 3)
    s, c = np.sin(angle)[:, None, None], np.cos(angle)[:, None, None]
    return np.eye(3) + s * product + (1 - c) * (product @ product)
