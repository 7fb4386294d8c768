"""The network at work: by the chosen back end, in the chosen precision, within the memory there is.

Legend: b batch, H W rows and columns of padded images, h w those at 1/8.
"""

import logging
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import FlowError
from gmaflow.inference.backend import ReferenceRunner, Runner
from gmaflow.inference.flow import Flow
from gmaflow.inference.frames import Frame, both_directions, joined
from gmaflow.inference.padding import Padding
from gmaflow.inference.planning import Computation, PlanLog, WorkPlan, plan_work
from gmaflow.inference.refinement import Watch
from gmaflow.inference.tiles import count_parts, estimate_in_parts
from gmaflow.model import EncodedFrame, FlowNetwork, MemoryPlan, Prediction
from gmaflow.runtime.device import computing
from gmaflow.runtime.memory import memory_budget

log = logging.getLogger(__name__)


class BatchEstimate(NamedTuple):
    """Flow of a batch of pairs, as tensors."""

    flow: Float[Tensor, "b 2 H W"]
    """In pixels, at the images' size."""
    coarse: Float[Tensor, "b 2 h w"]
    """On the padded 1/8 grid, in its pixels."""
    in_tiles: bool = False
    """Whether memory was too short for anything but tiles; see `Flow.in_tiles`."""

    def cropped(self, padding: Padding) -> "BatchEstimate":
        """Return it at the size of the images before they were padded."""
        return self._replace(flow=padding.crop(self.flow))

    def to_flows(self) -> list[Flow]:
        """Return the flow of each pair, as arrays."""
        fine, coarse = (
            part.permute(0, 2, 3, 1).contiguous().cpu().numpy() for part in (self.flow, self.coarse)
        )
        return [
            Flow(array, coarse=low, in_tiles=self.in_tiles)
            for array, low in zip(fine, coarse, strict=True)
        ]


@dataclass(frozen=True)
class Engine:
    """Runs a network on padded images, or on frames that it has encoded."""

    network: FlowNetwork
    runner: Runner
    device: torch.device
    dtype: torch.dtype
    iters: int
    plan: MemoryPlan | None = None
    """What to keep in memory; by default whatever fits."""
    max_memory: float | None = None
    """Bytes to plan with; by default what is free."""
    plan_log: PlanLog = field(default_factory=PlanLog)

    def on_images(
        self,
        padded1: Float[Tensor, "b 3 H W"],
        padded2: Float[Tensor, "b 3 H W"],
        start: Float[Tensor, "b 2 h w"] | None,
        watch: Watch | None = None,
    ) -> BatchEstimate:
        """Estimate a batch of pairs, in parts where memory is short."""
        plan = self.plan_for(padded1.shape)
        self._tell(plan, padded1.shape)
        on_iteration = None
        if watch is not None:
            parts = count_parts(padded1.shape, pairs=plan.pairs, tile=plan.tile)
            total = parts * self.iters
            on_iteration = watch.of_whole(total) if parts == 1 else watch.of_parts(total)

        def at_once(image1: Tensor, image2: Tensor, start: Tensor | None) -> Prediction:
            with computing(self.device, image1.shape):
                return self.runner(
                    image1,
                    image2,
                    iters=self.iters,
                    flow_init=start,
                    plan=plan.memory,
                    on_iteration=on_iteration,
                )

        found = estimate_in_parts(
            at_once, padded1, padded2, start, pairs=plan.pairs, tile=plan.tile
        )
        if found.flow.isfinite().all():
            return BatchEstimate(found.flow, found.low, plan.in_tiles(padded1.shape))
        return self._in_float32(start).on_images(padded1, padded2, start, watch)

    def on_frames(
        self,
        frame1: Frame,
        frame2: Frame,
        start: Float[Tensor, "b 2 h w"] | None,
        watch: Watch | None = None,
        *,
        both_ways: bool,
    ) -> BatchEstimate:
        """Estimate one pair, forward or both ways as a batch of two."""
        first, second = frame1.encoded, frame2.encoded
        shape = (2 if both_ways else 1, *frame1.padded.shape[1:])
        if first is None or second is None or not (plan := self.plan_for(shape)).is_whole(shape):
            return self.on_images(*joined(frame1, frame2, both_ways=both_ways), start, watch)
        self._tell(plan, shape)
        features2 = second.features
        if both_ways:
            first, features2 = both_directions(first, second)
        with computing(self.device, shape):
            found = self.runner.match(
                first,
                features2,
                iters=self.iters,
                flow_init=start,
                plan=plan.memory,
                on_iteration=None if watch is None else watch.of_whole(self.iters),
            )
        if found.flow.isfinite().all():
            return BatchEstimate(found.flow, found.low)
        images = joined(frame1, frame2, both_ways=both_ways)
        return self._in_float32(start).on_images(*images, start, watch)

    def encode(self, padded: Float[Tensor, "b 3 H W"]) -> EncodedFrame | None:
        """Encode images once, for all the pairs they are part of; None where they need tiles."""
        if not self.plan_for(padded.shape).is_whole(padded.shape):
            return None
        with computing(self.device, padded.shape):
            return self.runner.encode_frame(padded)

    def plan_for(self, shape: tuple[int, ...]) -> WorkPlan:
        """Return how a batch of that shape is estimated."""
        batch, _, height, width = shape
        if self.plan is not None:
            return WorkPlan(self.plan, batch, (height, width))
        computation = Computation(
            self.network.config,
            half=self.dtype != torch.float32,
            fast=not isinstance(self.runner, ReferenceRunner),
            device=self.device.type,
        )
        budget = memory_budget(self.device, self.max_memory)
        return plan_work(computation, batch=batch, height=height, width=width, budget=budget)

    def _tell(self, plan: WorkPlan, shape: tuple[int, ...]) -> None:
        """Tell how a batch is estimated, unless whoever asks has decided it."""
        if self.plan is None:
            self.plan_log.tell(plan, shape)

    def _in_float32(self, start: Float[Tensor, "b 2 h w"] | None) -> "Engine":
        """Return who computes again what did not come out finite.

        Raises:
            FlowError: Nobody could: it is not for want of precision.
        """
        if start is not None and not start.isfinite().all():
            raise FlowError("the first guess has values that are NaN or infinite; replace them")
        if self.dtype == torch.float32:
            raise FlowError("these weights give flow that is not finite; are they damaged?")
        log.warning("%s overflowed on this pair; computing it in float32", self.dtype)
        runner = ReferenceRunner(self.network, torch.float32)
        return replace(self, runner=runner, dtype=torch.float32)


def check_iters(iters: int) -> int:
    """Refuse to refine less than once, or not a whole number of times."""
    if not isinstance(iters, Integral) or iters < 1:
        raise FlowError(f"iters is {iters!r}; give at least 1, a whole number (12 is usual)")
    return iters
