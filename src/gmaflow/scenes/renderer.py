"""Rendering pairs of frames with their exact flow and occlusion."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt8
from torch import Tensor

from gmaflow.errors import FlowError
from gmaflow.runtime.cuda_graphs import GraphPool, Replay, Run
from gmaflow.scenes.projection import Points, nothing, of_pixels, pixel_grid, take_sheets
from gmaflow.scenes.render_steps import EAGER, Shot, Steps, quantise
from gmaflow.scenes.scene_params import RenderPlan, Scenes, Shapes, draw_scenes
from gmaflow.scenes.stateless_random import Array
from gmaflow.scenes.texture_bank import TextureBank

SMALLEST = 32
_PIXELS_AT_ONCE = 250_000
_WARM_UPS = 2  # before recording: steps are compiled and tuned at their first use


@dataclass(frozen=True)
class SceneBatch:
    """Rendered pairs. Index 1 is the first frame, 2 the second; `backward` is from 2 to 1."""

    clean1: Float[Tensor, "b 3 h w"]  # before photometric effects, multiples of 1/255 in 0..1
    clean2: Float[Tensor, "b 3 h w"]
    final1: Float[Tensor, "b 3 h w"]  # with photometric effects
    final2: Float[Tensor, "b 3 h w"]
    flow: Float[Tensor, "b 2 h w"]  # in pixels, x then y
    backward: Float[Tensor, "b 2 h w"]
    occluded_in: Bool[Tensor, "b h w"]  # the target is in the frame, but behind something nearer
    occluded_out: Bool[Tensor, "b h w"]  # the target is outside the other frame
    backward_occluded_in: Bool[Tensor, "b h w"]
    backward_occluded_out: Bool[Tensor, "b h w"]
    valid: Bool[Tensor, "b h w"]  # false where a surface has gone behind the camera
    backward_valid: Bool[Tensor, "b h w"]
    identity1: UInt8[Tensor, "b h w"]  # visible object; 0 is the backdrop, limbs are their owner's
    identity2: UInt8[Tensor, "b h w"]

    @classmethod
    def join(cls, parts: Sequence["SceneBatch"]) -> "SceneBatch":
        """Concatenate batches."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def reversed(self) -> "SceneBatch":
        """The same scenes backward in time; nothing is copied."""
        return SceneBatch(
            clean1=self.clean2,
            clean2=self.clean1,
            final1=self.final2,
            final2=self.final1,
            flow=self.backward,
            backward=self.flow,
            occluded_in=self.backward_occluded_in,
            occluded_out=self.backward_occluded_out,
            backward_occluded_in=self.occluded_in,
            backward_occluded_out=self.occluded_out,
            valid=self.backward_valid,
            backward_valid=self.valid,
            identity1=self.identity2,
            identity2=self.identity1,
        )

    @property
    def occluded(self) -> Bool[Tensor, "b h w"]:
        """Pixels of the first frame that are not visible in the second."""
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
        if min(size) < SMALLEST:
            raise FlowError(
                f"frames of {size[0]}x{size[1]} are too small; give at least {SMALLEST}x{SMALLEST}"
            )
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
        at_once = max(1, _PIXELS_AT_ONCE // (self.size[0] * self.size[1]))
        parts = []
        for begin in range(0, len(pairs), at_once):
            some = pairs[begin : begin + at_once]
            arrays = draw_scenes(self.preset, self.seed, some, self.size, self.bank)
            scenes = Scenes.from_arrays(arrays, self.device)
            parts.append(render_scenes(scenes, self.bank, self.size, RenderPlan.for_scenes(arrays)))
        return SceneBatch.join(parts)

    def _render_recorded(self, packed: Float[Tensor, "b n"], shapes: Shapes) -> SceneBatch:
        count = len(packed)
        if count not in self._recordings:
            work = self._work(shapes, EAGER.compiled() if self.compiled else EAGER)
            # A separate pool, because a training step may run at the same time.
            pool = GraphPool(self.device)
            self._recordings[count] = pool.record(work, [packed], warm_ups=_WARM_UPS)
        return SceneBatch(*self._recordings[count](packed))

    def _work(self, shapes: Shapes, steps: Steps) -> Run:
        """Return the function that renders a packed batch of a fixed size."""

        def render_packed(moved: Tensor) -> list[Tensor]:
            scenes = Scenes.unpack(moved, shapes)
            batch = render_scenes(scenes, self.bank, self.size, RenderPlan(), steps)
            return [getattr(batch, f.name) for f in fields(batch)]

        return render_packed


def render_scenes(
    scenes: Scenes, bank: TextureBank, size: tuple[int, int], plan: RenderPlan, steps: Steps = EAGER
) -> SceneBatch:
    """Render both frames of each scene; never synchronises with the device."""
    pixels = pixel_grid(*size, scenes.number.device)
    views = (scenes, scenes.reversed())
    sheets = [take_sheets(view, bank.outlines, plan.layers) for view in views]
    clean, final, truths, identities = [], [], [], []
    for first in (0, 1):
        view, before, after = views[first], sheets[first], sheets[1 - first]
        seen = nothing(view, pixels)
        for sheet in before:
            seen = steps.look(sheet, pixels, seen)
        surface, known = steps.follow(view, pixels, seen.shown)
        target = Points(pixels.x + known.flow[:, 0], pixels.y + known.flow[:, 1], pixels.w)
        hidden = known.occluded_in
        for sheet in after[1:]:
            hidden = steps.covers(sheet, target, seen.shown, hidden)
        colours = steps.compose(view, bank, pixels, seen)
        clean.append(quantise(colours))
        final.append(steps.photograph(Shot(view, bank, pixels, surface, known), plan, colours))
        truths.append(known._replace(occluded_in=hidden & ~known.occluded_out))
        identities.append(of_pixels(scenes.identity, seen.shown).to(torch.uint8))
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
    flow = batch.flow.permute(0, 2, 3, 1).contiguous().cpu().numpy()
    frames = (_bytes(f) for f in (batch.clean1, batch.clean2, batch.final1, batch.final2))
    masks = (m.cpu().numpy() for m in (batch.valid, batch.occluded_in, batch.occluded_out))
    return [PairArrays(*parts) for parts in zip(*frames, flow, *masks, strict=True)]


def _bytes(frames: Float[Tensor, "b 3 h w"]) -> UInt8[np.ndarray, "b h w 3"]:
    # Frames are multiples of 1/255, up to rounding.
    whole = (frames * 255).round().to(torch.uint8)
    return whole.permute(0, 2, 3, 1).contiguous().cpu().numpy()
