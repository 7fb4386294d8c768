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


@dataclass(frozen=True)
class Scenes:
    """A batch of scenes. Axes: pair `b`, frame 2, parameter, layer `l`.

    Attributes:
        to_canvas: Inverse of H_t, row by row. Its third row gives one over the depth.
        to_frame: H_t.
        across: From pixels of frame t to pixels of the other one, for an unbent sheet.
        wave: Two bends, each a wave vector and a phase.
        push: How far each bend moves the sheet in frame t; zero for a rigid one.
        place: Which silhouette, texture, whether it repeats, the width of its edge in pixels, and
            which object it is part of.
        texture_map: Canvas to texture, in units of the texture's side, row by row (2 x 3).
        paint: A plain colour and how much of the texture shows through it.
        shine: Gain in each frame; place in each frame, width and strength of a highlight.
        shadow: For each frame pixel to the shadow's canvas (2 x 3), its strength, softness, shape.
        light: For each frame gain, contrast, saturation, and gains of the three colours; a slope of
            the light across the frame (x, y).
        air: Fog's density and colour, focus (one over its depth), aperture, blur radius, exposure
            (the share of the motion that is blurred), noise, compression.
        number: The pair's number in 16-bit halves, for what is drawn per pixel.
    """

    to_canvas: Float[Tensor, "b 2 9 l"]
    to_frame: Float[Tensor, "b 2 9 l"]
    across: Float[Tensor, "b 2 9 l"]
    wave: Float[Tensor, "b 6 l"]
    push: Float[Tensor, "b 2 4 l"]
    place: Float[Tensor, "b 5 l"]
    texture_map: Float[Tensor, "b 6 l"]
    paint: Float[Tensor, "b 4 l"]
    shine: Float[Tensor, "b 8 l"]
    shadow: Float[Tensor, "b 2 9"]
    light: Float[Tensor, "b 2 8"]
    air: Float[Tensor, "b 10"]
    number: Float[Tensor, "b 2"]

    def reversed(self) -> "Scenes":
        """The same scenes with the time running backward: frame 2 comes first.

        What is computed for the first frame alone so serves for both, and backward flow is the
        forward flow of this.
        """
        swapped = {
            name: getattr(self, name).flip(1)
            for name in ("to_canvas", "to_frame", "across", "push", "shadow", "light")
        }
        gains, first, second, rest = (
            self.shine[:, 0:2], self.shine[:, 2:4], self.shine[:, 4:6], self.shine[:, 6:8],
        )  # fmt: skip
        shine = torch.cat([gains.flip(1), second, first, rest], dim=1)
        return replace(self, **swapped, shine=shine, number=self.number + 1)

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
        """Views of the parameters in a packed tensor."""
        views, begin = [], 0
        for shape in shapes:
            size = math.prod(shape)
            view = packed[:, begin : begin + size].contiguous()
            views.append(view.view(len(packed), *shape))
            begin += size
        return cls(*views)
