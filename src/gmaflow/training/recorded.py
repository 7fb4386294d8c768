"""Steps on one GPU at full speed: compiled in parts, recorded as one CUDA graph, replayed.

A step launches thousands of small kernels, and launching takes longer than running them. Compiling
the network's parts makes the kernels fewer; recording makes launching them cost nothing. Only
parts are compiled: an iteration takes seconds to compile and serves for all, twelve in a row would
take minutes.
"""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.data import Batch
from gmaflow.model import FlowNetwork
from gmaflow.model.upsample import ConvexUpsampler
from gmaflow.runtime.device import cudnn_flag
from gmaflow.training import loss
from gmaflow.training.schedule import StepPlan
from gmaflow.training.step import StepResult, TrainStep

PARTS = ("context", "features", "recurrence", "motion", "upsampling", "loss")
"""What is compiled, those first that take longest."""
WARM_UPS = 3
"""Runs before recording, in which kernels are tuned and chosen."""


class RecordedStep:
    """A `TrainStep` that does the same, faster; recorded anew for each number of iterations."""

    def __init__(self, step: TrainStep) -> None:
        self.step = step
        self._parts = CompiledParts(step.computing)
        self._recordings: dict[int, Recording] = {}

    def compile(self, batch: Batch, names: Collection[str] = PARTS) -> None:
        """Compile parts before the first step asks for them; nothing is learned from the batch."""
        # What cuDNN picks for a convolution it keeps, by these flags: it shall not search now, when
        # others may use the device too, nor keep what it picks without searching.
        with self._parts.used(names), cudnn_flag("deterministic"), unchanged(self.step):
            # The second refinement gets its state from the first: in another layout, perhaps.
            self.step.run(batch, 2)

    def __call__(self, batch: Batch, plan: StepPlan) -> StepResult:
        """Learn from a batch. The result is overwritten by the next step."""
        self.step.prepare(plan)
        if plan.iters not in self._recordings:
            with self._parts.used(), cudnn_flag("benchmark"):
                self._recordings[plan.iters] = Recording(self.step, batch, plan.iters)
        return self._recordings[plan.iters](batch)


class Recording:
    """The CUDA graph of a step with a given number of iterations."""

    def __init__(self, step: TrainStep, batch: Batch, iters: int) -> None:
        self._batch = Batch(*(tensor.clone() for tensor in batch))
        with unchanged(step):
            side = torch.cuda.Stream(step.device)
            side.wait_stream(torch.cuda.current_stream(step.device))
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    step.run(self._batch, iters)
            torch.cuda.current_stream(step.device).wait_stream(side)
            step.optimizer.zero_grad(set_to_none=True)
            self._graph = torch.cuda.CUDAGraph()
            # What other threads do meanwhile, as those that pin memory for files, is not recorded.
            recording = torch.cuda.graph(self._graph, capture_error_mode="thread_local")
            with torch.cuda.device(step.device), recording:
                self._result = step.run(self._batch, iters)

    def __call__(self, batch: Batch) -> StepResult:
        """Replay the step on a batch."""
        for own, given in zip(self._batch, batch, strict=True):
            own.copy_(given, non_blocking=True)
        self._graph.replay()
        return self._result


@contextmanager
def unchanged(step: TrainStep) -> Iterator[None]:
    """Put back what runs change that only make ready: they learn, too."""
    before = {name: value.clone() for name, value in step.state().items()}
    try:
        yield
    finally:
        step.load_state(before)


class CompiledParts:
    """The encoders, a refinement, the upsampling's head and the loss, compiled at first use.

    Each is one graph to the compiler, which takes seconds for every one. A refinement is two: what
    happens between them, the product with the attention, gathers over the iterations what the
    compiler, which looks at one call, cannot see.

    Args:
        network: Whose parts they are.
        backend: torch's compiler.
    """

    def __init__(self, network: FlowNetwork, *, backend: str = "inductor") -> None:
        places: dict[str, tuple[object, str]] = {
            "context": (network, "encode_context"),
            "features": (network, "encode"),
            "recurrence": (network, "advance"),
            "motion": (network, "observe"),
            "loss": (loss, "weighted_error"),
        }
        if isinstance(network.upsample, ConvexUpsampler):
            places["upsampling"] = (network.upsample.weights, "forward")
        # Sizes never change; the compiler would guess that they do when it sees a second one.
        self._parts = {
            name: (*place, torch.compile(getattr(*place), dynamic=False, backend=backend))
            for name, place in places.items()
        }
        self._adapted: list[tuple[object, str, object]] = [
            (layer, "forward", partial(instance_norm, eps=layer.eps))
            for layer in network.modules()
            if isinstance(layer, nn.InstanceNorm2d)
        ]

    @contextmanager
    def used(self, names: Collection[str] = PARTS) -> Iterator[None]:
        """Put compiled parts in their places for a while; those not named stay as they are.

        Which they are changes none of them: a compiled part returns what the plain one does, in the
        same layout.
        """
        parts = [part for name, part in self._parts.items() if name in names]
        with ExitStack() as stack:
            for owner, name, part in (*parts, *self._adapted):
                stack.enter_context(replaced(owner, name, part))
            yield


@contextmanager
def replaced(owner: object, name: str, part: object) -> Iterator[None]:
    """Put something in an attribute's place for a while."""
    own = vars(owner).get(name)
    setattr(owner, name, part)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)  # the method of the class shows again
        else:
            setattr(owner, name, own)


def instance_norm(x: Float[Tensor, "b c h w"], *, eps: float) -> Float[Tensor, "b c h w"]:
    """Normalise each channel of each item: in steps that the compiler fuses.

    torch's own first copies the features to another layout, and back.
    """
    variance, mean = torch.var_mean(x.float(), dim=(2, 3), correction=0, keepdim=True)
    return ((x - mean) * torch.rsqrt(variance + eps)).to(x.dtype)
