"""Steps on a GPU at full speed: compiled in parts, recorded as one CUDA graph, replayed.

A step launches thousands of small kernels, and launching takes longer than running them. Compiling
the network's parts leaves fewer kernels; recording launches all of them at once. Only parts are
compiled: one iteration compiles in seconds and serves all of them, twelve in a row would take
minutes. With several processes there are two graphs, and the gradients are exchanged in between.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.data import Batch
from gmaflow.model import FlowNetwork
from gmaflow.model.update import ConvexUpsampler
from gmaflow.runtime.cuda_graphs import GraphPool, Replay
from gmaflow.runtime.device import cudnn_benchmark
from gmaflow.training import loss
from gmaflow.training.config import StepPlan
from gmaflow.training.step import StepResult, TrainStep

CONTINUATION_PARTS = ("weigh", "terms", "blend")
"""Methods of `Continuation`. Between the last two is the product with its attention."""
WARM_UPS = 3
"""Runs before recording, in which kernels are compiled and algorithms chosen."""


class RecordedStep:
    """The same as a `TrainStep`, but faster. Each number of iterations is recorded once."""

    def __init__(self, step: TrainStep) -> None:
        self.step = step
        self._parts = CompiledParts(step.forward_network)
        self._recordings: dict[tuple[int, int], Replay] = {}

    def __call__(self, batch: Batch, plan: StepPlan) -> StepResult:
        """Train on a batch. The next step overwrites the result."""
        self.step.prepare(plan)
        iterations = (plan.iters, plan.ahead)
        if iterations not in self._recordings:
            self._recordings[iterations] = self._record(batch, *iterations)
        return StepResult(*self._recordings[iterations](*batch))

    def _record(self, batch: Batch, iters: int, ahead: int) -> Replay:
        step, shared = self.step, self.step.shared

        def run(*tensors: Tensor) -> StepResult:
            return step.run(Batch(*tensors), iters, ahead)

        def compute_gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
            return step.compute_gradients(Batch(*tensors), iters, ahead)

        with self._parts.used(), cudnn_benchmark(), restored_state(step):
            pool = GraphPool(step.device)
            record = partial(pool.record, warm_ups=WARM_UPS, copy_outputs=False)
            if shared is None:
                return record(run, batch)
            compute = record(compute_gradients, batch)
            # The graph's outputs keep their addresses.
            apply = record(partial(step.apply, *compute(*batch)), ())

        def replay(*tensors: Tensor) -> tuple[Tensor, ...]:
            compute(*tensors)
            shared.exchange()
            return apply()

        return replay


@contextmanager
def restored_state(step: TrainStep) -> Iterator[None]:
    """Restore the state afterwards: warm-up runs change it, since they train too."""
    saved = {name: value.clone() for name, value in step.state().items()}
    # Warm-up runs draw random numbers too.
    devices = [step.device] if step.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            step.load_state(saved)


class CompiledParts:
    """The encoders, a refinement, the upsampling head and the loss, compiled at first use.

    Each part is one graph to the compiler and compiles in seconds. A refinement is two graphs:
    between them is the product with the attention, whose gradient accumulates over all iterations,
    while the compiler sees only one call.
    """

    def __init__(self, network: FlowNetwork, *, backend: str = "inductor") -> None:
        targets: list[tuple[object, str]] = [
            *((network, name) for name in ("encode_context", "encode", "advance", "observe")),
            (loss, "weighted_error"),
        ]
        if isinstance(network.upsample, ConvexUpsampler):
            targets.append((network.upsample.weights, "forward"))
        if network.continuation is not None:
            targets += [(network.continuation, name) for name in CONTINUATION_PARTS]
        # Sizes never change; at a second size, the compiler would switch to dynamic shapes.
        self._parts: list[tuple[object, str, object]] = [
            (*target, torch.compile(getattr(*target), dynamic=False, backend=backend))
            for target in targets
        ]
        self._parts += [
            (layer, "forward", partial(instance_norm, eps=layer.eps))
            for layer in network.modules()
            if isinstance(layer, nn.InstanceNorm2d)
        ]

    @contextmanager
    def used(self) -> Iterator[None]:
        """Use the compiled parts inside the context."""
        with ExitStack() as stack:
            for owner, name, part in self._parts:
                stack.enter_context(patched(owner, name, part))
            yield


@contextmanager
def patched(owner: object, name: str, part: object) -> Iterator[None]:
    """Replace an attribute inside the context."""
    original = vars(owner).get(name)
    setattr(owner, name, part)
    try:
        yield
    finally:
        if original is None:
            delattr(owner, name)  # uncovers the method of the class
        else:
            setattr(owner, name, original)


def instance_norm(x: Float[Tensor, "b c h w"], *, eps: float) -> Float[Tensor, "b c h w"]:
    """Normalise each channel of each item, in steps that the compiler fuses.

    torch's own instance norm copies the features to another layout and back.
    """
    variance, mean = torch.var_mean(x.float(), dim=(2, 3), correction=0, keepdim=True)
    return ((x - mean) * torch.rsqrt(variance + eps)).to(x.dtype)
