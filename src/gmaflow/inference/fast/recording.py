"""A fast network on CUDA, recorded: all kernels of a pair are launched at once.

A pair takes some 400 kernels of a few microseconds, and Python needs longer to launch each than the
GPU to run it. A CUDA graph keeps the launches of one kind of call (its size, iterations and so on).
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.inference.fast.graphs import CudaGraphs, Graphs, Replay, Run, Tensors
from gmaflow.inference.fast.network import FastNetwork
from gmaflow.model import EncodedFrame, MatchOptions, Prediction

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
    Recordings hold memory: where a call runs out of it, they are given up.

    Args:
        network: The network; on CUDA.
        graphs: How to record; by default as CUDA graphs.
    """

    def __init__(self, network: FastNetwork, graphs: Graphs | None = None) -> None:
        self.network = network
        self.graphs: Graphs = CudaGraphs() if graphs is None else graphs
        self._lock = threading.RLock()  # whoever watches may ask for another pair
        self._calls: OrderedDict[Kind, Replay | NotRecorded] = OrderedDict()

    def __call__(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        **how: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`, as `FlowNetwork` does."""
        return self._estimate("pair", self.network, (image1, image2), how)

    def encode_frame(self, image: Float[Tensor, "b 3 H W"]) -> EncodedFrame:
        """Return all that the network needs of an image, for the pairs before and after it."""
        return EncodedFrame(*self._call(self.network.encode_frame, (image,), ("frame",)))

    def match(
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        **how: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow between images that are encoded already."""

        def match(*tensors: Tensor, **how: Unpack[MatchOptions]) -> Prediction:
            *first, features2 = tensors
            return self.network.match(EncodedFrame(*first), features2, **how)

        return self._estimate("match", match, (*first, features2), how)

    def _estimate(
        self,
        what: str,
        estimate: Callable[..., Prediction],
        inputs: Tensors,
        how: MatchOptions,
    ) -> Prediction:
        """Estimate from tensors, of which the first guess is one where there is any."""
        settings = {name: value for name, value in how.items() if name != "flow_init"}
        flow_init = how.get("flow_init")
        guess = () if flow_init is None else (flow_init,)

        def run(*tensors: Tensor) -> Tensors:
            given, start = tensors[: len(inputs)], tensors[len(inputs) :]
            found = estimate(*given, **settings, flow_init=start[0] if start else None)
            return found.flow, found.low

        # Whoever watches wants to be called each time: that cannot be recorded.
        watched = how.get("on_iteration") is not None
        kind = None if watched else (what, *sorted(settings.items()))
        flow, low = self._call(run, (*inputs, *guess), kind)
        return Prediction([flow], low)

    def _call(self, run: Run, inputs: Tensors, what: Kind | None) -> Tensors:
        """Run a function of tensors: as it is (where `what` is None), recorded, or replayed."""
        with self._lock, self.graphs.working_on(inputs[0].device):
            try:
                return run(*inputs) if what is None else self._call_known(run, inputs, what)
            except torch.OutOfMemoryError:
                if not self._calls:
                    raise
                log.info("out of memory: recordings are given up, and the call runs as it is")
                self._calls.clear()
            # Out of the handler: what failed is free by now.
            torch.cuda.empty_cache()
            return run(*inputs)

    def _call_known(self, run: Run, inputs: Tensors, what: Kind) -> Tensors:
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
