"""CUDA graphs: all launches of a call, recorded once and sent off at once from then on."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from gmaflow.runtime.device import cudnn_flag

Tensors: TypeAlias = tuple[Tensor, ...]
Run: TypeAlias = Callable[..., Tensors]
Replay: TypeAlias = Callable[[Tensors], Tensors]
"""A recorded call: new inputs to new outputs."""


@runtime_checkable
class Graphs(Protocol):
    """A way to record calls."""

    def working_on(self, device: torch.device) -> AbstractContextManager[None]:
        """Prepare for calls on a device."""
        ...

    def record(self, run: Run, inputs: Tensors) -> Replay:
        """Record a call that has run before, with inputs of the same shapes.

        Raises:
            RuntimeError: It cannot be recorded.
        """
        ...


@dataclass(frozen=True)
class Recording:
    """A graph, and the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    outputs: Tensors


class CudaGraphs:
    """Recordings that share one pool of memory: what one leaves behind another may overwrite.

    So one call may run at a time, and takes its results away (as copies) before the next begins, on
    whichever thread and stream that is.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._done: torch.cuda.Event | None = None

    @contextmanager
    def working_on(self, device: torch.device) -> Iterator[None]:
        """Let cuDNN try its algorithms for each new size and keep the fastest."""
        with cudnn_flag("benchmark"), torch.cuda.device(device):
            yield

    def record(self, run: Run, inputs: Tensors) -> Replay:
        """Record a call that has run before, with inputs of the same shapes."""
        # Outside the pool: what is given to one recording, no other may overwrite.
        kept = tuple(torch.empty_like(x) for x in inputs)
        graph = torch.cuda.CUDAGraph()
        try:
            # torch leaves its own stream behind if recording fails; the outer `with` brings ours
            # back. Other threads may use the GPU meanwhile: only this one's work is recorded.
            with (
                torch.cuda.stream(torch.cuda.current_stream()),
                torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
            ):
                outputs = tuple(run(*kept))
        except RuntimeError:
            self._pool = torch.cuda.graph_pool_handle()  # who knows what is left in the old one
            raise
        return partial(self._replay, Recording(graph, kept, outputs))

    def _replay(self, recording: Recording, inputs: Tensors) -> Tensors:
        stream = torch.cuda.current_stream()
        if self._done is not None:
            stream.wait_event(self._done)
        for kept, given in zip(recording.inputs, inputs, strict=True):
            kept.copy_(given)
        recording.graph.replay()
        result = tuple(output.clone() for output in recording.outputs)
        self._done = torch.cuda.Event()
        self._done.record(stream)
        return result
