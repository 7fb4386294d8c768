"""The network at work: by the chosen back end, in the chosen precision, within the memory there is.

Legend: b batch, H W rows and columns of padded images, h w those at 1/8.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import FlowError
from gmaflow.inference.backend import ReferenceRunner, Runner
from gmaflow.inference.frames import Frame, both_directions
from gmaflow.inference.memory import memory_budget, out_of_memory_as_sentence
from gmaflow.inference.planning import Computation, PlanLog, WorkPlan, plan_work
from gmaflow.inference.refinement import Watch
from gmaflow.inference.tiles import count_parts, estimate_in_parts
from gmaflow.model import EncodedFrame, FlowNetwork, MemoryPlan, Prediction

log = logging.getLogger(__name__)


class BatchEstimate(NamedTuple):
    """Flow of a batch of pairs, as tensors."""

    flow: Float[Tensor, "b 2 H W"]
    """In pixels, at the images' size."""
    coarse: Float[Tensor, "b 2 h w"]
    """On the padded 1/8 grid, in its pixels."""
    in_tiles: bool = False
    """Whether memory was too short for anything but tiles; see `Flow.in_tiles`."""


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
        parts = count_parts(padded1.shape, pairs=plan.pairs, tile=plan.tile)

        def compute(runner: Runner) -> Prediction:
            on_iteration = None
            if watch is not None:
                total = parts * self.iters
                on_iteration = watch.of_whole(total) if parts == 1 else watch.of_parts(total)

            def at_once(image1: Tensor, image2: Tensor, start: Tensor | None) -> Prediction:
                with out_of_memory_as_sentence(image1.shape):
                    return runner(
                        image1,
                        image2,
                        iters=self.iters,
                        flow_init=start,
                        plan=plan.memory,
                        on_iteration=on_iteration,
                    )

            return estimate_in_parts(
                at_once, padded1, padded2, start, pairs=plan.pairs, tile=plan.tile
            )

        found = self._finite(compute)
        return BatchEstimate(found.flow, found.low, plan.in_tiles(padded1.shape))

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
        shape = (2 if both_ways else 1, *frame1.padded.shape[1:])
        plan = self.plan_for(shape)
        if frame1.encoded is None or frame2.encoded is None or not plan.is_whole(shape):
            images = [frame1.padded, frame2.padded]
            first, second = (images, images[::-1]) if both_ways else (images[:1], images[1:])
            return self.on_images(torch.cat(first), torch.cat(second), start, watch)
        self._tell(plan, shape)

        def compute(runner: Runner) -> Prediction:
            first, second = (
                frame.encoded
                if frame.encoded is not None and runner is self.runner
                else runner.encode_frame(frame.padded)
                for frame in (frame1, frame2)
            )
            features2 = second.features
            if both_ways:
                first, features2 = both_directions(first, second)
            with out_of_memory_as_sentence(shape):
                return runner.match(
                    first,
                    features2,
                    iters=self.iters,
                    flow_init=start,
                    plan=plan.memory,
                    on_iteration=None if watch is None else watch.of_whole(self.iters),
                )

        found = self._finite(compute)
        return BatchEstimate(found.flow, found.low)

    def encode(self, padded: Float[Tensor, "b 3 H W"]) -> EncodedFrame | None:
        """Encode images once, for all the pairs they are part of; None where they need tiles."""
        if not self.plan_for(padded.shape).is_whole(padded.shape):
            return None
        with out_of_memory_as_sentence(padded.shape):
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

    def _finite(self, compute: Callable[[Runner], Prediction]) -> Prediction:
        """Compute in the chosen precision, or in float32 where that overflows."""
        found = compute(self.runner)
        if found.flow.isfinite().all():
            return found
        if self.dtype != torch.float32:
            log.warning("%s overflowed on this pair; computing it in float32", self.dtype)
            found = compute(ReferenceRunner(self.network, torch.float32))
            if found.flow.isfinite().all():
                return found
        raise FlowError("these weights give flow that is not finite; are they damaged?")


def check_iters(iters: int) -> int:
    """Refuse to refine less than once."""
    if iters < 1:
        raise FlowError(f"iters is {iters}; give at least 1 (12 is the usual number)")
    return iters
