"""The config of a run, and the cases that it measures."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gmaflow.bench.published_network import PUBLISHED_MIN_SIDE, PublishedNetwork
from gmaflow.errors import FlowError
from gmaflow.inference import BatchEstimate, FlowEstimator, as_precision, device_arguments
from gmaflow.inference.images import Padding
from gmaflow.io.images import check_smallest, read_size
from gmaflow.model import MODELS, STRIDE, FlowNetwork, model_config
from gmaflow.runtime.device import pick_device, pick_dtype
from gmaflow.runtime.device_options import DeviceOptions
from gmaflow.training import Batch, StepPlan, TrainConfig, TrainStep
from gmaflow.weights import Checkpoint, find_checkpoint

Way = Literal["gmaflow", "published", "training"]
"""Estimate as this package does or as the published code does; or a training step."""
Work = Callable[[], object]

AGAINST = ("", "published", "reference")
"""Nothing, or the published algorithm; `reference` is its old name."""
SWEEP_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class Settings(DeviceOptions):
    """How a network is run, in every case of a run."""

    # The string under a field is its documentation, also in `gmaflow bench --help`.
    weights: str = ""
    """A file, the folder of a training run, or the name of shipped weights; by default random
    weights, which take as long."""
    batch: int = 1
    """Pairs at a time."""
    iters: int = 12
    """Refinements."""


@dataclass(frozen=True, kw_only=True)
class Case(Settings):
    """One network, one way to compute it, one size. Plain values, so that JSON can hold it."""

    way: Way = "gmaflow"
    model: str = "gma"
    height: int = 440
    width: int = 1024

    @property
    def size(self) -> str:
        """Height and width as text."""
        return f"{self.height}x{self.width}"

    def checkpoint(self) -> Checkpoint:
        """Load the weights, or draw random ones."""
        if self.weights:
            return find_checkpoint(self.weights, model=self.model or None)
        config = model_config(self.model)
        torch.manual_seed(0)
        return Checkpoint(config=config, tensors=FlowNetwork(config).state_dict())

    def prepare(self) -> Work:
        """Load everything onto the device; return the work to be measured."""
        ways: dict[Way, Callable[[], Work]] = {
            "gmaflow": self._estimate,
            "published": self._estimate_as_published,
            "training": self._train,
        }
        return ways[self.way]()

    def _estimate(self) -> Work:
        estimator = FlowEstimator(self.checkpoint(), iters=self.iters, **device_arguments(self))
        images = self._images(estimator.device)
        return lambda: estimator.batch(*images)

    def _estimate_as_published(self) -> Work:
        check_published((self.height, self.width))
        device = pick_device(self.device)
        # The published code computes in half precision on CUDA only.
        precision = "fp32" if device.type == "cpu" else as_precision(self.precision)
        dtype = pick_dtype(precision, device)
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
        valid = torch.ones_like(image1[:, 0], dtype=torch.bool)
        batch = Batch(image1, image2, torch.ones_like(image1[:, :2]), valid, ~valid)
        return lambda: step(batch, StepPlan(lr=1e-6, iters=self.iters, occluded=True))

    def _images(self, device: torch.device) -> tuple[Tensor, Tensor]:
        return moving_images(self.batch, self.height, self.width, device)


@dataclass(frozen=True, kw_only=True)
class BenchConfig(Settings):
    """Sizes, models, and how long to measure them."""

    models: tuple[str, ...] = ("gma",)
    """gma, gma-affine, gma-p, gma-p-only, raft, raft-small; several are measured in turn."""
    sizes: tuple[str, ...] = ("440x1024",)
    """Height x width, one or several."""
    against: str = ""
    """published: also measure, in turn, the algorithm of the published code with the same
    weights."""
    check: bool = False
    """Also measure how far the flow is from that of the reference back end in float32."""
    overhead: bool = False
    """Also print the paper's table of overhead; it measures training memory, on a GPU."""
    sweep: bool = False
    """Measure increasing sizes up to the one given, and plot how the cost grows."""
    warm_up: int = 2
    """Rounds that do not count."""
    rounds: int = 0
    """Rounds that count; 0: as many as fit into --seconds, at least 3."""
    seconds: float = 10.0
    """How long to measure each case if --rounds is 0."""
    skip_memory: bool = False
    """Do not measure peak memory, which needs a separate process for each case."""

    def __post_init__(self) -> None:
        device_arguments(self)
        for name in ("batch", "iters"):
            if getattr(self, name) < 1:
                raise FlowError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.warm_up < 0 or self.rounds < 0 or not self.seconds > 0:
            raise FlowError("warm_up and rounds must be 0 or more, and seconds above 0")
        if self.against not in AGAINST:
            raise FlowError(f"unknown value {self.against!r} for against; give published")
        if len(self.measured_sizes) < 2 and self.sweep:
            raise FlowError("the size is too small for a sweep; give at least 256x256")
        if self.against:
            for size in self.measured_sizes:
                check_published(size)
        for model in self.model_names:
            model_config(model)  # raises if there is none of that name

    @property
    def model_names(self) -> list[str]:
        """The models, separated by commas or given one by one."""
        return [name for text in self.models for name in re.split("[, ]+", text) if name]

    @property
    def measured_sizes(self) -> list[tuple[int, int]]:
        """All heights and widths to measure."""
        texts = [text for group in self.sizes for text in re.split("[, ]+", group) if text]
        sizes = [read_size(text) for text in texts]
        for size in sizes:
            check_smallest(size)
        if not sizes or not self.model_names:
            models = ", ".join(MODELS)
            raise FlowError(
                f"nothing to measure; give sizes such as 440x1024, and models: {models}"
            )
        return growing_sizes(max(sizes, key=math.prod)) if self.sweep else sizes

    def case(self, model: str, size: tuple[int, int], way: Way) -> Case:
        settings = {field.name: getattr(self, field.name) for field in fields(Settings)}
        return Case(way=way, model=model, height=size[0], width=size[1], **settings)

    def cases(self, size: tuple[int, int]) -> Iterator[Case]:
        """Yield the cases that are measured in turn at one size."""
        ways: list[Way] = ["gmaflow", "published"] if self.against else ["gmaflow"]
        return (self.case(model, size, way) for model in self.model_names for way in ways)


