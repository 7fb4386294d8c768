"""What can be measured: one network, one way to compute it, one size."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import FlowError
from gmaflow.inference import FlowEstimator, as_backend, as_precision
from gmaflow.inference.images import Padding
from gmaflow.model import PUBLISHED_MIN_SIDE, FlowNetwork, PublishedNetwork
from gmaflow.runtime.device import pick_device, pick_dtype
from gmaflow.training import Batch, StepPlan, TrainConfig, TrainStep
from gmaflow.weights import Checkpoint, find_checkpoint, find_config

Way = Literal["gmaflow", "published", "training"]
"""Estimate as this package does, or as the published code does; or a step of training."""

Work = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that decides what is computed; plain values, so that another process can be told."""

    way: Way = "gmaflow"
    model: str = "gma"
    weights: str = ""
    """A file, or the name of shipped weights; by default random ones, which take as long."""
    height: int = 440
    width: int = 1024
    batch: int = 1
    iters: int = 12
    device: str = "auto"
    precision: str = "auto"
    backend: str = "auto"
    max_memory: str = ""

    @property
    def size(self) -> str:
        """Height and width as text."""
        return f"{self.height}x{self.width}"

    def checkpoint(self) -> Checkpoint:
        """Load the weights, or draw them."""
        if self.weights:
            return find_checkpoint(self.weights, model=self.model or None)
        config = find_config(self.model)
        assert config is not None
        torch.manual_seed(0)
        return Checkpoint(config=config, tensors=FlowNetwork(config).state_dict())

    def prepare(self) -> Work:
        """Load everything onto the device; return the work that is to be measured.

        Raises:
            FlowError: The case cannot be.
        """
        ways: dict[Way, Callable[[], Work]] = {
            "gmaflow": self._estimate,
            "published": self._estimate_as_published,
            "training": self._train,
        }
        return ways[self.way]()

    def _estimate(self) -> Work:
        estimator = FlowEstimator(
            self.checkpoint(),
            iters=self.iters,
            device=self.device,
            precision=as_precision(self.precision),
            backend=as_backend(self.backend),
            max_memory=self.max_memory or None,
        )
        images = self._images(estimator.device)
        return lambda: estimator.batch(*images)

    def _estimate_as_published(self) -> Work:
        if min(self.height, self.width) < PUBLISHED_MIN_SIDE:
            raise FlowError(
                f"{self.size} is too small for the published way to compute; give sizes from "
                f"{PUBLISHED_MIN_SIDE} on"
            )
        device = pick_device(self.device)
        dtype = pick_dtype(as_precision(self.precision), device)
        half = dtype != torch.float32
        network = PublishedNetwork(self.checkpoint().build()).to(device)
        padding = Padding.to_stride(self.height, self.width)
        images = [padding.pad(image) for image in self._images(device)]

        @torch.inference_mode()
        def work() -> Tensor:
            with torch.autocast(device.type, dtype if half else None, enabled=half):
                return padding.crop(network(*images, iters=self.iters).flow)

        return work

    def _train(self) -> Work:
        config = TrainConfig(
            model=self.model,
            crop=(self.height, self.width),
            batch=self.batch,
            iters=self.iters,
            precision=self.precision,
        )
        device = pick_device(self.device)
        step = TrainStep(self.checkpoint().build().to(device).requires_grad_(True), config)
        image1, image2 = self._images(device)
        everywhere = torch.ones_like(image1[:, 0], dtype=torch.bool)
        batch = Batch(image1, image2, torch.ones_like(image1[:, :2]), everywhere, ~everywhere)
        return lambda: step(batch, StepPlan(lr=1e-6, iters=self.iters, occluded=True))

    def _images(self, device: torch.device) -> tuple[Tensor, Tensor]:
        return moving_images(self.batch, self.height, self.width, device)


def moving_images(
    batch: int, height: int, width: int, device: torch.device
) -> tuple[Float[Tensor, "b 3 h w"], Float[Tensor, "b 3 h w"]]:
    """Return soft random patterns, and the same moved by a few pixels."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(batch, 3, height // 8 + 2, width // 8 + 2, generator=generator)
    size = (height + 8, width + 8)
    pattern = F.interpolate(coarse, size, mode="bilinear", align_corners=True).to(device)
    first, second = pattern[..., :height, :width], pattern[..., 2 : height + 2, 5 : width + 5]
    return first.contiguous(), second.contiguous()
