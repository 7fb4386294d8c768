"""The steps of rendering a frame, each small enough to be compiled by itself in little time.

Whole, the work is a graph of thousands of operations that takes a compiler many minutes; looking at
one layer is one small kernel that serves for all layers of both frames.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gmaflow.scenes.follow import Points
from gmaflow.scenes.lens import defocus, motion_blur
from gmaflow.scenes.light import cast_shadow, dim_by_fog, shade
from gmaflow.scenes.plan import Plan
from gmaflow.scenes.scene import Scenes
from gmaflow.scenes.sensor import add_noise, compress, expose
from gmaflow.scenes.textures import TextureBank
from gmaflow.scenes.texturing import surface_colour
from gmaflow.scenes.truth import Surface, Truth, follow
from gmaflow.scenes.visibility import Sheet, Visible, covers, look

Image = Float[Tensor, "b 3 h w"]


class Shot(NamedTuple):
    """What the photometric effects need to know of a frame."""

    scenes: Scenes
    bank: TextureBank
    pixels: Points
    surface: Surface
    known: Truth


def compose(scenes: Scenes, bank: TextureBank, pixels: Points, seen: Visible) -> Image:
    """Both layers' colours, mixed as the front one covers the pixel."""
    front = surface_colour(scenes, bank, pixels, seen.front, smooth=True)
    behind = surface_colour(scenes, bank, pixels, seen.behind, smooth=False)
    return behind + (front - behind) * seen.cover[:, None]


def illuminate(shot: Shot, plan: Plan, image: Image) -> Image:
    """What light does on its way: shading, shadows, fog."""
    scenes, bank, pixels, surface, _ = shot
    image = shade(scenes, surface, image)
    if plan.shadow:
        image = cast_shadow(scenes, bank.outlines, pixels, image)
    return dim_by_fog(scenes, surface, image) if plan.fog else image


def focus(shot: Shot, plan: Plan, image: Image) -> Image:
    """What the lens does: defocus."""
    return defocus(shot.scenes, shot.surface, image) if plan.defocus else image


def shutter(shot: Shot, plan: Plan, image: Image) -> Image:
    """What moves while the shutter is open: motion blur."""
    if not plan.motion_blur:
        return image
    return motion_blur(shot.scenes, shot.pixels, shot.known.flow, shot.surface.layer, image)


def develop(shot: Shot, plan: Plan, image: Image) -> Image:
    """What the sensor and the file do: exposure, noise, compression, whole 255ths."""
    image = expose(shot.scenes, shot.pixels, image).clamp(0, 1)
    if plan.noise:
        image = add_noise(shot.scenes, image)
    return quantise(compress(shot.scenes, image) if plan.compression else image)


def quantise(image: Image) -> Image:
    """Whole 255ths."""
    return (image.clamp(0, 1) * 255).round() * (1 / 255)


class Steps(NamedTuple):
    """The functions that rendering calls, as they are or compiled."""

    look: Callable[[Sheet, Points, Visible], Visible]
    covers: Callable[[Sheet, Points, Int[Tensor, "b h w"], Tensor], Tensor]
    follow: Callable[[Scenes, Points, Int[Tensor, "b h w"]], tuple[Surface, Truth]]
    compose: Callable[[Scenes, TextureBank, Points, Visible], Tensor]
    illuminate: Callable[[Shot, Plan, Tensor], Tensor]
    focus: Callable[[Shot, Plan, Tensor], Tensor]
    shutter: Callable[[Shot, Plan, Tensor], Tensor]
    develop: Callable[[Shot, Plan, Tensor], Tensor]

    def photograph(self, shot: Shot, plan: Plan, image: Image) -> Image:
        """All photometric effects, in the order in which light meets them."""
        for effects in (self.illuminate, self.focus, self.shutter, self.develop):
            image = effects(shot, plan, image)
        return image

    def compiled(self, names: Collection[str] | None = None) -> "Steps":
        """Compile the steps, or those of the given names, for the sizes they are first used with.

        One compiled step knows nothing of the others: which of them are compiled changes none.
        """
        chosen = self._fields if names is None else names
        return self._replace(
            **{
                name: torch.compile(getattr(self, name), dynamic=False, fullgraph=True)
                for name in self._fields
                if name in chosen
            }
        )


EAGER = Steps(look, covers, follow, compose, illuminate, focus, shutter, develop)
