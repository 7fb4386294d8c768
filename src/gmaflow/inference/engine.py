"""Runs the network with the chosen back end and precision, within the available memory.

There is one network and two back ends that give the same flow. The reference back end is
`FlowNetwork` itself, under autocast in half precision. The fast back end is `FastNetwork`: with
Triton kernels and CUDA graphs on CUDA, in plain torch on a CPU. `FrameAttention` gives the pixels
from which each pixel of a frame borrows motion.

Legend: b batch, H W rows and columns of (padded) images, h w those at 1/8, k points.
"""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor

from gmaflow.errors import FlowError, check_known
from gmaflow.inference.fast import FastNetwork, RecordedNetwork
from gmaflow.inference.flow import Flow
from gmaflow.inference.images import (
    ROUNDING,
    ImageArray,
    Padding,
    PaddingKind,
    as_points,
    check_values,
    to_tensor,
)
from gmaflow.inference.mirroring import MirroredViews
from gmaflow.inference.planning import Computation, PlanLog, WorkPlan, plan_work
from gmaflow.inference.tiles import count_parts, estimate_in_parts
from gmaflow.model import (
    STRIDE,
    AttentionWeights,
    EncodedFrame,
    FlowNetwork,
    MatchOptions,
    MemoryPlan,
    OnIteration,
    Prediction,
)
from gmaflow.model.network import check_minmax
from gmaflow.model.settling import MAX_ITERS, SETTLED_THRESHOLD
from gmaflow.runtime.device import (
    computing,
    has_bfloat16,
    has_float8,
    has_kernels,
    memory_budget,
)

log = logging.getLogger(__name__)

Backend = Literal["auto", "reference", "fast"]
Runner: TypeAlias = FlowNetwork | FastNetwork | RecordedNetwork
"""A network ready to run. All are called with two images, encode frames and match them."""


def as_backend(text: str) -> Backend:
    """Return `text` as a back end, or raise a `FlowError`."""
    check_known("back end", text, get_args(Backend))
    return cast("Backend", text)


def make_runner(network: FlowNetwork, dtype: torch.dtype, backend: Backend) -> Runner:
    """Return the network in the form that the back end runs, on the same device."""
    device = network.features.conv_in.weight.device
    fast = can_be_fast(device, dtype)
    if as_backend(backend) == "fast" and not fast:
        raise FlowError(
            "the fast back end computes on cuda, and on cpu in fp32 or (where the CPU has "
            f"instructions for it) bf16, not on {device.type} in "
            f"{str(dtype).removeprefix('torch.')}; use another precision, or the back end auto"
        )
    if backend == "reference" or not fast:
        return network
    if device.type != "cuda":
        return FastNetwork(network, dtype=dtype)
    operations = None
    if has_kernels(device) and torch.version.hip is None:
        from gmaflow.inference.fast.triton_operations import TritonOperations

        operations = TritonOperations()
    return RecordedNetwork(FastNetwork(network, dtype=dtype, operations=operations))


