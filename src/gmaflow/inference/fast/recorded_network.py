"""A fast network on CUDA that replays recorded calls: all kernels of a pair are launched at once.

A pair takes some 400 kernels of a few microseconds, and Python takes longer to launch each than the
GPU to run it. A CUDA graph holds the launches of one kind of call (its size, iterations and so on).
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import TypeAlias, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.inference.fast.fast_network import FastNetwork, Refining
from gmaflow.model import EncodedFrame, MatchOptions, Prediction
from gmaflow.model.settling import EVERY, LEAST, Refined, refine_until_settled
from gmaflow.runtime.cuda_graphs import GraphPool, Replay, Run, Tensors
from gmaflow.runtime.device import cudnn_benchmark, is_out_of_memory
from gmaflow.runtime.kernels import rehearsing

log = logging.getLogger(__name__)

MOST_RECORDINGS = 6
"""How many kinds of call are kept; the least recently used is dropped."""

Kind: TypeAlias = tuple[object, ...]
"""What distinguishes calls: the shapes, iterations, the plan, and so on."""
Recorder: TypeAlias = Callable[[Run, Tensors], Replay]
"""Records a call; raises a RuntimeError if that is impossible."""


class NotRecorded(Enum):
    """One kind of call that runs directly."""

    YET = auto()
    """It was called once."""
    EVER = auto()
    """It cannot be recorded."""


class SettlingCall:
    """A call that stops where the flow has settled, which a recording cannot decide.

    So it is recorded in three segments: up to the first check, from one check to the next, and the
    upsampling. The first makes a batch, the others change it in place.

    `begin` is what comes before the first iteration. It takes `inputs` tensors; one more is the
    initial flow.
    """

    def __init__(
        self,
        network: FastNetwork,
        begin: Callable[..., Refining],
        inputs: int,
        options: MatchOptions,
    ) -> None:
        self.network, self.begin, self.inputs, self.options = network, begin, inputs, options
        self.iters = options.get("iters", 12)
        self.settled = options.get("settled") or 0.0

    @property
    def fits(self) -> bool:
        """Whether the iterations are a whole number of segments."""
        return self.iters >= LEAST and (self.iters - LEAST) % EVERY == 0

    def __call__(self, *tensors: Tensor) -> Tensors:
        """Run it directly; return flow, coarse flow, ends, and the iterations of each pair."""
        batch, watch = self._begin(*tensors), self.options.get("on_iteration")
        used = self._refine(lambda more: self.network.advance(batch, more, watch))
        return *self._finish(batch), used

    def record(self, record: Recorder, inputs: Tensors) -> Replay:
        """Record the segments; return what replays as many of them as are needed."""
        batches: list[Refining] = []

        def start(*tensors: Tensor) -> Tensors:
            batches[:] = [self._begin(*tensors)]
            return self.network.advance(batches[0], LEAST)

        def go_on() -> Tensors:
            return self.network.advance(batches[0], EVERY)

        first, next_ones = record(start, inputs), record(go_on, ())
        last = record(lambda: self._finish(batches[0]), ())

        def replay(*tensors: Tensor) -> Tensors:
            left = iter([lambda: first(*tensors)])

            def advance(_more: int) -> Refined:
                next(left, next_ones)()
                return batches[0].view()

            used = self._refine(advance)
            return *last(), used

        return replay

    def _begin(self, *tensors: Tensor) -> Refining:
        given, start = tensors[: self.inputs], tensors[self.inputs :]
        options = {**self.options, "flow_init": start[0] if start else None}
        return self.begin(*given, **options)

    def _refine(self, advance: Callable[[int], Refined]) -> Tensor:
        return torch.tensor(
            refine_until_settled(advance, iters=self.iters, threshold=self.settled), device="cpu"
        )

    def _finish(self, batch: Refining) -> Tensors:
        found = self.network.finish(batch)
        assert found.ends is not None
        return found.flow, found.low, found.ends


class RecordedNetwork:
    """Run a `FastNetwork` from recordings.

    The first call of a kind is rehearsed, which compiles its kernels while cuDNN tries its
    algorithms, and runs directly: in a folder of images of many sizes it may be the only one. The
    second call runs once more and is then recorded.

    A call that cannot be recorded, for lack of memory or any other reason a driver gives, runs
    directly. Recordings hold memory: if a call runs out of memory, they are dropped.

    `record` is how to record; by default CUDA graphs that share their memory.
    """

    def __init__(self, network: FastNetwork, record: Recorder | None = None) -> None:
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
        begin = self.network.begin
        return self._estimate("pair", self.network, begin, (image1, image2), options)

    def encode_frame(self, image: Float[Tensor, "b 3 H W"]) -> EncodedFrame:
        return EncodedFrame(*self._call(self.network.encode_frame, (image,), ("frame",)))

    def match(
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        **options: Unpack[MatchOptions],
    ) -> Prediction:

        def match(*tensors: Tensor, **options: Unpack[MatchOptions]) -> Prediction:
            *first, features2 = tensors
            return self.network.match(EncodedFrame(*first), features2, **options)

        def begin(*tensors: Tensor, **options: Unpack[MatchOptions]) -> Refining:
            *first, features2 = tensors
            return self.network.begin_match(EncodedFrame(*first), features2, **options)

        return self._estimate("match", match, begin, (*first, features2), options)

    def _estimate(
        self,
        what: str,
        estimate: Callable[..., Prediction],
        begin: Callable[..., Refining],
        inputs: Tensors,
        options: MatchOptions,
    ) -> Prediction:
        """Estimate from tensors; an initial flow, if given, is one of them."""
        settings = {name: value for name, value in options.items() if name != "flow_init"}
        flow_init = options.get("flow_init")
        initial = () if flow_init is None else (flow_init,)

        def run(*tensors: Tensor) -> Tensors:
            given, start = tensors[: len(inputs)], tensors[len(inputs) :]
            found = estimate(*given, **settings, flow_init=start[0] if start else None)
            assert found.ends is not None
            return found.flow, found.low, found.ends

        # A watcher is called each time, which cannot be recorded.
        direct = options.get("on_iteration") is not None
        call: Run = run
        if options.get("settled") is not None:
            call = SettlingCall(self.network, begin, len(inputs), options)
            direct = direct or not call.fits
        kind = None if direct else (what, *sorted(settings.items()))
        flow, low, ends, *used = self._call(call, (*inputs, *initial), kind)
        iterations = tuple(used[0].tolist()) if used else ()
        return Prediction([flow], low, iterations=iterations, ends=ends)

    def _call(self, run: Run, inputs: Tensors, what: Kind | None) -> Tensors:
        """Run a function of tensors: directly (if `what` is None), or recorded."""
        # cuDNN tries its algorithms for each new size and keeps the fastest. In a call without this
        # it would guess, and torch would keep the guess.
        with self._lock, cudnn_benchmark():
            try:
                return tuple(run(*inputs)) if what is None else self._call_known(run, inputs, what)
            except RuntimeError as err:
                if not self._calls or not is_out_of_memory(err):
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
            self._remember(kind, NotRecorded.YET)
            if inputs[0].is_cuda:
                with rehearsing():
                    run(*inputs)
            return tuple(run(*inputs))
        if known is NotRecorded.YET:
            known = self._recorded(run, inputs)
        self._remember(kind, known)
        return tuple(run(*inputs)) if isinstance(known, NotRecorded) else known(*inputs)

    def _recorded(self, run: Run, inputs: Tensors) -> Replay | NotRecorded:
        run(*inputs)  # on each thread cuDNN tries its algorithms anew, which cannot be recorded
        try:
            if isinstance(run, SettlingCall):
                return run.record(self._record, inputs)
            return self._record(run, inputs)
        except RuntimeError as err:
            log.info("a call could not be recorded and runs directly: %s", err)
            return NotRecorded.EVER

    def _remember(self, kind: Kind, known: Replay | NotRecorded) -> None:
        self._calls[kind] = known
        self._calls.move_to_end(kind)
        while len(self._calls) > MOST_RECORDINGS:
            self._calls.popitem(last=False)
