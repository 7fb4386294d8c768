"""A fast network on CUDA, recorded: all kernels of a pair are launched at once.

A pair takes some 400 kernels of a few microseconds, and Python needs longer to launch each than the
GPU to run it. A CUDA graph keeps the launches of one kind of call (its size, iterations and so on).
"""

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeAlias

from jaxtyping import Float
from torch import Tensor

from gmaflow.inference.fast.graphs import CudaGraphs, Graphs, Replay, Run, Tensors
from gmaflow.inference.fast.network import FastNetwork
from gmaflow.model import EncodedFrame, MemoryPlan, OnIteration, Prediction
from gmaflow.model.network import STORE_ALL

log = logging.getLogger(__name__)

MOST_RECORDINGS = 6
"""So many kinds of call are kept, the least recently used is given up."""

Kind: TypeAlias = tuple[object, ...]
"""What distinguishes calls: the shapes, iterations, the plan, and so on."""


@dataclass(frozen=True)
class NotRecorded:
    """One kind of call that runs as it is."""

    thread: int | None
    """On which thread it ran first; None if it cannot be recorded."""


class RecordedNetwork:
    """Run a `FastNetwork` from recordings.

    The first call of a kind runs as it is: that is when kernels are compiled and cuDNN tries its
    algorithms, and in a folder of images of many sizes it may be the only one. The second call is
    recorded, which takes about as long as the first and no compiling. (On another thread it is run
    once more before, since cuDNN remembers algorithms for each thread, and cannot search for them
    while recording.)

    What cannot be recorded, for want of memory or whatever else a driver says, runs as it is.

    Args:
        network: The network; on CUDA.
        graphs: How to record; by default as CUDA graphs.
    """

    def __init__(self, network: FastNetwork, graphs: Graphs | None = None) -> None:
        self.network = network
        self.graphs: Graphs = CudaGraphs() if graphs is None else graphs
        self._lock = threading.Lock()
        self._calls: OrderedDict[Kind, Replay | NotRecorded] = OrderedDict()

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

    def _call(self, run: Run, inputs: Tensors, what: Kind | None) -> Tensors:
        """Run a function of tensors: as it is, recorded, or from its recording."""
        with self._lock, self.graphs.working_on(inputs[0].device):
            if what is None:
                return run(*inputs)
            kind: Kind = (*what, *(x.shape for x in inputs))
            known = self._calls.get(kind)
            if known is None:
                known = NotRecorded(threading.get_ident())
            elif isinstance(known, NotRecorded) and known.thread is not None:
                known = self._record(run, inputs, known.thread)
            self._remember(kind, known)
            return run(*inputs) if isinstance(known, NotRecorded) else known(inputs)

    def _record(self, run: Run, inputs: Tensors, thread: int) -> Replay | NotRecorded:
        if thread != threading.get_ident():
            run(*inputs)
        try:
            return self.graphs.record(run, inputs)
        except RuntimeError as err:
            log.info("a call could not be recorded and runs as it is: %s", err)
            return NotRecorded(None)

    def _remember(self, kind: Kind, known: Replay | NotRecorded) -> None:
        self._calls[kind] = known
        self._calls.move_to_end(kind)
        while len(self._calls) > MOST_RECORDINGS:
            self._calls.popitem(last=False)
