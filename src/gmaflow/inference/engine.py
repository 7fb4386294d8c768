"""The network at work: in the chosen precision, within the memory there is.

Legend: b batch, H W rows and columns of padded images, h w those at 1/8.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import FlowError
from gmaflow.inference.frames import Frame, both_directions
from gmaflow.inference.memory import memory_budget, out_of_memory_as_sentence, plan_memory
from gmaflow.model import EncodedFrame, FlowNetwork, MemoryPlan, Prediction

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engine:
    """Runs a network on padded images, or on frames that it has encoded."""

    network: FlowNetwork
    device: torch.device
    dtype: torch.dtype
    iters: int
    plan: MemoryPlan | None = None
    """What to keep in memory; by default whatever fits."""

    def on_images(
        self,
        padded1: Float[Tensor, "b 3 H W"],
        padded2: Float[Tensor, "b 3 H W"],
        start: Float[Tensor, "b 2 h w"] | None,
    ) -> Prediction:
        """Estimate a batch of pairs."""
        plan = self._plan(padded1.shape)

        def compute(dtype: torch.dtype) -> Prediction:
            with self._computing(padded1.shape, dtype):
                return self.network(padded1, padded2, iters=self.iters, flow_init=start, plan=plan)

        return self._finite(compute)

    def on_frames(
        self,
        frame1: Frame,
        frame2: Frame,
        start: Float[Tensor, "b 2 h w"] | None,
        *,
        both_ways: bool,
    ) -> Prediction:
        """Estimate one pair, forward or both ways as a batch of two."""
        shape = (2 if both_ways else 1, *frame1.padded.shape[1:])
        plan = self._plan(shape)

        def compute(dtype: torch.dtype) -> Prediction:
            first, second = (
                frame.encoded if dtype == self.dtype else self.encode(frame.padded, dtype)
                for frame in (frame1, frame2)
            )
            features2 = second.features
            if both_ways:
                first, features2 = both_directions(first, second)
            with self._computing(shape, dtype):
                return self.network.match(
                    first, features2, iters=self.iters, flow_init=start, plan=plan
                )

        return self._finite(compute)

    def encode(
        self, padded: Float[Tensor, "b 3 H W"], dtype: torch.dtype | None = None
    ) -> EncodedFrame:
        """Encode images once, for all the pairs they are part of."""
        with self._computing(padded.shape, dtype or self.dtype):
            return self.network.encode_frame(padded)

    def _finite(self, compute: Callable[[torch.dtype], Prediction]) -> Prediction:
        """Compute in the chosen precision, or in float32 where that overflows."""
        found = compute(self.dtype)
        if self.dtype != torch.float32 and not found.flow.isfinite().all():
            log.warning("%s overflowed on this pair; computing it in float32", self.dtype)
            found = compute(torch.float32)
        if not found.flow.isfinite().all():
            raise FlowError("these weights give flow that is not finite; are they damaged?")
        return found

    @contextmanager
    def _computing(self, shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[None]:
        half = dtype != torch.float32
        with (
            out_of_memory_as_sentence(shape),
            torch.autocast(self.device.type, dtype if half else None, enabled=half),
        ):
            yield

    def _plan(self, shape: tuple[int, ...]) -> MemoryPlan:
        if self.plan is not None:
            return self.plan
        batch, _, height, width = shape
        plan = plan_memory(
            self.network.config,
            batch=batch,
            height=height,
            width=width,
            budget=memory_budget(self.device),
        )
        log.info("%dx%d, batch %d: %s", height, width, batch, plan)
        return plan
