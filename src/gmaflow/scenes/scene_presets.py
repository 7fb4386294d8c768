"""Presets: mixtures of kinds of scenes, and the distributions that each kind draws from.

Motions are in pixels of a frame with 400 rows and scale with the rows. A wider frame shows more of
the same scene.
"""

from dataclasses import dataclass, fields, replace
from typing import Generic, TypeVar

import numpy as np

from gmaflow.errors import check_known
from gmaflow.scenes.stateless_random import Array, StatelessRandom

Value = TypeVar("Value")

ROWS = 400.0
"""Rows of the frame that motions are given for."""


@dataclass(frozen=True, kw_only=True)
class Traits(Generic[Value]):
    """Parameters of a kind of scene: numbers for one kind, arrays `[b]` for a batch of pairs.

    Shares and probabilities are between 0 and 1. A motion has a median and a spread, the standard
    deviation of its logarithm.
    """

    # Shares of the settings: a backdrop behind screens, open ground, a street with walls.
    open_set: Value
    ground_set: Value
    street_set: Value
    screens: Value  # probability of each of the three planes between backdrop and objects
    tilt: Value  # tilt of the backdrop and of objects, radians

    # Camera motion.
    camera_motion: Value
    camera_spread: Value
    camera_roll: Value  # share of roll and zoom in the motion of the camera
    camera_forward: Value  # share of moving forward or back
    speed: Value  # median speed in a street, metres per frame
    still_pair: Value
    still_camera: Value

    # Objects.
    fewest: Value
    most: Value
    smallest: Value
    largest: Value  # largest radius of an object, as a share of the rows
    object_motion: Value
    object_spread: Value
    still_object: Value
    side_on: Value  # share of the upright objects that stand along the street, as cars do
    roll: Value
    turn: Value
    approach: Value
    bend: Value  # probability that a sheet bends
    strain: Value  # largest slope of the deformation
    limb: Value
    twin: Value
    cutout: Value
    thin: Value
    plain: Value
    gloss: Value  # probability that an object reflects its surroundings
    repeated: Value
    soft: Value

    # Light, air and lens: probabilities of each effect.
    shadow: Value
    shine: Value
    fog: Value
    defocus: Value
    motion_blur: Value
    blur: Value
    noise: Value
    compression: Value
    colour_change: Value  # how much exposure and colour differ between the frames, if they do


_CHAIRS = Traits(
    open_set=1.0, ground_set=0.0, street_set=0.0, screens=0.0, tilt=0.1,
    camera_motion=5.5, camera_spread=1.2, camera_roll=0.5, camera_forward=1.0, speed=0.5,
    still_pair=0.02, still_camera=0.08,
    fewest=2.0, most=10.0, smallest=0.06, largest=0.32,
    object_motion=12.0, object_spread=1.2, still_object=0.05, side_on=0.0,
    roll=0.16, turn=0.1, approach=0.08, bend=0.15, strain=0.25, limb=0.05, twin=0.15,
    cutout=0.55, thin=0.12, plain=0.08, gloss=0.0, repeated=0.08, soft=0.1,
    shadow=0.1, shine=0.1, fog=0.02, defocus=0.05, motion_blur=0.05, blur=0.1,
    noise=0.3, compression=0.2, colour_change=0.3,
)  # fmt: skip

_THINGS = Traits(
    open_set=0.65, ground_set=0.25, street_set=0.1, screens=0.3, tilt=0.5,
    camera_motion=14.0, camera_spread=1.1, camera_roll=0.3, camera_forward=1.0, speed=0.5,
    still_pair=0.01, still_camera=0.1,
    fewest=4.0, most=10.0, smallest=0.05, largest=0.5,
    object_motion=22.0, object_spread=1.1, still_object=0.1, side_on=0.0,
    roll=0.25, turn=0.25, approach=0.14, bend=0.15, strain=0.3, limb=0.1, twin=0.2,
    cutout=0.3, thin=0.25, plain=0.15, gloss=0.0, repeated=0.2, soft=0.1,
    shadow=0.3, shine=0.35, fog=0.05, defocus=0.25, motion_blur=0.3, blur=0.1,
    noise=0.3, compression=0.2, colour_change=0.4,
)  # fmt: skip

_FILM = Traits(
    open_set=0.5, ground_set=0.4, street_set=0.1, screens=0.35, tilt=0.4,
    camera_motion=3.4, camera_spread=1.45, camera_roll=0.15, camera_forward=1.0, speed=0.4,
    still_pair=0.02, still_camera=0.2,
    fewest=1.0, most=9.0, smallest=0.06, largest=0.7,
    object_motion=5.0, object_spread=1.4, still_object=0.25, side_on=0.0,
    roll=0.12, turn=0.15, approach=0.08, bend=0.4, strain=0.35, limb=0.35, twin=0.1,
    cutout=0.4, thin=0.2, plain=0.12, gloss=0.0, repeated=0.08, soft=0.2,
    shadow=0.5, shine=0.3, fog=0.3, defocus=0.4, motion_blur=0.6, blur=0.15,
    noise=0.3, compression=0.1, colour_change=0.25,
)  # fmt: skip