def check_published(size: tuple[int, int]) -> None:
    """Refuse a size that the published algorithm cannot take."""
    if min(size) < PUBLISHED_MIN_SIDE:
        raise FlowError(
            f"{size[0]}x{size[1]} is too small for the published algorithm; give sizes of at least "
            f"{PUBLISHED_MIN_SIDE}x{PUBLISHED_MIN_SIDE}"
        )


def growing_sizes(largest: tuple[int, int]) -> list[tuple[int, int]]:
    """Return sizes of the same aspect ratio, each with twice the pixels of the one before."""
    sizes = []
    for halvings in reversed(range(SWEEP_STEPS)):
        factor = 2 ** (-halvings / 2)
        height, width = (round(side * factor / STRIDE) * STRIDE for side in largest)
        if min(height, width) >= PUBLISHED_MIN_SIDE:
            sizes.append((height, width))
    return sizes


def moving_images(
    batch: int, height: int, width: int, device: torch.device
) -> tuple[Float[Tensor, "b 3 h w"], Float[Tensor, "b 3 h w"]]:
    """Return smooth random images, and the same shifted by a few pixels."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(batch, 3, height // 8 + 2, width // 8 + 2, generator=generator)
    size = (height + 8, width + 8)
    pattern = F.interpolate(coarse, size, mode="bilinear", align_corners=True).to(device)
    first, second = pattern[..., :height, :width], pattern[..., 2 : height + 2, 5 : width + 5]
    return first.contiguous(), second.contiguous()


@dataclass(frozen=True, kw_only=True)
class Distance:
    """The mean and largest difference of two flows, in pixels."""

    mean: float
    largest: float


def distance_from_float32(case: Case) -> Distance:
    """Compare a case's flow with that of the reference back end in float32, on the same device.

    The reference has no memory limit: it needs more memory, and tiles would change its flow.
    """
    exact = replace(case, precision="fp32", backend="reference", max_memory=None)
    actual, expected = (one.prepare()() for one in (case, exact))
    assert isinstance(actual, BatchEstimate)
    assert isinstance(expected, BatchEstimate)
    difference = (actual.flow - expected.flow).norm(dim=1)
    return Distance(mean=float(difference.mean()), largest=float(difference.max()))