def can_be_fast(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the fast back end can run. CPUs are slow in float16 or do not support it."""
    if device.type == "cpu":
        return dtype == torch.float32 or (dtype == torch.bfloat16 and has_bfloat16())
    return device.type == "cuda"


class BatchEstimate(NamedTuple):
    """Flow of a batch of pairs, as tensors."""

    flow: Float[Tensor, "b 2 H W"]
    """In pixels, at the images' size."""
    coarse: Float[Tensor, "b 2 h w"]
    """On the padded 1/8 grid, in its pixels."""
    in_tiles: bool = False
    """Whether it was estimated in tiles to save memory; see `Flow.in_tiles`."""
    iterations: tuple[int, ...] = ()
    """How many refinements each pair took."""

    def to_flows(self) -> list[Flow]:
        """Return the flow of each pair, as arrays."""
        fine, coarse = (
            part.permute(0, 2, 3, 1).contiguous().cpu().numpy() for part in (self.flow, self.coarse)
        )
        return [
            Flow(array, coarse=low, in_tiles=self.in_tiles, iterations=iterations)
            for array, low, iterations in zip(fine, coarse, self.iterations, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Refinement:
    """One refinement that was just made. Its flow takes time, so it is computed on demand.

    If memory is short, the work is done in parts: one direction after the other, or tile by tile.
    Then all refinements of all parts are counted, and there is no flow before the last.
    """

    number: int
    """Counted from 1."""
    total: int
    """How many there will be."""
    state: "tuple[Float[Tensor, 'b 2 h w'], Float[Tensor, 'b c h w']] | None"
    """The coarse flow and the hidden state of all views, the images as they are first; None for a
    part of the work, or a CUDA graph."""
    network: FlowNetwork
    padding: Padding

    def flow(self) -> Float32[np.ndarray, "H W 2"] | None:
        """Return the flow of the batch's first pair at the images' size; None without a state."""
        if self.state is None:
            return None
        coarse, hidden = self.state
        with computing(coarse.device, coarse.shape):
            # Under autocast the state is in half precision; the upsampler's weights are not.
            padded = self.network.upsample(coarse[:1], hidden[:1].float())
        return self.padding.crop(padded)[0].permute(1, 2, 0).float().cpu().numpy()


Watcher = Callable[[Refinement], None]
"""Called after each refinement; an exception that it raises stops the estimate."""


@dataclass(frozen=True)
class Pairs:
    """One or more pairs of padded images, which may be encoded already.

    Both ways, one pair is a batch of two: from the first image to the second, and back.
    """

    image1: Float[Tensor, "b 3 H W"]
    image2: Float[Tensor, "b 3 H W"]
    encoded: tuple[EncodedFrame, EncodedFrame] | None = None
    """All views of them, if there are more than one."""
    both_ways: bool = False
    checked: bool = True
    """Whether the values of the images are known to be in 0..1."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the batch's first images."""
        batch, *rest = self.image1.shape
        return (2 * batch if self.both_ways else batch, *rest)

    def images(self) -> tuple[Float[Tensor, "b 3 H W"], Float[Tensor, "b 3 H W"]]:
        if not self.both_ways:
            return self.image1, self.image2
        both = [self.image1, self.image2]
        return torch.cat(both), torch.cat(both[::-1])

    def mirrored(self, views: MirroredViews) -> "Pairs":
        """Return all views of the pairs."""
        image1, image2 = views.of_images(self.image1), views.of_images(self.image2)
        return replace(self, image1=image1, image2=image2)

    def match(self, runner: Runner, options: MatchOptions) -> Prediction:
        """Estimate the whole batch at once."""
        if self.encoded is None:
            return runner(*self.images(), **options)
        first, second = self.encoded
        features2 = second.features
        if self.both_ways:
            features2 = torch.cat([second.features, first.features])
            first = EncodedFrame(*(torch.cat(parts) for parts in zip(first, second, strict=True)))
        return runner.match(first, features2, **options)


@dataclass(frozen=True)
class Engine:
    """Runs a network on pairs of padded images."""

    network: FlowNetwork
    runner: Runner
    device: torch.device
    dtype: torch.dtype
    iters: int
    plan: MemoryPlan | None = None
    """What to keep in memory; by default whatever fits."""
    max_memory: float | None = None
    """Bytes to plan with; by default the free memory."""
    settled: float | None = None
    """Stop where an iteration changes the flow by less than this many pixels; None: never."""
    views: MirroredViews = field(default_factory=MirroredViews)
    plan_log: PlanLog = field(default_factory=PlanLog)
    plans: dict[tuple[tuple[int, ...], float | None], WorkPlan] = field(default_factory=dict)
    """Plans that worked, by the shape of the batch and the limit; on CUDA only."""

    def estimate(
        self,
        pairs: Pairs,
        padding: Padding,
        start: Float[Tensor, "b 2 h w"] | None = None,
        watch: Watcher | None = None,
    ) -> BatchEstimate:
        """Estimate a batch at the size before padding, in parts if memory is short."""
        return self.launch(pairs, padding, start, watch)()

    def launch(
        self,
        pairs: Pairs,
        padding: Padding,
        start: Float[Tensor, "b 2 h w"] | None = None,
        watch: Watcher | None = None,
    ) -> Callable[[], BatchEstimate]:
        """Start estimating a batch; call the returned function for the flow.

        A GPU works while the caller does something else: only that call waits for it.
        """
        check_watch(watch)
        views = pairs.mirrored(self.views)
        starts = None if start is None else self.views.of_flow(start)
        try:
            plan, prediction = self._launch(views, padding, starts, watch)
        except FlowError:
            self.plans.clear()  # memory may have run out: plans that fitted may no longer fit
            raise

        def finish() -> BatchEstimate:
            if self._is_finite(prediction, pairs):
                shape = views.shape
                return BatchEstimate(
                    padding.crop(self.views.average(prediction.flow)),
                    self.views.average(prediction.low, stride=STRIDE),
                    plan.in_tiles(shape),
                    self.views.largest(prediction.iterations or (self.iters,) * shape[0]),
                )
            exact, images = self._in_float32(start), replace(pairs, encoded=None)
            return exact.estimate(images, padding, start, watch)

        return finish

    def _launch(
        self,
        pairs: Pairs,
        padding: Padding,
        start: Float[Tensor, "b 2 h w"] | None,
        watch: Watcher | None,
    ) -> tuple[WorkPlan, Prediction]:
        shape = pairs.shape
        plan = self.plan_for(shape, padding)
        if self.plan is None:
            self.plan_log.log_plan(plan, shape, padding.size_before(*shape[-2:]))
        options = MatchOptions(iters=self.iters, plan=plan.memory, settled=self.settled)
        if watch is not None:
            options["on_iteration"] = self._iteration_callback(watch, padding, plan, shape)
        if plan.is_whole(shape):
            return plan, self._match(pairs, start, options)
        return plan, estimate_in_parts(
            lambda image1, image2, guess: self._match(Pairs(image1, image2), guess, options),
            *pairs.images(),
            start,
            pairs=plan.pairs,
            tile=plan.tile,
        )

    @property
    def checks_late(self) -> bool:
        """Whether the values of images are checked after the flow is estimated.

        A GPU computes their range along with the flow. Checking first would stall it.
        """
        return isinstance(self.runner, RecordedNetwork)

    def _is_finite(self, prediction: Prediction, pairs: Pairs) -> bool:
        """Return whether the flow is finite; refuse bad images that were not checked before."""
        if prediction.minmax is None:
            if not pairs.checked:
                check_values(pairs.image1, pairs.image2)
            return bool(prediction.flow.isfinite().all())
        low, high, *image_minmax = prediction.minmax.tolist()  # the only wait for the device
        if image_minmax and not pairs.checked:
            check_minmax(image_minmax, ROUNDING)
        return math.isfinite(low) and math.isfinite(high)

    def encode(self, padded: Float[Tensor, "b 3 H W"], padding: Padding) -> EncodedFrame | None:
        """Encode images once for all their pairs; None if they must be estimated in parts."""
        padded = self.views.of_images(padded)
        if not self.plan_for(padded.shape, padding).is_whole(padded.shape):
            return None
        with self._computing(padded.shape):
            return self.runner.encode_frame(padded)

    def plan_for(self, shape: tuple[int, ...], padding: Padding) -> WorkPlan:
        """Return how to estimate a batch of padded images of that shape."""
        batch, _, height, width = shape
        if self.plan is not None:
            return WorkPlan(self.plan, batch, (height, width))
        cached = self.plans.get((shape, self.max_memory))
        if cached is not None:
            return cached
        computation = Computation(
            self.network.config,
            half=self.dtype != torch.float32,
            fast=not isinstance(self.runner, FlowNetwork),
            device=self.device.type,
            float8=has_float8(self.device),
        )
        budget = memory_budget(self.device, self.max_memory)
        plan = plan_work(
            computation,
            batch=batch,
            height=height,
            width=width,
            budget=budget,
            image_size=padding.size_before(height, width),
        )
        # A recording holds the memory of its plan, which a new plan would not count as free. And
        # querying the free memory of a GPU takes time.
        if isinstance(self.runner, RecordedNetwork):
            self.plans[shape, self.max_memory] = plan
        return plan

    def _match(
        self, pairs: Pairs, start: Float[Tensor, "b 2 h w"] | None, options: MatchOptions
    ) -> Prediction:
        with self._computing(pairs.shape):
            return pairs.match(self.runner, {**options, "flow_init": start})

    def _computing(self, shape: tuple[int, ...]) -> AbstractContextManager[None]:
        """Compute in the requested precision; the fast back end needs no autocast for that."""
        reference = isinstance(self.runner, FlowNetwork)
        dtype = self.dtype if reference else torch.float32
        return computing(self.device, shape, autocast=dtype)

    def _iteration_callback(
        self, watch: Watcher, padding: Padding, plan: WorkPlan, shape: tuple[int, ...]
    ) -> OnIteration:
        """Return the callback after each iteration that calls a watcher."""
        parts = 1
        if not plan.is_whole(shape):
            parts = count_parts(shape, pairs=plan.pairs, tile=plan.tile)
        numbers = count(1)

        def callback(_number: int, coarse: Tensor, hidden: Tensor) -> None:
            state = (coarse, hidden) if parts == 1 else None
            total = parts * self.iters
            watch(Refinement(next(numbers), total, state, self.network, padding))

        return callback

    def _in_float32(self, start: Float[Tensor, "b 2 h w"] | None) -> "Engine":
        """Return an engine for a batch whose flow is not finite in half precision."""
        if start is not None and not start.isfinite().all():
            raise FlowError("the initial flow contains NaN or infinite values; replace them")
        if self.dtype == torch.float32:
            raise FlowError("these weights give flow that is not finite; are they damaged?")
        log.warning("%s overflowed on this pair; computing it in float32", self.dtype)
        # Without the plans: they are for less memory than float32 takes.
        return replace(self, runner=self.network, dtype=torch.float32, plans={})


ITERS_LIMIT = 1_000_000
"""More are refused as a mistake."""

Iterations: TypeAlias = int | np.integer[Any] | Literal["auto"]
"""A number of refinements, or as many as it takes until the flow has settled."""


def check_watch(watch: object) -> None:
    """Refuse a watcher that cannot be called."""
    if watch is not None and not callable(watch):
        raise FlowError(f"watch is {type(watch).__name__}; give a function of one argument")


def check_iters(iters: Iterations) -> tuple[int, float | None]:
    """Return the largest number of refinements, and the threshold at which they stop."""
    if iters == "auto":
        return MAX_ITERS, SETTLED_THRESHOLD
    if isinstance(iters, bool) or not isinstance(iters, (int, np.integer)) or iters < 1:
        raise FlowError(f"iters is {iters!r}; use a whole number, 1 or more (12 is usual), or auto")
    if iters > ITERS_LIMIT:
        raise FlowError(f"iters is {iters}; use at most {ITERS_LIMIT} (12 is usual)")
    return int(iters), None  # a numpy integer is neither JSON nor what the network takes


@dataclass(frozen=True, eq=False)
class FrameAttention:
    """The attention among the pixels of one frame.

    The frame is encoded once. The matrix of all weights is never computed, only rows of it.
    """

    weights: AttentionWeights
    padding: Padding
    height: int
    width: int
    device: torch.device

    @classmethod
    def of(
        cls,
        network: FlowNetwork,
        image: ImageArray,
        device: torch.device,
        padding: PaddingKind,
        context: Float[Tensor, "1 c h w"] | None = None,
    ) -> "FrameAttention":
        """Encode a frame, or take the context of an encoded one."""
        if network.attention is None:
            raise FlowError("this network has no attention; use gma or another gma model")
        height, width = image.shape[:2]
        pads = Padding.of_kind(padding, height, width)
        with torch.inference_mode(), computing(device, (1, 3, height, width)):
            if context is None:
                _, context = network.encode_context(pads.pad(to_tensor(image, device)))
            weights = network.attention(context.to(network.dtype), store=False)
            return cls(weights, pads, height, width, device)

    @torch.inference_mode()
    def cells(self, points: Sequence[tuple[float, float]]) -> Float[Tensor, "k h w"]:
        """Return for each point (x, y) its weights on the padded 1/8 grid, which sum to 1.

        Heads are averaged.
        """
        columns = (self.padding.left + self.width + self.padding.right) // STRIDE
        flat = [
            (y + self.padding.top) // STRIDE * columns + (x + self.padding.left) // STRIDE
            for x, y in np.rint(as_points(points, self.height, self.width)).astype(int).tolist()
        ]
        with computing(self.device, (1, 3, self.height, self.width)):
            rows = self.weights.rows(torch.tensor(flat, dtype=torch.long, device=self.device))
        return rows.mean(dim=1)[0].unflatten(1, (-1, columns)).float()

    @torch.inference_mode()
    def maps(self, points: Sequence[tuple[float, float]]) -> Float32[np.ndarray, "k H W"]:
        """Return the weights of each point at the image's size."""
        full = F.interpolate(
            self.cells(points)[:, None], scale_factor=STRIDE, mode="bilinear", align_corners=False
        )
        return self.padding.crop(full)[:, 0].cpu().numpy()