_CHASE = Traits(
    open_set=0.45, ground_set=0.45, street_set=0.1, screens=0.35, tilt=0.4,
    camera_motion=10.0, camera_spread=1.1, camera_roll=0.15, camera_forward=1.0, speed=0.6,
    still_pair=0.02, still_camera=0.15,
    fewest=2.0, most=7.0, smallest=0.22, largest=1.0,
    object_motion=35.0, object_spread=0.9, still_object=0.15, side_on=0.0,
    roll=0.15, turn=0.2, approach=0.12, bend=0.4, strain=0.35, limb=0.4, twin=0.1,
    cutout=0.4, thin=0.15, plain=0.12, gloss=0.0, repeated=0.08, soft=0.25,
    shadow=0.5, shine=0.3, fog=0.45, defocus=0.45, motion_blur=0.8, blur=0.15,
    noise=0.3, compression=0.1, colour_change=0.3,
)  # fmt: skip

# Deep holes: hidden pixels lie several cells of the 1/8 grid away from visible ones. A few large
# and solid objects move far in front of a calm camera, so more is hidden inside the frame than
# leaves it. Screens are rare: their bars would split the holes.
_DEEP_FILM = replace(
    _FILM,
    open_set=0.7, ground_set=0.3, street_set=0.0, screens=0.2,
    camera_motion=2.0, camera_spread=1.0,
    fewest=4.0, most=8.0, smallest=0.18, largest=0.65,
    object_motion=55.0, object_spread=0.7, still_object=0.05,
    limb=0.2, thin=0.05,
)  # fmt: skip

_DEEP_CHASE = replace(
    _CHASE,
    open_set=0.7, ground_set=0.3, street_set=0.0, screens=0.2,
    camera_motion=1.5, camera_spread=0.9,
    fewest=3.0, most=5.0, smallest=0.25, largest=0.7,
    object_motion=100.0, object_spread=0.6, still_object=0.0,
    limb=0.15, thin=0.0,
)  # fmt: skip

_DRIVE = Traits(
    open_set=0.0, ground_set=0.15, street_set=0.85, screens=0.75, tilt=0.05,
    camera_motion=5.0, camera_spread=0.9, camera_roll=0.03, camera_forward=1.0, speed=0.75,
    still_pair=0.02, still_camera=0.06,
    fewest=2.0, most=10.0, smallest=0.05, largest=0.4,
    object_motion=5.0, object_spread=1.2, still_object=0.65, side_on=0.0,
    roll=0.02, turn=0.08, approach=0.05, bend=0.03, strain=0.1, limb=0.03, twin=0.15,
    cutout=0.45, thin=0.3, plain=0.2, gloss=0.0, repeated=0.15, soft=0.05,
    shadow=0.6, shine=0.4, fog=0.1, defocus=0.05, motion_blur=0.15, blur=0.2,
    noise=0.5, compression=0.15, colour_change=0.3,
)  # fmt: skip

# KITTI's car drives at up to 90 km/h: 2.5 m between two frames. Many cars move too. Most are seen
# from an angle: the motion of an oncoming car differs much between its near end and its far end.
_FAST_DRIVE = replace(_DRIVE, speed=1.25, still_object=0.45, side_on=0.6)

# Cars are smooth: matching their paint and windows finds the motion of what they reflect.
_GLOSSY_DRIVE = replace(_FAST_DRIVE, gloss=0.6)

# Everything is only translated. Estimated translations have a bias that repeats with the cells of
# the 1/8 grid, and little else is difficult in these pairs.
_PAN = replace(
    _CHAIRS,
    tilt=0.0, camera_motion=11.0, camera_spread=0.7, camera_roll=0.0, camera_forward=0.0,
    still_camera=0.0, fewest=0.0, most=6.0, largest=0.4,
    object_motion=12.0, object_spread=0.7, still_object=0.0,
    roll=0.0, turn=0.0, approach=0.0, bend=0.0, limb=0.0,
)  # fmt: skip

KINDS = {
    "chairs": _CHAIRS,
    "things": _THINGS,
    "film": _FILM,
    "chase": _CHASE,
    "drive": _DRIVE,
    "deep-film": _DEEP_FILM,
    "deep-chase": _DEEP_CHASE,
    "fast-drive": _FAST_DRIVE,
    "glossy-drive": _GLOSSY_DRIVE,
    "pan": _PAN,
}


