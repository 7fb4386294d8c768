"""Steps on one GPU at full speed: compiled in parts, recorded as one CUDA graph, replayed.

A step launches thousands of small kernels, and launching takes longer than running them. Compiling
the network's parts makes the kernels fewer; recording makes launching them cost nothing. Only
parts are compiled: an iteration takes seconds to compile and serves for all, twelve in a row would
take minutes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gmaflow.model import FlowNetwork
from gmaflow.training.batch import Batch
from gmaflow.training.schedule import StepPlan
from gmaflow.training.step import StepResult, TrainStep

WARM_UPS = 3
"""Runs before recording, in which kernels are compiled, tuned and chosen."""


class RecordedStep:
    """A `TrainStep` that does the same, faster; recorded anew for each number of iterations."""

    def __init__(self, step: TrainStep) -> None:
        self.step = step
        self._recordings: dict[int, Recording] = {}

    def __call__(self, batch: Batch, plan: StepPlan) -> StepResult:
        """Learn from a batch. The result is overwritten by the next step."""
        self.step.prepare(plan)
        if plan.iters not in self._recordings:
            self._recordings[plan.iters] = Recording(self.step, batch, plan.iters)
        return self._recordings[plan.iters](batch)


class Recording:
    """The CUDA graph of a step with a given number of iterations."""

    def __init__(self, step: TrainStep, batch: Batch, iters: int) -> None:
        self._batch = Batch(*(tensor.clone() for tensor in batch))
        # The runs before the recording learn, too: what they change is put back.
        before = {name: value.clone() for name, value in step.state().items()}
        with compiled_parts(step.network):
            side = torch.cuda.Stream(step.device)
            side.wait_stream(torch.cuda.current_stream(step.device))
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    step.run(self._batch, iters)
            torch.cuda.current_stream(step.device).wait_stream(side)
            step.optimizer.zero_grad(set_to_none=True)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._result = step.run(self._batch, iters)
        step.load_state(before)

    def __call__(self, batch: Batch) -> StepResult:
        """Replay the step on a batch."""
        for own, given in zip(self._batch, batch, strict=True):
            own.copy_(given, non_blocking=True)
        self._graph.replay()
        return self._result


@contextmanager
def compiled_parts(network: FlowNetwork) -> Iterator[None]:
    """Let the encoders, one refinement and the upsampling be compiled while a step is recorded."""
    parts = [
        (network, "encode"),
        (network, "encode_context"),
        (network, "refine"),
        (network.upsample, "forward"),
    ]
    tuning = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    for owner, name in parts:
        setattr(owner, name, torch.compile(getattr(owner, name)))
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = tuning
        for owner, name in parts:
            delattr(owner, name)  # the method of the class shows again
