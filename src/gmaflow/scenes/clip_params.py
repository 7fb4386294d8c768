"""The parameters of clips: scenes whose motion goes on through any number of frames.

A clip begins with the first frame of the pair of the same number. Everything then swings: after t
frames the motion of the pair is applied

    s(t) = amplitude * sin(t / amplitude)

times, which is about t at first. So things move about as fast as in the pair, turn back, and come
out again from behind what hid them. Each part of each motion has its own amplitude. Long motions
are slowed down, so that the scene stays in view.
"""

from dataclasses import dataclass, replace

import numpy as np

from gmaflow.scenes.scene_layout import OPEN, STREET
from gmaflow.scenes.scene_params import draw_motion, geometry
from gmaflow.scenes.sheet_geometry import Camera, Sheets, homographies, power, rotate
from gmaflow.scenes.stateless_random import Array, StatelessRandom
from gmaflow.scenes.texture_bank import TextureBank

_OTHER_NUMBERS = 0x636C6970
"""Makes the random numbers of clips others than those of pairs."""
_BLENDED = (
    "push", "reflection_map", "gain", "highlight", "to_shadow",
    "brightness", "contrast", "saturation", "colour_balance", "slope",
)  # fmt: skip
"""Parameters that go back and forth between their values in both frames of the pair."""

_SIDEWAYS = 1.0
"""Farthest that the camera carries the picture to one side, as a share of the rows."""
_FORWARD = {OPEN: 1.0, STREET: 12.0}
_FORWARD_ON_GROUND = 3.0
"""Farthest that the camera moves forward, in units of depth."""
_AWAY = 1.0
"""Farthest that an object moves to one side, as a share of the rows."""
_NEARER = 0.3
"""Farthest that an object approaches, as a share of its depth."""
_CAMERA_TURN, _OBJECT_TURN, _LIMB_TURN, _ZOOM = 0.6, 1.0, 1.2, 0.5
"""Largest angles, and the logarithm of the largest zoom."""


@dataclass(frozen=True)
class _Swing:
    """The amplitude of a motion, in motions of the pair, and a factor that slows it down."""

    amplitude: Array
    slower: Array

    @classmethod
    def draw(cls, rng: StatelessRandom, motion: Array, farthest: float | Array) -> "_Swing":
        """Draw amplitudes for motions `[b, ...]`, none of which goes beyond `farthest`."""
        amplitude = rng.log_between(8.0, 40.0, *motion.shape[1:])
        way = np.maximum(amplitude * np.abs(motion), 1e-12)
        return cls(amplitude, np.minimum(1.0, farthest / way))

    def at(self, time: int) -> Array:
        """How many times the motion of the pair is applied after `time` frames."""
        return self.slower * self.amplitude * np.sin(time / self.amplitude)


class ClipParams:
    """The parameters of the clip that begins with the pair `number`, for any two of its frames."""

    def __init__(
        self, preset: str, seed: int, number: int, size: tuple[int, int], bank: TextureBank
    ) -> None:
        numbers = np.array([number])
        self.appearance, self._motion = draw_motion(preset, seed, numbers, size, bank)
        rng = StatelessRandom(seed ^ _OTHER_NUMBERS, numbers)
        sheets, camera, kind = self._motion.sheets, self._motion.camera, self._motion.kind
        rows = size[0]
        reference = np.where(kind == OPEN, 6.0, 8.0)
        aside = _SIDEWAYS * rows * reference / camera.focal
        forward = np.select([kind == k for k in _FORWARD], list(_FORWARD.values()))
        forward = np.where(forward > 0, forward, _FORWARD_ON_GROUND)
        reach = np.stack([aside, aside, forward], axis=-1)
        depth = np.abs(sheets.centre[..., 2])
        away = _AWAY * rows * depth / camera.focal[:, None]
        self._camera_shift = _Swing.draw(rng, camera.shift, reach)
        self._camera_turn = _Swing.draw(rng, _angle(camera.turn), _CAMERA_TURN)
        self._zoom = _Swing.draw(rng, np.log(camera.zoom), _ZOOM)
        object_reach = np.stack([away, away, _NEARER * depth], axis=-1)
        self._shift = _Swing.draw(rng, sheets.shift, object_reach)
        self._turn = _Swing.draw(rng, _angle(sheets.turn), _OBJECT_TURN)
        self._limb_turn = _Swing.draw(rng, _angle(_about_joints(sheets)), _LIMB_TURN)
        self._period = rng.log_between(12.0, 48.0)

    def between(self, first: int, second: int) -> dict[str, Array]:
        """The parameters of `Scenes`, with these two frames of the clip as first and second."""
        poses = [homographies(*self._moved(time))[1] for time in (first, second)]
        frames = {}
        for name in _BLENDED:
            begin, end = self.appearance[name][:, 0], self.appearance[name][:, 1]
            shares = ((1 - np.cos(2 * np.pi * time / self._period)) / 2 for time in (first, second))
            frames[name] = np.stack([begin + (end - begin) * share for share in shares], axis=1)
        # Each frame has its own noise.
        number = self.appearance["number"] + first
        return self.appearance | geometry(*poses) | frames | {"number": number}

    def _moved(self, time: int) -> tuple[Sheets, Camera]:
        """Sheets and camera whose motion is the one from the first frame of the clip to `time`."""
        sheets, camera = self._motion.sheets, self._motion.camera
        camera = replace(
            camera,
            shift=camera.shift * self._camera_shift.at(time),
            turn=power(camera.turn, self._camera_turn.at(time)),
            zoom=camera.zoom ** self._zoom.at(time),
        )
        turn = power(sheets.turn, self._turn.at(time))
        shift = sheets.shift * self._shift.at(time)
        about_joint = power(_about_joints(sheets), self._limb_turn.at(time))
        for i in range(1, turn.shape[1]):
            # A limb turns about its joint, the pivot, which its owner carries along.
            limb = self._motion.limb[:, i, None]
            joint, owner = sheets.pivot[:, i], sheets.pivot[:, i - 1]
            carried = rotate(turn[:, i - 1], joint - owner) + owner + shift[:, i - 1]
            turn[:, i] = np.where(limb[..., None], turn[:, i - 1] @ about_joint[:, i], turn[:, i])
            shift[:, i] = np.where(limb, carried - joint, shift[:, i])
        return replace(sheets, turn=turn, shift=shift), camera


def _about_joints(sheets: Sheets) -> Array:
    """The rotation of each sheet relative to the one before it, `[b, l, 3, 3]`."""
    before = np.roll(sheets.turn, 1, axis=1)
    return np.swapaxes(before, -1, -2) @ sheets.turn


def _angle(turn: Array) -> Array:
    """The angle of rotations `[..., 3, 3]`."""
    cosine = (np.trace(turn, axis1=-2, axis2=-1) - 1) / 2
    return np.arccos(np.clip(cosine, -1, 1))
