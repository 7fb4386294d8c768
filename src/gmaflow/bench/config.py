"""What to measure: one frozen config that refuses nonsense.

The string under a field is its documentation, in `gmaflow bench --help` too.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gmaflow.bench.cases import Case, Way
from gmaflow.errors import FlowError
from gmaflow.inference import as_backend, as_precision
from gmaflow.io.sizes import read_size
from gmaflow.model import MODELS, PUBLISHED_MIN_SIDE, STRIDE
from gmaflow.runtime.memory import as_bytes
from gmaflow.weights import find_config

AGAINST = ("", "published", "reference")
"""Nothing, or the published way of computing, by either name."""
SWEEP_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Sizes, models, and how long to measure them."""

    models: tuple[str, ...] = ("gma",)
    """gma, gma-p, gma-p-only, raft, raft-small; several are measured in turn."""
    weights: str = ""
    """A file or the name of shipped weights; by default random ones, which take as long."""
    sizes: tuple[str, ...] = ("440x1024",)
    """Height x width, one or several."""
    batch: int = 1
    """Pairs at a time."""
    iters: int = 12
    """Refinements."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps."""
    precision: str = "auto"
    """auto, fp32, fp16 or bf16."""
    backend: str = "auto"
    """auto, fast, or reference: the network as it is written."""
    max_memory: str = ""
    """Plan with so much memory, such as 1.5GB; by default with what is free."""
    against: str = ""
    """published (or reference): also measure, in turn, the same weights computed as the published
    code does. This is not the back end called reference."""
    check: bool = False
    """Also tell how far the flow is from that of the network as it is written, in float32."""
    overhead: bool = False
    """Also print the paper's table of overhead; it needs the memory of training, on a GPU."""
    sweep: bool = False
    """Measure growing sizes up to the one given, and draw how the cost grows."""
    warm_up: int = 2
    """Rounds that do not count."""
    rounds: int = 0
    """Rounds that count; 0: as many as --seconds take, at least 3."""
    seconds: float = 10.0
    """How long to measure each case, where --rounds does not say."""
    skip_memory: bool = False
    """Do not measure peak memory, which takes a process of its own for each case."""

    def __post_init__(self) -> None:
        as_precision(self.precision)
        as_backend(self.backend)
        if self.max_memory:
            as_bytes(self.max_memory)
        for name in ("batch", "iters"):
            if getattr(self, name) < 1:
                raise FlowError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.warm_up < 0 or self.rounds < 0 or not self.seconds > 0:
            raise FlowError("rounds and seconds of measuring cannot be below 0")
        if self.against not in AGAINST:
            raise FlowError(f"against {self.against!r} is not known; give published, or nothing")
        if len(self.measured_sizes) < 2 and self.sweep:
            raise FlowError("a sweep goes up to the size given; give at least 256x256")
        for model in self.model_names:
            find_config(model)

    @property
    def model_names(self) -> list[str]:
        """The models, given with commas or one by one."""
        return [name for text in self.models for name in re.split("[, ]+", text) if name]

    @property
    def measured_sizes(self) -> list[tuple[int, int]]:
        """All heights and widths to measure.

        Raises:
            FlowError: One of them is no size.
        """
        texts = [text for some in self.sizes for text in re.split("[, ]+", some) if text]
        sizes = [read_size(text) for text in texts]
        if not sizes or not self.model_names:
            raise FlowError(f"nothing to measure; give sizes such as 440x1024, and {known()}")
        return growing_sizes(max(sizes, key=math.prod)) if self.sweep else sizes

    @property
    def ways(self) -> list[Way]:
        """How to compute each case."""
        return ["gmaflow", "published"] if self.against else ["gmaflow"]

    def cases(self, size: tuple[int, int]) -> Iterator[Case]:
        """Give what is measured in turn at one size."""
        height, width = size
        for model in self.model_names:
            for way in self.ways:
                yield Case(
                    way=way,
                    model=model,
                    weights=self.weights,
                    height=height,
                    width=width,
                    batch=self.batch,
                    iters=self.iters,
                    device=self.device,
                    precision=self.precision,
                    backend=self.backend,
                    max_memory=self.max_memory,
                )


def known() -> str:
    """Name the models."""
    return f"models of {', '.join(MODELS)}"


def growing_sizes(largest: tuple[int, int]) -> list[tuple[int, int]]:
    """Return sizes of the same shape, each with twice the pixels of the one before."""
    sizes = []
    for halvings in reversed(range(SWEEP_STEPS)):
        factor = 2 ** (-halvings / 2)
        height, width = (round(side * factor / STRIDE) * STRIDE for side in largest)
        if min(height, width) >= PUBLISHED_MIN_SIDE:
            sizes.append((height, width))
    return sizes
