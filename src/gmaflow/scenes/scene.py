"""What the renderer is told: a stack of layers, posed in both frames, and the photometric effects.

A layer is a flat sheet. Its own coordinates, the canvas, run from -1 to 1 over its silhouette. In
each frame t a point c of the canvas lies at pixel

    x_t = H_t( bend_t(c) )

with H_t the homography of a pinhole camera looking at the posed plane and bend_t a smooth
deformation. Both can be undone in closed form, so the same point can be followed from either frame
to the other exactly. The layers are listed from far to near: a later one covers an earlier one.
"""

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.scenes.dice import Array

Shapes = tuple[tuple[int, ...], ...]

_PER_FRAME = (
    "to_canvas", "to_frame", "across", "push", "gain", "highlight", "to_shadow",
    "brightness", "contrast", "saturation", "colour_balance", "slope",
)  # fmt: skip


@dataclass(frozen=True)
class Scenes:
    """A batch of scenes: what says where its layers are, how they look, and how it is photographed.

    Axes: pair `b`, frame, whatever a parameter consists of, layer `l`. Matrices are listed row by
    row. What is given for each frame is listed in `_PER_FRAME`, too.
    """

    # Where the layers are.
    to_canvas: Float[Tensor, "b frame=2 9 l"]
    """Inverse of H_t. Its third row gives one over the depth."""
    to_frame: Float[Tensor, "b frame=2 9 l"]
    """H_t."""
    across: Float[Tensor, "b frame=2 9 l"]
    """From pixels of frame t to pixels of the other one, for an unbent sheet."""
    wave: Float[Tensor, "b bend=2 3 l"]
    """Of two bends each the wave vector (x, y) and the phase."""
    push: Float[Tensor, "b frame=2 bend=2 xy=2 l"]
    """How far each bend moves the sheet in frame t; zero for a rigid one."""

    # How they look.
    silhouette: Float[Tensor, "b l"]
    """Its number in the texture bank."""
    edge_width: Float[Tensor, "b l"]
    """Pixels over which the silhouette's edge goes from nothing to full."""
    identity: Float[Tensor, "b l"]
    """Which object the layer is part of."""
    texture: Float[Tensor, "b l"]
    """Its number in the texture bank."""
    mirrored: Float[Tensor, "b l"]
    """1 where every other copy of the texture is mirrored, 0 where copies fit as they are."""
    texture_map: Float[Tensor, "b 6 l"]
    """Canvas to texture, in units of the texture's side (2 x 3)."""
    paint: Float[Tensor, "b rgb=3 l"]
    """A plain colour."""
    texture_share: Float[Tensor, "b l"]
    """How much of the texture shows through the paint."""

    # How light falls on them.
    gain: Float[Tensor, "b frame=2 l"]
    highlight: Float[Tensor, "b frame=2 xy=2 l"]
    """Its centre on the canvas."""
    highlight_width: Float[Tensor, "b l"]
    highlight_strength: Float[Tensor, "b l"]
    to_shadow: Float[Tensor, "b frame=2 6"]
    """Pixel to the shadow's canvas (2 x 3)."""
    shadow_silhouette: Float[Tensor, " b"]
    shadow_strength: Float[Tensor, " b"]
    shadow_softness: Float[Tensor, " b"]
    """Texels from the silhouette's outline to where the shadow is full."""

    # What air, lens and camera do. Zero strength means: not at all.
    fog: Float[Tensor, " b"]
    """Density: how much light is lost over a depth of 1, as an exponent."""
    fog_colour: Float[Tensor, "b rgb=3"]
    focus: Float[Tensor, " b"]
    """One over the depth that is sharp."""
    aperture: Float[Tensor, " b"]
    """Blur radius in pixels for each unit by which one over the depth is off the focus."""
    lens_blur: Float[Tensor, " b"]
    """Blur radius of the whole frame, pixels."""
    shutter: Float[Tensor, " b"]
    """The share of the motion during which the shutter is open."""
    brightness: Float[Tensor, "b frame=2"]
    contrast: Float[Tensor, "b frame=2"]
    saturation: Float[Tensor, "b frame=2"]
    colour_balance: Float[Tensor, "b frame=2 rgb=3"]
    """A factor for each colour."""
    slope: Float[Tensor, "b frame=2 xy=2"]
    """How much brighter the right and the bottom of the frame are than the left and the top."""
    noise: Float[Tensor, " b"]
    compression: Float[Tensor, " b"]

    number: Float[Tensor, "b half=2"]
    """The pair's own random number, its high and low 16 bits, for what is drawn per pixel."""

    def reversed(self) -> "Scenes":
        """The same scenes with the time running backward: frame 2 comes first.

        What is computed for the first frame alone so serves for both, and backward flow is the
        forward flow of this.
        """
        swapped = {name: getattr(self, name).flip(1) for name in _PER_FRAME}
        # Another number, so that the noise of the two frames has nothing in common.
        return replace(self, **swapped, number=self.number + 1)

    @classmethod
    def pack(cls, arrays: dict[str, Array]) -> tuple[Float[Tensor, "b n"], Shapes]:
        """All parameters in one tensor on the CPU, as 32-bit floats, and their shapes."""
        parts = [np.ascontiguousarray(arrays[f.name], dtype=np.float32) for f in fields(cls)]
        count = len(parts[0])
        packed = np.concatenate([part.reshape(count, -1) for part in parts], axis=1)
        return torch.from_numpy(packed), tuple(part.shape[1:] for part in parts)

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], device: torch.device | str = "cpu") -> "Scenes":
        """Scenes on a device."""
        packed, shapes = cls.pack(arrays)
        return cls.unpack(packed.to(device), shapes)

    @classmethod
    def unpack(cls, packed: Float[Tensor, "b n"], shapes: Shapes) -> "Scenes":
        """The parameters in a packed tensor, each with its own shape again."""
        parameters, begin = [], 0
        for shape in shapes:
            size = math.prod(shape)
            # Copied, so that a step compiled for these has the strides of the reversed ones, too.
            part = packed[:, begin : begin + size].contiguous()
            parameters.append(part.view(len(packed), *shape))
            begin += size
        return cls(*parameters)
