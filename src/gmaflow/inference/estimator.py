"""The door for programs: images in, flow out."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from gmaflow.errors import FlowError, WeightsError
from gmaflow.inference.attention import FrameAttention
from gmaflow.inference.device import Precision, pick_device, pick_dtype
from gmaflow.inference.flow import BidirectionalFlow, Flow
from gmaflow.inference.images import (
    ImageArray,
    ImageLike,
    check_same_size,
    check_tensors,
    load_image,
    to_tensor,
)
from gmaflow.inference.memory import memory_budget, out_of_memory_as_sentence, plan_memory
from gmaflow.inference.padding import Padding, PaddingKind
from gmaflow.inference.refinement import Watcher, telling
from gmaflow.inference.visibility import check_visibility
from gmaflow.inference.warm_start import start_from
from gmaflow.model import MemoryPlan, NetworkConfig, OnIteration
from gmaflow.weights import Checkpoint, describe, find_checkpoint, find_config

log = logging.getLogger(__name__)


class BatchEstimate(NamedTuple):
    """Flow of a batch of pairs, as tensors."""

    flow: Float[Tensor, "b 2 H W"]
    """In pixels, at the images' size."""
    coarse: Float[Tensor, "b 2 h w"]
    """On the padded 1/8 grid, in its pixels."""


