"""Rendering: scenes in, frames and their truth out."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from gmaflow.errors import FlowError
from gmaflow.scenes.dice import Array
from gmaflow.scenes.follow import Points, pixel_grid
from gmaflow.scenes.lens import defocus, motion_blur
from gmaflow.scenes.light import cast_shadow, dim_by_fog, shade
from gmaflow.scenes.plan import Plan
from gmaflow.scenes.recording import Recording
from gmaflow.scenes.sampling import draw_scenes
from gmaflow.scenes.scene import Scenes, Shapes
from gmaflow.scenes.sensor import add_noise, compress, expose
from gmaflow.scenes.textures import TextureBank
from gmaflow.scenes.texturing import surface_colour
from gmaflow.scenes.truth import Surface, Truth, find_surface, truth
from gmaflow.scenes.visibility import Visible, see

SMALLEST = 32
_PIXELS_AT_ONCE = 250_000


@dataclass(frozen=True)
class SceneBatch:
    """Rendered pairs. Index 1 is the first frame, 2 the second; `backward` is from 2 to 1.

    Attributes:
        clean1: The frames before photometric effects, whole 255ths in 0..1.
        final1: The frames with them.
        flow: In pixels, x then y.
        occluded_in: Hidden in the other frame by something nearer, inside the frame.
        occluded_out: The target lies outside the other frame.
        valid: Whether the flow is known: not where a surface has gone behind the camera.
        identity1: The object seen; 0 is the backdrop, parts of one object share a number.
    """

    clean1: Float[Tensor, "b 3 h w"]
    clean2: Float[Tensor, "b 3 h w"]
    final1: Float[Tensor, "b 3 h w"]
    final2: Float[Tensor, "b 3 h w"]
    flow: Float[Tensor, "b 2 h w"]
    backward: Float[Tensor, "b 2 h w"]
    occluded_in: Bool[Tensor, "b h w"]
    occluded_out: Bool[Tensor, "b h w"]
    backward_occluded_in: Bool[Tensor, "b h w"]
    backward_occluded_out: Bool[Tensor, "b h w"]
    valid: Bool[Tensor, "b h w"]
    backward_valid: Bool[Tensor, "b h w"]
    identity1: UInt8[Tensor, "b h w"]
    identity2: UInt8[Tensor, "b h w"]

    @classmethod
    def join(cls, parts: Sequence["SceneBatch"]) -> "SceneBatch":
        """The pairs of several batches in one."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    @property
    def occluded(self) -> Bool[Tensor, "b h w"]:
        """Pixels of the first frame that are not visible in the second."""
        return self.occluded_in | self.occluded_out

    @property
    def backward_occluded(self) -> Bool[Tensor, "b h w"]:
        """Pixels of the second frame that are not visible in the first."""
        return self.backward_occluded_in | self.backward_occluded_out


