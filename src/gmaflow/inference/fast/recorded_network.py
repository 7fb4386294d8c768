"""A fast network on CUDA that replays recorded calls: all kernels of a pair are launched at once.

A pair takes some 400 kernels of a few microseconds, and Python takes longer to launch each than the
GPU to run it. A CUDA graph holds the launches of one kind of call (its size, iterations and so on).
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

from gmaflow.inference.fast.fast_network import FastNetwork
from gmaflow.model import EncodedFrame, MatchOptions, Prediction
from gmaflow.runtime.cuda_graphs import GraphPool, Replay, Run, Tensors
from gmaflow.runtime.device import cudnn_flag

log = logging.getLogger(__name__)

MOST_RECORDINGS = 6
"""How many kinds of call are kept; the least recently used is dropped."""

Kind: TypeAlias = tuple[object, ...]
"""What distinguishes calls: the shapes, iterations, the plan, and so on."""
Record: TypeAlias = Callable[[Run, Tensors], Replay]
"""Records a call; raises a RuntimeError if that is impossible."""


@dataclass(frozen=True)
class NotRecorded:
    """One kind of call that runs directly."""

    thread: int | None
    """The thread on which it ran first; None if it cannot be recorded."""


class RecordedNetwork:
    """Run a `FastNetwork` from recordings.

    The first call of a kind runs directly: then kernels are compiled and cuDNN tries its
    algorithms, and in a folder of images of many sizes it may be the only call. The second call is
    recorded, which takes about as long as the first without compiling. (On another thread the call
    runs once more before, since cuDNN caches algorithms per thread, and cannot search for them
    while recording.)

    A call that cannot be recorded, for lack of memory or any other reason a driver gives, runs
    directly. Recordings hold memory: if a call runs out of memory, they are dropped.

    `record` is how to record; by default CUDA graphs that share their memory.
    """

    def __init__(self, network: FastNetwork, record: Record | None = None) -> None:
        self.network = network
        self._record = GraphPool(network.working.device).record if record is None else record
        self._lock = threading.RLock()  # a watcher may estimate another pair
        self._calls: OrderedDict[Kind, Replay | NotRecorded] = OrderedDict()

    def __call__(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        **options: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`, as `FlowNetwork` does."""
        return self._estimate("pair", self.network, (image1, image2), options)

    def encode_frame(self, image: Float[Tensor, "b 3 H W"]) -> EncodedFrame:
        """Return all that the network needs of an image, for the pairs before and after it."""
        return EncodedFrame(*self._call(self.network.encode_frame, (image,), ("frame",)))

    def match(
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        **options: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow between images that are encoded already."""

        def match(*tensors: Tensor, **options: Unpack[MatchOptions]) -> Prediction:
            *first, features2 = tensors
            return self.network.match(EncodedFrame(*first), features2, **options)

        return self._estimate("match", match, (*first, features2), options)

    def _estimate(
        self,
        what: str,
        estimate: Callable[..., Prediction],
        inputs: Tensors,
        options: MatchOptions,
    ) -> Prediction:
        """Estimate from tensors; a first guess, if given, is one of them."""
        settings = {name: value for name, value in options.items() if name != "flow_init"}
        flow_init = options.get("flow_init")
        guess = () if flow_init is None else (flow_init,)

        def run(*tensors: Tensor) -> Tensors:
            given, start = tensors[: len(inputs)], tensors[len(inputs) :]
            found = estimate(*given, **settings, flow_init=start[0] if start else None)
            return found.flow, found.low

        # A watcher is called each time, which cannot be recorded.
        watched = options.get("on_iteration") is not None
        kind = None if watched else (what, *sorted(settings.items()))
        flow, low = self._call(run, (*inputs, *guess), kind)
        return Prediction([flow], low)

    def _call(self, run: Run, inputs: Tensors, what: Kind | None) -> Tensors:
        """Run a function of tensors: directly (if `what` is None), or recorded."""
        # cuDNN tries its algorithms for each new size and keeps the fastest.
        with self._lock, cudnn_flag("benchmark"):
            try:
                return tuple(run(*inputs)) if what is None else self._call_known(run, inputs, what)
            except torch.OutOfMemoryError:
                if not self._calls:
                    raise
                log.info("out of memory: recordings are dropped, and the call runs directly")
                self._calls.clear()
            # Outside of the handler, where the memory of the failed call is free.
            torch.cuda.empty_cache()
            return tuple(run(*inputs))

    def _call_known(self, run: Run, inputs: Tensors, what: Kind) -> Tensors:
        kind: Kind = (*what, *(x.shape for x in inputs))
        known = self._calls.get(kind)
        if known is None:
            known = NotRecorded(threading.get_ident())
        elif isinstance(known, NotRecorded) and known.thread is not None:
            known = self._recorded(run, inputs, known.thread)
        self._remember(kind, known)
        return tuple(run(*inputs)) if isinstance(known, NotRecorded) else known(*inputs)

    def _recorded(self, run: Run, inputs: Tensors, thread: int) -> Replay | NotRecorded:
        if thread != threading.get_ident():
            run(*inputs)
        try:
            return self._record(run, inputs)
        except RuntimeError as err:
            log.info("a call could not be recorded and runs directly: %s", err)
            return NotRecorded(None)

    def _remember(self, kind: Kind, known: Replay | NotRecorded) -> None:
        self._calls[kind] = known
        self._calls.move_to_end(kind)
        while len(self._calls) > MOST_RECORDINGS:
            self._calls.popitem(last=False)