class FlowEstimator:
    """Estimate optical flow, with one network on one device.

    It holds nothing of the pairs it has seen, so threads may share it.

    Args:
        weights: A checkpoint file or the name of shipped weights; by default those of the model.
        model: A model's name; by default what the weights are, or `gma`.
        iters: Refinements for each pair: more are slower and better.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        precision: `auto`, `fp32`, `fp16`, `bf16`; half precision by itself on CUDA only.
        plan: What to keep in memory; by default whatever fits.
        padding: Where images grow to multiples of 8: as published for `sintel`, or for `kitti`.

    Raises:
        FlowError: The weights, the device or another argument cannot be used; it says why.
    """

    def __init__(
        self,
        weights: str | Path | Checkpoint | None = None,
        *,
        model: str | None = None,
        iters: int = 12,
        device: str | torch.device = "auto",
        precision: Precision = "auto",
        plan: MemoryPlan | None = None,
        padding: PaddingKind = "sintel",
    ) -> None:
        self.iters = check_iters(iters)
        self.device = pick_device(device)
        self.dtype = pick_dtype(precision, self.device)
        self.plan = plan
        self.padding: PaddingKind = padding
        if not isinstance(weights, Checkpoint):
            weights = find_checkpoint(weights, model=model)
        elif model is not None and find_config(model) != weights.config:
            raise WeightsError(f"the checkpoint holds {describe(weights.config)}, not {model}")
        self.network = weights.build().to(self.device)

    @property
    def config(self) -> NetworkConfig:
        """What network this is."""
        return self.network.config

    def __call__(
        self,
        image1: ImageLike,
        image2: ImageLike,
        *,
        previous: Flow | None = None,
        watch: Watcher | None = None,
    ) -> Flow:
        """Estimate the flow from one image to another.

        Args:
            image1: The first frame: a path, an array or a PIL image.
            image2: The second, of the same size.
            previous: The flow of the pair before in a sequence, to start from (warm start).
            watch: Told after each refinement; what it raises stops the estimate.

        Raises:
            FlowError: An image cannot be read or used; it says why.
        """
        array1, array2 = self._load_pair(image1, image2)
        start = None if previous is None else self._start_from(previous, array1)
        tensors = self._tensors(array1, array2)
        return self._to_flows(self.batch(*tensors, start=start, watch=watch))[0]

    def bidirectional(
        self,
        image1: ImageLike,
        image2: ImageLike,
        *,
        previous: Flow | None = None,
        watch: Watcher | None = None,
    ) -> BidirectionalFlow:
        """Estimate flow both ways, and from it occlusion and confidence for the first frame.

        A warm start (see `__call__`) is for the forward direction; backward begins at zero. Who
        watches is shown the forward flow.
        """
        array1, array2 = self._load_pair(image1, image2)
        tensor1, tensor2 = self._tensors(array1, array2)
        start = None
        if previous is not None:
            ahead = self._start_from(previous, array1)
            start = torch.cat([ahead, torch.zeros_like(ahead)])
        both = self.batch(
            torch.cat([tensor1, tensor2]), torch.cat([tensor2, tensor1]), start=start, watch=watch
        )
        seen = check_visibility(both.flow[:1], both.flow[1:])
        forward, backward = self._to_flows(both)
        return BidirectionalFlow(
            forward,
            backward,
            occluded_in=seen.occluded_in[0].cpu().numpy(),
            occluded_out=seen.occluded_out[0].cpu().numpy(),
            confidence=seen.confidence[0].cpu().numpy(),
        )

    def sequence(self, frames: Iterable[ImageLike], *, warm_start: bool = False) -> Iterator[Flow]:
        """Estimate the flow between consecutive frames, one pair at a time.

        Args:
            frames: Any number of images, read as they are needed.
            warm_start: Begin each pair with the flow of the one before, moved along itself.
        """
        previous_frame, previous_flow = None, None
        for frame in frames:
            array = load_image(frame)
            if previous_frame is not None:
                start = previous_flow if warm_start else None
                previous_flow = self(previous_frame, array, previous=start)
                yield previous_flow
            previous_frame = array.copy()  # whoever gives the frames may reuse their memory

    @torch.inference_mode()
    def batch(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        *,
        start: Float[Tensor, "b 2 h w"] | None = None,
        watch: Watcher | None = None,
    ) -> BatchEstimate:
        """Estimate the flow of a batch of pairs, tensors in and out.

        Args:
            image1: First frames, RGB in 0..1, any size from 16 px on.
            image2: Second frames.
            start: First guess on the padded 1/8 grid, in its pixels.
            watch: Told after each refinement; what it raises stops the estimate.
        """
        check_tensors(image1, image2)
        height, width = image1.shape[-2:]
        padding = Padding.of_kind(self.padding, height, width)
        padded1, padded2 = (
            padding.pad(image.to(self.device).float()) for image in (image1, image2)
        )
        plan = self.plan or self._plan(padded1)
        seen = None if watch is None else telling(watch, self.iters, self.network, padding)
        result = self._run(padded1, padded2, start, plan, self.dtype, seen)
        if self.dtype != torch.float32 and not result.flow.isfinite().all():
            log.warning("%s overflowed on this pair; computing it in float32", self.dtype)
            result = self._run(padded1, padded2, start, plan, torch.float32, seen)
        if not result.flow.isfinite().all():
            raise FlowError("these weights give flow that is not finite; are they damaged?")
        return BatchEstimate(padding.crop(result.flow), result.coarse)

    def attention(
        self, image1: ImageLike, points: Sequence[tuple[float, float]]
    ) -> Float32[np.ndarray, "k h w"]:
        """Return for each point (x, y) how much it borrows from every pixel of the first frame.

        The maps are at the image's size and sum to 1 on the 1/8 grid; heads are averaged.

        Raises:
            FlowError: The network has no attention, or a point lies outside the image.
        """
        return self.attend(image1).maps(points)

    def attend(self, image1: ImageLike) -> FrameAttention:
        """Encode a first frame once, to ask for the attention of many of its points.

        Raises:
            FlowError: The network has no attention.
        """
        return FrameAttention.of(self.network, load_image(image1), self.device, self.padding)

    def with_iters(self, iters: int) -> "FlowEstimator":
        """Return an estimator with the same network that makes another number of refinements."""
        twin = copy(self)
        twin.iters = check_iters(iters)
        return twin

    def _run(
        self,
        padded1: Tensor,
        padded2: Tensor,
        start: Tensor | None,
        plan: MemoryPlan,
        dtype: torch.dtype,
        seen: OnIteration | None,
    ) -> BatchEstimate:
        half = dtype != torch.float32
        with (
            out_of_memory_as_sentence(padded1.shape),
            torch.autocast(self.device.type, dtype if half else None, enabled=half),
        ):
            found = self.network(
                padded1,
                padded2,
                iters=self.iters,
                flow_init=start,
                plan=plan,
                on_iteration=seen,
            )
        return BatchEstimate(found.flow, found.low)

    def _plan(self, padded: Tensor) -> MemoryPlan:
        batch, _, height, width = padded.shape
        plan = plan_memory(
            self.config,
            batch=batch,
            height=height,
            width=width,
            budget=memory_budget(self.device),
        )
        log.info("%dx%d, batch %d: %s", height, width, batch, plan)
        return plan

    def _start_from(self, previous: Flow, image: ImageArray) -> Float[Tensor, "1 2 h w"]:
        height, width = image.shape[:2]
        padding = Padding.of_kind(self.padding, height, width)
        return start_from(previous, (height, width), padding, self.device)

    def _load_pair(self, image1: ImageLike, image2: ImageLike) -> tuple[ImageArray, ImageArray]:
        array1 = load_image(image1, name="the first image")
        array2 = load_image(image2, name="the second image")
        check_same_size(array1, array2)
        return array1, array2

    def _tensors(self, array1: ImageArray, array2: ImageArray) -> tuple[Tensor, Tensor]:
        return to_tensor(array1, self.device), to_tensor(array2, self.device)

    @staticmethod
    def _to_flows(estimate: BatchEstimate) -> list[Flow]:
        fine = estimate.flow.permute(0, 2, 3, 1).contiguous().cpu().numpy()
        coarse = estimate.coarse.permute(0, 2, 3, 1).contiguous().cpu().numpy()
        return [Flow(array, coarse=low) for array, low in zip(fine, coarse, strict=True)]


def check_iters(iters: int) -> int:
    """Refuse to refine less than once."""
    if iters < 1:
        raise FlowError(f"iters is {iters}; give at least 1 (12 is the usual number)")
    return iters


def estimate(
    image1: ImageLike,
    image2: ImageLike,
    *,
    weights: str | Path | None = None,
    model: str | None = None,
) -> Flow:
    """Estimate the flow from one image to another, for the hurried.

    The network is loaded each time: for more than one pair make a `FlowEstimator`.
    """
    return FlowEstimator(weights, model=model)(image1, image2)