@dataclass(frozen=True)
class PresetInfo:
    """Description of a preset."""

    about: str
    size: tuple[int, int]  # of the data set it imitates; any size can be rendered


_MIXES = {
    "mix": {"chairs": 0.15, "things": 0.25, "film": 0.35, "drive": 0.25},
    "fast-mix": {"chairs": 0.15, "things": 0.2, "film": 0.25, "chase": 0.2, "drive": 0.2},
    "deep-mix": {"chairs": 0.1, "things": 0.1, "deep-film": 0.35, "deep-chase": 0.35, "drive": 0.1},
    "wide-mix": {
        "chairs": 0.1,
        "things": 0.15,
        "film": 0.2,
        "chase": 0.1,
        "deep-film": 0.15,
        "deep-chase": 0.1,
        "drive": 0.05,
        "fast-drive": 0.15,
    },
    "slow-mix": {
        "chairs": 0.15,
        "things": 0.15,
        "film": 0.35,
        "chase": 0.05,
        "deep-film": 0.05,
        "drive": 0.1,
        "fast-drive": 0.15,
    },
}


def _with_reflections(mix: dict[str, float], *, weight: float = 1.0) -> dict[str, float]:
    """Return the shares of a mix times a weight, with glossy-drive instead of fast-drive."""
    return {
        "glossy-drive" if kind == "fast-drive" else kind: weight * share
        for kind, share in mix.items()
    }


_MIXES["wide-mix-2"] = _with_reflections(_MIXES["wide-mix"])
_MIXES["slow-mix-2"] = _with_reflections(_MIXES["slow-mix"], weight=0.75) | {"pan": 0.25}
_MIXES["wide-mix-3"] = {
    "chairs": 0.08,
    "things": 0.12,
    "film": 0.18,
    "chase": 0.12,
    "deep-film": 0.12,
    "deep-chase": 0.08,
    "drive": 0.05,
    "glossy-drive": 0.17,
    "pan": 0.08,
}


def _of_mix(name: str, purpose: str, size: tuple[int, int]) -> PresetInfo:
    shares = " : ".join(f"{100 * share:.0f}" for share in _MIXES[name].values())
    return PresetInfo(f"{', '.join(_MIXES[name])} as {shares}; {purpose}", size)


PRESET_INFO = {
    "chairs": PresetInfo("cut-outs moving over one picture, like FlyingChairs", (384, 512)),
    "things": PresetInfo("many fast, rotating, near objects, like FlyingThings3D", (540, 960)),
    "film": PresetInfo("characters with blur, fog and defocus, like Sintel", (436, 1024)),
    "chase": PresetInfo("film with large, fast objects in fog and blur", (436, 1024)),
    "drive": PresetInfo("streets from a moving car, like KITTI", (375, 1242)),
    "mix": _of_mix("mix", "for training", (368, 496)),
    "fast-mix": _of_mix("fast-mix", "for the last stage", (368, 768)),
    "deep-film": PresetInfo("film with large moving objects that hide much", (436, 1024)),
    "deep-chase": PresetInfo("chase with a calm camera; the deepest holes", (436, 1024)),
    "fast-drive": PresetInfo(
        "drive at about 45 km/h, up to 90, with more moving cars", (375, 1242)
    ),
    "glossy-drive": PresetInfo("fast-drive with objects that reflect something else", (375, 1242)),
    "pan": PresetInfo("chairs in which everything only shifts", (384, 512)),
    "deep-mix": _of_mix("deep-mix", "for learning hidden motion", (368, 768)),
    "wide-mix": _of_mix("wide-mix", "for long runs", (368, 768)),
    "slow-mix": _of_mix("slow-mix", "for long runs on small crops", (320, 448)),
    "wide-mix-2": _of_mix("wide-mix-2", "wide-mix with reflections", (368, 768)),
    "slow-mix-2": _of_mix("slow-mix-2", "slow-mix with reflections and pan", (320, 448)),
    "wide-mix-3": _of_mix("wide-mix-3", "wide-mix-2 with more fast scenes, and pan", (368, 768)),
}
PRESETS: dict[str, dict[str, float]] = {name: _MIXES.get(name, {name: 1.0}) for name in PRESET_INFO}
"""Each preset as shares of the kinds of scenes in `KINDS`."""


def check_preset(preset: str) -> None:
    check_known("preset", preset, PRESETS)


def draw_traits(preset: str, rng: StatelessRandom) -> Traits[Array]:
    """Draw the kind of each pair and return the traits of these kinds, as arrays `[b]`."""
    check_preset(preset)
    shares = PRESETS[preset]
    kind = rng.category(np.array(list(shares.values())))
    drawn = {
        field.name: np.array([getattr(KINDS[name], field.name) for name in shares])[kind]
        for field in fields(Traits)
    }
    return Traits(**drawn)
