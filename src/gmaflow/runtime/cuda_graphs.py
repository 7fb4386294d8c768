"""CUDA graphs: all kernel launches of a call, recorded once and then replayed with one launch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

Tensors: TypeAlias = tuple[Tensor, ...]
Run: TypeAlias = Callable[..., Sequence[Tensor]]
"""A function of tensors to tensors that can be recorded.

It does not branch on values, and everything else that it reads stays at the same address."""
Replay: TypeAlias = Callable[..., Tensors]
"""A recorded call: new inputs to new outputs."""


class GraphPool:
    """Memory and a stream for recordings that never run at the same time.

    Recordings of one pool overwrite each other's intermediate results, and wait for each other on
    whichever stream they are called. Recordings that may run at the same time need a pool each: the
    scratch memory of matrix products belongs to the stream that they were recorded on.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.handle = torch.cuda.graph_pool_handle()
        self.done = torch.cuda.Event()

    def record(
        self, run: Run, inputs: Sequence[Tensor], *, warm_ups: int = 0, copy_outputs: bool = True
    ) -> "RecordedCall":
        """Record a call; raises a RuntimeError if that is impossible.

        Args:
            run: The function.
            inputs: Example inputs; later inputs have the same shapes and dtypes.
            warm_ups: How often to run it first: compilation, tuning and other one-time setup cannot
                be recorded.
            copy_outputs: Return copies; otherwise the next call overwrites the outputs.
        """
        with torch.cuda.device(self.device):
            # Not from the pool's memory, which other recordings overwrite.
            static_inputs = tuple(x.to(self.device, copy=True) for x in inputs)
            self._warm_up(run, static_inputs, times=warm_ups)
            graph = torch.cuda.CUDAGraph()
            try:
                outputs = self._capture(graph, run, static_inputs)
            except RuntimeError:
                # The old pool may hold memory of the recording that failed.
                self.handle = torch.cuda.graph_pool_handle()
                raise
        return RecordedCall(self, graph, static_inputs, outputs, copy_outputs)

    def _warm_up(self, run: Run, inputs: Tensors, *, times: int) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(times):
                run(*inputs)
        torch.cuda.current_stream().wait_stream(self.stream)

    def _capture(self, graph: torch.cuda.CUDAGraph, run: Run, inputs: Tensors) -> Tensors:
        # If recording fails, torch does not restore the caller's stream; the outer `with` does.
        # Work of other threads in the meantime is not recorded and does not interfere.
        with (
            torch.cuda.stream(torch.cuda.current_stream()),
            torch.cuda.graph(
                graph,
                pool=self.handle,
                stream=self.stream,
                capture_error_mode="thread_local",
            ),
        ):
            return tuple(run(*inputs))


@dataclass(frozen=True)
class RecordedCall:
    """A recorded call; every call replays it with new inputs."""

    pool: GraphPool
    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    outputs: Tensors
    copy_outputs: bool

    def __call__(self, *inputs: Tensor) -> Tensors:
        """Replay the call with inputs from the device or the CPU; does not wait for it."""
        stream = torch.cuda.current_stream(self.pool.device)
        stream.wait_event(self.pool.done)  # the last call may have been on another stream
        for static, tensor in zip(self.inputs, inputs, strict=True):
            tensor = tensor if tensor.is_cuda else tensor.pin_memory()  # noqa: PLW2901
            static.copy_(tensor, non_blocking=True)
        self.graph.replay()
        outputs = self.outputs
        if self.copy_outputs:
            # Outside inference mode, whose tensors could not be part of a loss.
            with torch.inference_mode(mode=False), torch.no_grad():
                outputs = tuple(output.clone() for output in outputs)
        self.pool.done.record(stream)
        return outputs
