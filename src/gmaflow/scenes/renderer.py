"""Rendering pairs of frames, and clips, with their exact flow and occlusion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int, UInt8
from torch import Tensor

from gmaflow.errors import FlowError, counted
from gmaflow.io.images import check_smallest
from gmaflow.runtime.cuda_graphs import GraphPool, Replay
from gmaflow.scenes.clip_params import ClipParams
from gmaflow.scenes.projection import (
    HomogeneousPoints,
    Sheet,
    Surface,
    Truth,
    VisibleLayers,
    initial_layers,
    make_sheets,
    of_pixels,
    pixel_grid,
)
from gmaflow.scenes.render_steps import EAGER, Shot, Steps, quantise
from gmaflow.scenes.scene_params import RenderPlan, Scenes, Shapes, draw_scenes
from gmaflow.scenes.stateless_random import Array
from gmaflow.scenes.texture_bank import TextureBank

SMALLEST = 32
_PIXELS_AT_ONCE = 250_000
_WARM_UPS = 2  # before recording: steps are compiled and tuned at their first use


def rendering_device(device: torch.device) -> torch.device:
    """Return where to render for work on a device: on the CPU for MPS, which lacks operations."""
    return torch.device("cpu") if device.type == "mps" else device


class SceneBatch(NamedTuple):
    """Rendered pairs: all fields of the first frames, then the same fields of the second."""

    clean1: Float[Tensor, "b 3 h w"]  # before photometric effects, multiples of 1/255 in 0..1
    final1: Float[Tensor, "b 3 h w"]  # with photometric effects
    flow: Float[Tensor, "b 2 h w"]  # in pixels, x then y
    occluded_in: Bool[Tensor, "b h w"]  # the target is in the frame, but behind something nearer
    occluded_out: Bool[Tensor, "b h w"]  # the target is outside the other frame
    valid: Bool[Tensor, "b h w"]  # false where a surface has gone behind the camera
    identity1: UInt8[Tensor, "b h w"]  # visible object; 0 is the backdrop, limbs are their owner's

    clean2: Float[Tensor, "b 3 h w"]
    final2: Float[Tensor, "b 3 h w"]
    backward: Float[Tensor, "b 2 h w"]  # flow from the second frame to the first
    backward_occluded_in: Bool[Tensor, "b h w"]
    backward_occluded_out: Bool[Tensor, "b h w"]
    backward_valid: Bool[Tensor, "b h w"]
    identity2: UInt8[Tensor, "b h w"]

    @classmethod
    def join(cls, parts: Sequence["SceneBatch"]) -> "SceneBatch":
        return parts[0] if len(parts) == 1 else cls(*map(torch.cat, zip(*parts, strict=True)))

    def reversed(self) -> "SceneBatch":
        """The same scenes backward in time; nothing is copied."""
        half = len(self) // 2
        return SceneBatch(*self[half:], *self[:half])

    @property
    def occluded(self) -> Bool[Tensor, "b h w"]:
        """Pixels of the first frame that are not visible in the second."""
        return self.occluded_in | self.occluded_out


@dataclass(frozen=True)
class SceneClip:
    """A rendered clip of n frames, and the position of each pixel of one frame in all others."""

    clean: Float[Tensor, "n 3 h w"]
    """Frames before photometric effects, multiples of 1/255 in 0..1."""
    final: Float[Tensor, "n 3 h w"]
    """Frames with photometric effects."""
    identity: UInt8[Tensor, "n h w"]
    """Number of the visible object, as in `SceneBatch`."""
    flow: Float[Tensor, "m 2 h w"]
    """Flow from each frame to the next."""
    occluded_in: Bool[Tensor, "m h w"]
    """The pixel is hidden in the next frame."""
    occluded_out: Bool[Tensor, "m h w"]
    """The pixel is outside the next frame."""
    valid: Bool[Tensor, "m h w"]
    """Whether the flow to the next frame is known."""
    reference: int
    """Number of the frame whose pixels are tracked."""
    tracks: Float[Tensor, "n 2 h w"]
    """Motion of each of its pixels from there to every frame, in pixels, x then y."""
    visible: Bool[Tensor, "n h w"]
    """Whether the pixel is visible in that frame."""
    known: Bool[Tensor, "n h w"]
    """Whether its position is known; it is not where a surface is behind the camera."""

    @property
    def occluded(self) -> Bool[Tensor, "m h w"]:
        """Pixels that are not visible in the next frame."""
        return self.occluded_in | self.occluded_out


class SceneRenderer:
    """Renders pairs of a preset by number; pair i is the same in every batch.

    Args:
        preset: One of `PRESETS`.
        size: Height and width of the frames.
        seed: Each seed gives another endless sequence of pairs.
        textures: Textures and silhouettes; built-in ones by default.
        device: Where to render. On a GPU, a CUDA graph is recorded for each batch size.
        compiled: Compile the rendering for the GPU: takes a minute and is much faster.
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
        check_smallest(size, SMALLEST)
        self.preset = preset
        self.size = size
        self.seed = seed
        self.device = torch.device(device)
        self.compiled = compiled
        self._recordings: dict[int, Replay] = {}
        self.bank = (textures or TextureBank.procedural()).to(self.device)
        if compiled:
            self.bank.mark_counts_as_free()

    def render(self, start: int, count: int) -> SceneBatch:
        """Render the pairs `start` to `start + count - 1`."""
        return self.render_pairs(np.arange(start, start + count))

    @torch.no_grad()
    def render_pairs(self, pairs: Array) -> SceneBatch:
        """Render the pairs with the given numbers, in the given order."""
        if len(pairs) == 0:
            raise FlowError("no pairs requested; give a count of at least 1")
        if self.device.type == "cuda":
            arrays = draw_scenes(self.preset, self.seed, pairs, self.size, self.bank)
            return self._render_recorded(*Scenes.pack(arrays))
        # A CPU is fastest with as many pairs at a time as fit into its cache.
        chunk_size = max(1, _PIXELS_AT_ONCE // (self.size[0] * self.size[1]))
        parts = []
        for begin in range(0, len(pairs), chunk_size):
            chunk = pairs[begin : begin + chunk_size]
            arrays = draw_scenes(self.preset, self.seed, chunk, self.size, self.bank)
            scenes = Scenes.from_arrays(arrays, self.device)
            parts.append(render_scenes(scenes, self.bank, self.size, RenderPlan.for_scenes(arrays)))
        return SceneBatch.join(parts)

    @torch.no_grad()
    def render_clip(self, number: int, frames: int, *, reference: int = 0) -> SceneClip:
        """Render a clip that begins with the first frame of a pair, see `clip_params`.

        Args:
            number: The number of the pair.
            frames: How many frames, at least 2.
            reference: The frame whose pixels are tracked, counted from 0.
        """
        if frames < 2:
            raise FlowError(f"a clip of {counted(frames, 'frame')} has no motion; give at least 2")
        if not 0 <= reference < frames:
            raise FlowError(f"there is no frame {reference}; give one from 0 to {frames - 1}")
        params = ClipParams(self.preset, self.seed, number, self.size, self.bank)
        plan = RenderPlan.for_scenes(params.appearance)
        pixels = pixel_grid(*self.size, self.device)

        def view_of(first: int, second: int) -> Scenes:
            return Scenes.from_arrays(params.between(first, second), self.device)

        # The last frame has no next one: its own motion is the one from the frame before.
        other = [*range(1, frames), frames - 2]
        views = [view_of(i, other[i]) for i in range(frames)]
        sheets = [make_sheets(view, self.bank.outlines, plan.layers) for view in views]
        shown, images, ahead = [], [], []
        for i, view in enumerate(views):
            visible = find_visible_layers(view, sheets[i], pixels)
            surface, truth = trace(view, sheets[other[i]], pixels, visible.shown)
            images.append(draw_frame(Shot(view, self.bank, pixels, surface, truth), plan, visible))
            shown.append(visible.shown)
            ahead.append(truth)
        followed = [
            trace(view_of(reference, i), sheets[i], pixels, shown[reference])[1]
            for i in range(frames)
        ]
        clean, final = (torch.cat(stacked) for stacked in zip(*images, strict=True))
        flow, occluded_in, occluded_out, valid = _join(ahead[:-1])
        tracks, hidden, out, known = _join(followed)
        # Bending and unbending a sheet is not exact.
        tracks[reference], known[reference] = 0, True
        hidden[reference] = out[reference] = False
        identity = torch.cat([of_pixels(views[0].identity, layers) for layers in shown])
        return SceneClip(
            clean=clean,
            final=final,
            identity=identity.to(torch.uint8),
            flow=flow,
            occluded_in=occluded_in,
            occluded_out=occluded_out,
            valid=valid,
            reference=reference,
            tracks=tracks,
            visible=~(hidden | out),
            known=known,
        )

    def _render_recorded(self, packed: Float[Tensor, "b n"], shapes: Shapes) -> SceneBatch:
        count = len(packed)
        if count not in self._recordings:
            steps = EAGER.compiled() if self.compiled else EAGER
            plan = RenderPlan.for_preset(self.preset)

            def render(moved: Tensor) -> SceneBatch:
                scenes = Scenes.unpack(moved, shapes)
                return render_scenes(scenes, self.bank, self.size, plan, steps)

            # A separate pool, because a training step may run at the same time.
            pool = GraphPool(self.device)
            self._recordings[count] = pool.record(render, [packed], warm_ups=_WARM_UPS)
        return SceneBatch(*self._recordings[count](packed))


def render_scenes(
    scenes: Scenes, bank: TextureBank, size: tuple[int, int], plan: RenderPlan, steps: Steps = EAGER
) -> SceneBatch:
    """Render both frames of each scene; never synchronises with the device."""
    pixels = pixel_grid(*size, scenes.number.device)
    views = (scenes, scenes.reversed())
    sheets = [make_sheets(view, bank.outlines, plan.layers) for view in views]
    frames: list[Tensor] = []
    for first in (0, 1):
        view = views[first]
        visible = find_visible_layers(view, sheets[first], pixels, steps)
        surface, truth = trace(view, sheets[1 - first], pixels, visible.shown, steps)
        clean, final = draw_frame(Shot(view, bank, pixels, surface, truth), plan, visible, steps)
        identity = of_pixels(scenes.identity, visible.shown).to(torch.uint8)
        frames += [clean, final, *truth, identity]
    return SceneBatch(*frames)


def find_visible_layers(
    view: Scenes, sheets: Sequence[Sheet], pixels: HomogeneousPoints, steps: Steps = EAGER
) -> VisibleLayers:
    """Find the layers visible in the first frame; `sheets` are its layers, from far to near."""
    visible = initial_layers(view, pixels)
    for sheet in sheets:
        visible = steps.add_sheet(sheet, pixels, visible)
    return visible


def trace(
    view: Scenes,
    others: Sequence[Sheet],
    pixels: HomogeneousPoints,
    shown: Int[Tensor, "b h w"],
    steps: Steps = EAGER,
) -> tuple[Surface, Truth]:
    """Follow the surface at each pixel into the other frame, whose layers are `others`."""
    surface, truth = steps.follow(view, pixels, shown)
    target = HomogeneousPoints(pixels.x + truth.flow[:, 0], pixels.y + truth.flow[:, 1], pixels.w)
    hidden = truth.occluded_in
    for sheet in others[1:]:
        hidden = steps.covers(sheet, target, shown, hidden)
    return surface, truth._replace(occluded_in=hidden & ~truth.occluded_out)


def draw_frame(
    shot: Shot, plan: RenderPlan, visible: VisibleLayers, steps: Steps = EAGER
) -> tuple[Float[Tensor, "b 3 h w"], Float[Tensor, "b 3 h w"]]:
    """Draw the first frame, without and with photometric effects."""
    colours = steps.compose(shot.scenes, shot.bank, shot.pixels, visible)
    return quantise(colours), steps.photograph(shot, plan, colours)


def _join(truths: Sequence[Truth]) -> Truth:
    return Truth(*(torch.cat(parts) for parts in zip(*truths, strict=True)))


@dataclass(frozen=True, eq=False)
class PairArrays:
    """One pair of a `SceneBatch` as NumPy arrays, forward in time."""

    clean1: UInt8[np.ndarray, "h w 3"]
    clean2: UInt8[np.ndarray, "h w 3"]
    final1: UInt8[np.ndarray, "h w 3"]
    final2: UInt8[np.ndarray, "h w 3"]
    flow: Float32[np.ndarray, "h w 2"]
    valid: Bool[np.ndarray, "h w"]
    occluded_in: Bool[np.ndarray, "h w"]
    occluded_out: Bool[np.ndarray, "h w"]


def pair_arrays(batch: SceneBatch) -> list[PairArrays]:
    """Split a batch into pairs of NumPy arrays."""
    frames = (batch.clean1, batch.clean2, batch.final1, batch.final2)
    return _split_pairs([_bytes(frame) for frame in frames], batch)


def clip_arrays(clip: SceneClip) -> list[PairArrays]:
    """Split a clip into its consecutive pairs of NumPy arrays."""
    clean, final = _bytes(clip.clean), _bytes(clip.final)
    return _split_pairs([clean[:-1], clean[1:], final[:-1], final[1:]], clip)


def _split_pairs(frames: Sequence[np.ndarray], truth: SceneBatch | SceneClip) -> list[PairArrays]:
    flow = truth.flow.permute(0, 2, 3, 1).contiguous().cpu().numpy()
    masks = (m.cpu().numpy() for m in (truth.valid, truth.occluded_in, truth.occluded_out))
    return [PairArrays(*parts) for parts in zip(*frames, flow, *masks, strict=True)]


def _bytes(frames: Float[Tensor, "b 3 h w"]) -> UInt8[np.ndarray, "b h w 3"]:
    # Frames are multiples of 1/255, up to rounding.
    whole = (frames * 255).round().to(torch.uint8)
    return whole.permute(0, 2, 3, 1).contiguous().cpu().numpy()