class SceneRenderer:
    """Renders pairs of a preset by number; pair i is the same in whatever batch it comes.

    Args:
        preset: One of `PRESETS`.
        size: Height and width of the frames.
        seed: Another seed gives another endless row of pairs.
        textures: What surfaces look like; the built-in patterns if not given.
        device: Where to render. On a GPU the work for each batch size is recorded at its first use.
        compiled: Let torch compile the work for the GPU: much faster, after a minute or two.
    """

    def __init__(
        self,
        preset: str = "mix",
        size: tuple[int, int] = (368, 496),
        seed: int = 0,
        textures: TextureBank | None = None,
        device: torch.device | str = "cpu",
        compiled: bool = False,
    ) -> None:
        if min(size) < SMALLEST:
            raise FlowError(
                f"a frame of {size[0]}x{size[1]} is too small for a scene; give at least "
                f"{SMALLEST} rows and columns"
            )
        self.preset = preset
        self.size = size
        self.seed = seed
        self.device = torch.device(device)
        self.compiled = compiled
        self._recordings: dict[int, Recording] = {}
        self.bank = (textures or TextureBank.procedural()).to(self.device)

    def render(self, start: int, count: int) -> SceneBatch:
        """Render the pairs `start` to `start + count - 1`."""
        return self.render_pairs(np.arange(start, start + count))

    @torch.no_grad()
    def render_pairs(self, pairs: Array) -> SceneBatch:
        """Render the pairs with the given numbers, in the given order."""
        if len(pairs) == 0:
            raise FlowError("no pair was asked for; give a count of at least 1")
        if self.device.type != "cpu":
            arrays = draw_scenes(self.preset, self.seed, pairs, self.size, self.bank)
            return self._render_recorded(*Scenes.pack(arrays))
        # A CPU is fastest with as many pairs at a time as its cache holds.
        at_once = max(1, _PIXELS_AT_ONCE // (self.size[0] * self.size[1]))
        parts = []
        for begin in range(0, len(pairs), at_once):
            some = pairs[begin : begin + at_once]
            arrays = draw_scenes(self.preset, self.seed, some, self.size, self.bank)
            scenes = Scenes.from_arrays(arrays)
            parts.append(render_scenes(scenes, self.bank, self.size, Plan.for_scenes(arrays)))
        return SceneBatch.join(parts)

    def _render_recorded(self, packed: Float[Tensor, "b n"], shapes: Shapes) -> SceneBatch:
        count = len(packed)
        if count not in self._recordings:
            work = torch.compile(render_scenes, dynamic=False) if self.compiled else render_scenes

            def render_packed(moved: Tensor) -> list[Tensor]:
                batch = work(Scenes.unpack(moved, shapes), self.bank, self.size, Plan())
                return [getattr(batch, f.name) for f in fields(batch)]

            self._recordings[count] = Recording(render_packed, packed.to(self.device))
        return SceneBatch(*self._recordings[count](packed))


def render_scenes(
    scenes: Scenes, bank: TextureBank, size: tuple[int, int], plan: Plan
) -> SceneBatch:
    """Render both frames of each scene; no step waits for the device or looks at its values."""
    pixels = pixel_grid(*size, scenes.air.device)
    clean, final, truths, identities = [], [], [], []
    for frame in (0, 1):
        seen = see(scenes, bank.outlines, frame, pixels, plan.layers)
        colours = _compose(scenes, bank, frame, pixels, seen)
        surface = find_surface(scenes, frame, pixels, seen.shown)
        known = truth(scenes, bank.outlines, frame, pixels, surface, plan.layers)
        shot = _Shot(scenes, bank, frame, pixels, surface, known)
        clean.append(_quantise(colours))
        final.append(_quantise(_photograph(shot, plan, colours)))
        truths.append(known)
        objects = scenes.place[:, 4].gather(1, seen.shown.flatten(1)).to(torch.uint8)
        identities.append(objects.view(-1, *size))
    forward, backward = truths
    return SceneBatch(
        clean1=clean[0],
        clean2=clean[1],
        final1=final[0],
        final2=final[1],
        flow=forward.flow,
        backward=backward.flow,
        occluded_in=forward.occluded_in,
        occluded_out=forward.occluded_out,
        backward_occluded_in=backward.occluded_in,
        backward_occluded_out=backward.occluded_out,
        valid=forward.valid,
        backward_valid=backward.valid,
        identity1=identities[0],
        identity2=identities[1],
    )


def _compose(
    scenes: Scenes, bank: TextureBank, frame: int, pixels: Points, seen: Visible
) -> Float[Tensor, "b 3 h w"]:
    """Both layers' colours, mixed as the front one covers the pixel."""
    front = surface_colour(scenes, bank, frame, pixels, seen.front, smooth=True)
    behind = surface_colour(scenes, bank, frame, pixels, seen.behind, smooth=False)
    return behind + (front - behind) * seen.cover[:, None]


class _Shot(NamedTuple):
    """What the photometric effects need to know of a frame."""

    scenes: Scenes
    bank: TextureBank
    frame: int
    pixels: Points
    surface: Surface
    known: Truth


def _photograph(
    shot: _Shot, plan: Plan, image: Float[Tensor, "b 3 h w"]
) -> Float[Tensor, "b 3 h w"]:
    """All photometric effects, in the order in which light meets them."""
    scenes, bank, frame, pixels, surface, known = shot
    image = shade(scenes, frame, surface, image)
    if plan.shadow:
        image = cast_shadow(scenes, bank.outlines, frame, pixels, image)
    if plan.fog:
        image = dim_by_fog(scenes, surface, image)
    if plan.defocus:
        image = defocus(scenes, surface, image)
    if plan.motion_blur:
        image = motion_blur(scenes, pixels, known.flow, surface.layer, image)
    image = expose(scenes, frame, pixels, image).clamp(0, 1)
    if plan.noise:
        image = add_noise(scenes, frame, image)
    return compress(scenes, image) if plan.compression else image


def _quantise(image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 h w"]:
    return (image.clamp(0, 1) * 255).round() * (1 / 255)
