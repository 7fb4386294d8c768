"""A fast network on CUDA, recorded: all kernels of a pair are launched at once.

A pair takes some 400 kernels of a few microseconds, and Python needs longer to launch each than the
GPU to run it. A CUDA graph keeps the launches of one kind of call (its size, iterations and so on).
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.inference.fast.network import FastNetwork
from gmaflow.model import EncodedFrame, MemoryPlan, OnIteration, Prediction
from gmaflow.model.network import STORE_ALL

log = logging.getLogger(__name__)

MOST_RECORDINGS = 6
"""So many kinds of call are kept, the least recently used is given up."""

Tensors: TypeAlias = tuple[Tensor, ...]
Kind: TypeAlias = tuple[object, ...]
"""What distinguishes calls: the shapes, iterations, the plan, and so on."""


@dataclass(frozen=True)
class Recording:
    """One kind of call: its graph, and the tensors that the graph reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    outputs: Tensors


@dataclass(frozen=True)
class RunBy:
    """One kind of call that has run once, and on which thread."""

    thread: int


class RecordedNetwork:
    """Run a `FastNetwork` from recordings.

    The first call of a kind runs as it is: that is when kernels are compiled and cuDNN tries its
    algorithms, and in a folder of images of many sizes it may be the only one. The second call is
    recorded, which takes about as long as the first and no compiling. (On another thread it is run
    once more before, since cuDNN remembers algorithms for each thread, and cannot search for them
    while recording.)

    Recordings share one pool of memory: what one leaves behind another may overwrite. So one call
    runs at a time, and takes its results away (as copies) before the next begins, on whichever
    thread and stream that is.

    Args:
        network: The network; on CUDA.
        search: Let cuDNN try its algorithms for each new size and keep the fastest.
    """

    def __init__(self, network: FastNetwork, *, search: bool = True) -> None:
        self.network = network
        self.search = search
        self._lock = threading.Lock()
        self._recordings: OrderedDict[Kind, Recording | RunBy] = OrderedDict()
        self._pool = torch.cuda.graph_pool_handle()
        self._done: torch.cuda.Event | None = None

    def __call__(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        *,
        iters: int = 12,
        flow_init: Float[Tensor, "b 2 h w"] | None = None,
        plan: MemoryPlan = STORE_ALL,
        on_iteration: OnIteration | None = None,
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`, as `FlowNetwork` does."""

        def run(image1: Tensor, image2: Tensor, *start: Tensor) -> Tensors:
            flow_init = start[0] if start else None
            found = self.network(
                image1,
                image2,
                iters=iters,
                flow_init=flow_init,
                plan=plan,
                on_iteration=on_iteration,
            )
            return found.flow, found.low

        start = () if flow_init is None else (flow_init,)
        flow, low = self._call(
            run, (image1, image2, *start), self._kind("pair", iters, plan, on_iteration)
        )
        return Prediction([flow], low)

    def encode_frame(self, image: Float[Tensor, "b 3 H W"]) -> EncodedFrame:
        """Return all that the network needs of an image, for the pairs before and after it."""
        return EncodedFrame(*self._call(self.network.encode_frame, (image,), ("frame",)))

    def match(
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        *,
        iters: int = 12,
        flow_init: Float[Tensor, "b 2 h w"] | None = None,
        plan: MemoryPlan = STORE_ALL,
        on_iteration: OnIteration | None = None,
    ) -> Prediction:
        """Estimate the flow between images that are encoded already."""

        def run(
            features1: Tensor, hidden: Tensor, context: Tensor, features2: Tensor, *start: Tensor
        ) -> Tensors:
            first = EncodedFrame(features1, hidden, context)
            flow_init = start[0] if start else None
            found = self.network.match(
                first,
                features2,
                iters=iters,
                flow_init=flow_init,
                plan=plan,
                on_iteration=on_iteration,
            )
            return found.flow, found.low

        start = () if flow_init is None else (flow_init,)
        flow, low = self._call(
            run, (*first, features2, *start), self._kind("match", iters, plan, on_iteration)
        )
        return Prediction([flow], low)

    @staticmethod
    def _kind(
        what: str, iters: int, plan: MemoryPlan, on_iteration: OnIteration | None
    ) -> Kind | None:
        """Return what a call has in common with others; None if somebody watches this one."""
        return (what, iters, plan) if on_iteration is None else None

    def _call(self, run: Callable[..., Tensors], inputs: Tensors, what: Kind | None) -> Tensors:
        """Run a function of tensors: as it is, recorded, or from its recording."""
        with self._lock, torch.cuda.device(inputs[0].device), self._algorithms():
            if what is None:
                return run(*inputs)
            kind: Kind = (*what, *(x.shape for x in inputs))
            known = self._recordings.get(kind)
            if known is None:
                self._remember(kind, RunBy(threading.get_ident()))
                return run(*inputs)
            if isinstance(known, RunBy):
                if known.thread != threading.get_ident():
                    run(*inputs)
                known = self._record(run, inputs)
                log.info("recorded %s", kind)
            self._remember(kind, known)
            return self._replay(known, inputs)

    def _remember(self, kind: Kind, recording: Recording | RunBy) -> None:
        self._recordings[kind] = recording
        self._recordings.move_to_end(kind)
        while len(self._recordings) > MOST_RECORDINGS:
            self._recordings.popitem(last=False)

    def _record(self, run: Callable[..., Tensors], inputs: Tensors) -> Recording:
        # Outside the pool: what is given to one recording, no other may overwrite.
        kept = tuple(torch.empty_like(x) for x in inputs)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the GPU meanwhile: it is only this one's work that is recorded.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            outputs = tuple(run(*kept))
        return Recording(graph, kept, outputs)

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

    @contextmanager
    def _algorithms(self) -> Iterator[None]:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = self.search
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = before
