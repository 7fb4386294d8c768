"""The parameters of scenes, and how they are drawn from a preset, a seed and the pair's number.

A scene is a stack of layers from far to near; a later layer covers an earlier one. A layer is a
flat sheet. Its own coordinates, the canvas, run from -1 to 1 over its silhouette. In frame t a
point c of the canvas is at pixel

    x_t = H_t( bend_t(c) )

where H_t is the homography of the posed plane and bend_t a smooth deformation. Both have inverses
in closed form, so a point can be followed exactly from either frame to the other.

All random choices are made here, on the CPU in double precision. The device gets only the finished
parameters, so that a GPU renders the same scene as the CPU.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.scenes.appearance_params import (
    EMPTY,
    LAYERS,
    draw_air,
    draw_bends,
    draw_gloss,
    draw_light,
    draw_paint,
    draw_shadow,
    draw_shapes,
    draw_shine,
    draw_textures,
    map_textures,
)
from gmaflow.scenes.scene_layout import (
    BACKGROUND_LAYERS,
    OPEN,
    draw_background,
    draw_objects,
    draw_setting,
)
from gmaflow.scenes.scene_presets import KINDS, PRESETS, draw_traits
from gmaflow.scenes.sheet_geometry import Camera, Sheets, across, homographies, inverse
from gmaflow.scenes.stateless_random import Array, StatelessRandom
from gmaflow.scenes.texture_bank import TextureBank

Shapes = tuple[tuple[int, ...], ...]

_PER_FRAME = (
    "to_canvas", "to_frame", "across", "push", "reflection_map", "gain", "highlight",
    "to_shadow", "brightness", "contrast", "saturation", "colour_balance", "slope",
)  # fmt: skip


@dataclass(frozen=True)
class Scenes:
    """Parameters of a batch of scenes.

    Axes: pair `b`, frame, components, layer `l`. Matrices are stored row by row. `_PER_FRAME` lists
    the parameters with a frame axis.
    """

    # Position and deformation of the layers.
    to_canvas: Float[Tensor, "b frame=2 9 l"]
    """Inverse of H_t; its third row gives the inverse depth."""
    to_frame: Float[Tensor, "b frame=2 9 l"]  # H_t
    across: Float[Tensor, "b frame=2 9 l"]
    """From pixels of frame t to pixels of the other frame, for an unbent sheet."""
    wave: Float[Tensor, "b bend=2 3 l"]  # wave vector (x, y) and phase of two bends
    push: Float[Tensor, "b frame=2 bend=2 xy=2 l"]
    """Amplitude of each bend in frame t; zero for a rigid sheet."""

    # Appearance of the layers.
    silhouette: Float[Tensor, "b l"]  # number in the texture bank
    edge_width: Float[Tensor, "b l"]
    """Width in pixels of the transition at the edge of the silhouette."""
    identity: Float[Tensor, "b l"]  # the object that the layer is part of
    texture: Float[Tensor, "b l"]  # number in the texture bank
    mirrored: Float[Tensor, "b l"]
    """1 if every other copy of the texture is mirrored, 0 if the texture tiles."""
    texture_map: Float[Tensor, "b 6 l"]  # canvas to texture coordinates in 0..1 (2 x 3)
    paint: Float[Tensor, "b rgb=3 l"]  # a plain colour
    texture_share: Float[Tensor, "b l"]  # how much of the texture shows through the paint
    reflectance: Float[Tensor, "b l"]  # share of the reflected light
    reflection: Float[Tensor, "b l"]  # the texture that is reflected
    reflection_map: Float[Tensor, "b frame=2 6 l"]  # pixel to texture coordinates (2 x 3)

    # Light on the layers.
    gain: Float[Tensor, "b frame=2 l"]
    highlight: Float[Tensor, "b frame=2 xy=2 l"]  # centre on the canvas
    highlight_width: Float[Tensor, "b l"]
    highlight_strength: Float[Tensor, "b l"]
    to_shadow: Float[Tensor, "b frame=2 6"]  # pixel to the canvas of the shadow (2 x 3)
    shadow_silhouette: Float[Tensor, " b"]
    shadow_strength: Float[Tensor, " b"]
    shadow_softness: Float[Tensor, " b"]  # texels from the outline of the silhouette to full shadow

    # Air, lens and sensor. Zero strength disables an effect.
    fog: Float[Tensor, " b"]  # density: the exponent of the light lost over a depth of 1
    fog_colour: Float[Tensor, "b rgb=3"]
    focus: Float[Tensor, " b"]  # inverse of the depth in focus
    aperture: Float[Tensor, " b"]
    """Blur radius in pixels for each unit of difference in inverse depth."""
    lens_blur: Float[Tensor, " b"]  # blur radius of the whole frame in pixels
    shutter: Float[Tensor, " b"]
    """Share of the time between the frames during which the shutter is open."""
    brightness: Float[Tensor, "b frame=2"]
    contrast: Float[Tensor, "b frame=2"]
    saturation: Float[Tensor, "b frame=2"]
    colour_balance: Float[Tensor, "b frame=2 rgb=3"]  # a factor for each colour
    slope: Float[Tensor, "b frame=2 xy=2"]
    """How much brighter the right and bottom edges are than the left and top ones."""
    noise: Float[Tensor, " b"]
    compression: Float[Tensor, " b"]

    number: Float[Tensor, "b half=2"]  # a random number for noise: its high and low 16 bits

    def reversed(self) -> "Scenes":
        """The same scenes backward in time: frame 2 comes first.

        So the code for the first frame serves both.
        """
        swapped = {name: getattr(self, name).flip(1) for name in _PER_FRAME}
        # Another number, so that the noise of the two frames is independent.
        return replace(self, **swapped, number=self.number + 1)

    @classmethod
    def pack(cls, arrays: dict[str, Array]) -> tuple[Float[Tensor, "b n"], Shapes]:
        """Pack all parameters into one float32 tensor on the CPU; also return their shapes."""
        parts = [np.ascontiguousarray(arrays[f.name], dtype=np.float32) for f in fields(cls)]
        count = len(parts[0])
        packed = np.concatenate([part.reshape(count, -1) for part in parts], axis=1)
        return torch.from_numpy(packed), tuple(part.shape[1:] for part in parts)

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], device: torch.device | str = "cpu") -> "Scenes":
        """Move parameters drawn by `draw_scenes` to a device."""
        packed, shapes = cls.pack(arrays)
        return cls.unpack(packed.to(device), shapes)

    @classmethod
    def unpack(cls, packed: Float[Tensor, "b n"], shapes: Shapes) -> "Scenes":
        """Take a packed tensor apart."""
        parameters, begin = [], 0
        for shape in shapes:
            size = math.prod(shape)
            # Copied, so that these have the same strides as the reversed scenes for the compiler.
            part = packed[:, begin : begin + size].contiguous()
            parameters.append(part.view(len(packed), *shape))
            begin += size
        return cls(*parameters)


def draw_scenes(
    preset: str, seed: int, pairs: Array, size: tuple[int, int], bank: TextureBank
) -> dict[str, Array]:
    """Draw the parameters of the pairs with the given numbers, by the names of `Scenes`."""
    appearance, motion = draw_motion(preset, seed, pairs, size, bank)
    return appearance | geometry(*homographies(motion.sheets, motion.camera))


class Motion(NamedTuple):
    """How the layers of a batch of scenes and their cameras move."""

    sheets: Sheets
    limb: Array
    """Which layers `[b, l]` are attached to the layer before."""
    camera: Camera
    kind: Array
    """The setting of each scene."""


def draw_motion(
    preset: str, seed: int, pairs: Array, size: tuple[int, int], bank: TextureBank
) -> tuple[dict[str, Array], Motion]:
    """Draw everything but the homographies, and the motion that gives them."""
    rng = StatelessRandom(seed, pairs)
    traits = draw_traits(preset, rng)
    setting = draw_setting(traits, rng, size)
    background, background_present = draw_background(traits, rng, setting, size)
    objects = draw_objects(traits, rng, setting, size)
    sheets = background.followed_by(objects.sheets)

    silhouettes = draw_shapes(traits, rng, setting.kind, background_present, objects, bank)
    textures, repeated = draw_textures(traits, rng, setting.kind, objects, silhouettes, bank)
    own_picture = (silhouettes >= bank.shapes["cutout"].start) & (len(bank.shapes["cutout"]) > 0)
    focal = setting.camera.focal
    texture_map = map_textures(rng, sheets, focal, own_picture, repeated, bank.size)
    wave, push = draw_bends(traits, rng, setting.still)
    soft = rng.chance(traits.soft[:, None], LAYERS)
    edge_width = np.where(soft, rng.between(2.0, 6.0, LAYERS), 1.0)
    nearest = np.where(setting.kind == OPEN, 2.0, 5.0)
    coat, reflections = draw_gloss(traits, rng.branch(2), size, bank)
    # The entries below draw random numbers too: another order would change the scenes.
    appearance = {
        "wave": wave,
        "push": push,
        "silhouette": silhouettes,
        "edge_width": edge_width,
        "identity": _identities(objects.limb),
        "texture": textures,
        "mirrored": ~np.array(bank.tileable)[textures],
        "texture_map": texture_map,
        **draw_paint(traits, rng, own_picture),
        **draw_shine(traits, rng),
        **draw_shadow(traits, rng, size, bank),
        **draw_light(traits, rng),
        **draw_air(traits, rng, size, (nearest, setting.far)),
        **reflections,
        "number": rng.index(65536, 2),
    }
    appearance["texture_share"] *= np.where(own_picture, 1.0, 1.0 - coat)
    limb = np.pad(objects.limb, ((0, 0), (BACKGROUND_LAYERS, 0)))
    return appearance, Motion(sheets, limb, setting.camera, setting.kind)


def geometry(first: Array, second: Array) -> dict[str, Array]:
    """The parameters that follow from the homographies of both frames, `[b, l, 3, 3]`."""
    return {
        "to_canvas": _rows(inverse(first), inverse(second)),
        "to_frame": _rows(first, second),
        "across": _rows(across(first, second), across(second, first)),
    }


def _rows(first: Array, second: Array) -> Array:
    """Stack the matrices `[b, l, 3, 3]` of both frames as `[b, 2, 9, l]`."""
    both = np.stack([first, second], axis=1)
    return both.reshape(*both.shape[:3], 9).swapaxes(2, 3)


def _identities(limb: Array) -> Array:
    """Number the objects after the background layers; a limb has the number of its owner."""
    number = np.cumsum(~limb, axis=1) + BACKGROUND_LAYERS - 1
    background = np.broadcast_to(np.arange(BACKGROUND_LAYERS), (len(limb), BACKGROUND_LAYERS))
    return np.concatenate([background, number], axis=1)


@dataclass(frozen=True)
class RenderPlan:
    """The layers to render, from far to near, and the costly effects to apply.

    A GPU does everything that a preset may need, so that it can replay one recording. A CPU skips
    empty layers and unused effects, which would not change a bit of the result.
    """

    layers: tuple[int, ...] = tuple(range(LAYERS))
    reflections: bool = True
    shadow: bool = True
    fog: bool = True
    defocus: bool = True
    motion_blur: bool = True
    noise: bool = True
    compression: bool = True

    @classmethod
    def for_preset(cls, preset: str) -> "RenderPlan":
        """The work that any scenes of a preset may need."""
        return cls(reflections=any(KINDS[kind].gloss > 0 for kind in PRESETS[preset]))

    @classmethod
    def for_scenes(cls, arrays: dict[str, Array]) -> "RenderPlan":
        """The work that scenes with these parameters need."""
        present = (arrays["silhouette"] != EMPTY).any(axis=0)

        def used(*effects: str) -> bool:
            return any(bool(arrays[effect].max() > 0) for effect in effects)

        return cls(
            layers=tuple(layer for layer in range(LAYERS) if present[layer]),
            reflections=used("reflectance"),
            shadow=used("shadow_strength"),
            fog=used("fog"),
            defocus=used("aperture", "lens_blur"),
            motion_blur=used("shutter"),
            noise=used("noise"),
            compression=used("compression"),
        )
