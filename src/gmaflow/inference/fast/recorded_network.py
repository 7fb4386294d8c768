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

from gmaflow.inference.fast.fast_network import FastNetwork, RefinementState
from gmaflow.model import EncodedFrame, MatchOptions, Prediction
from gmaflow.model.settling import CHECK_EVERY, MIN_ITERS, Refined, refine_until_settled
from gmaflow.runtime.cuda_graphs import GraphPool, Replay, Run, Tensors
from gmaflow.runtime.device import cudnn_benchmark, cudnn_guess, is_out_of_memory
from gmaflow.runtime.kernels import compiling_ahead

log = logging.getLogger(__name__)

MAX_RECORDINGS = 6
"""How many calls are kept; the least recently used one is dropped."""

_taking_turns = threading.RLock()
"""Held by first calls and recordings of all networks, on all GPUs: cuDNN's settings are the
process's."""

CallKey: TypeAlias = tuple[object, ...]
"""What distinguishes calls: the shapes, iterations, the plan, and so on."""
Recorder: TypeAlias = Callable[[Run, Tensors], Replay]
"""Records a call; raises a RuntimeError if that is impossible."""


class NotRecorded(Enum):
    """Why a call runs directly."""

    YET = auto()
    """It was called once."""
    EVER = auto()
    """It cannot be recorded."""


class SettlingCall:
    """A call that stops once the flow has settled, which a recording cannot decide.

    So it is recorded in three segments: up to the first check, from one check to the next, and the
    upsampling. The first makes a batch, the others change it in place.

    `begin` is what comes before the first iteration. It takes `num_inputs` tensors; one more is
    the initial flow.
    """

    def __init__(
        self,
        network: FastNetwork,
        begin: Callable[..., RefinementState],
        num_inputs: int,
        options: MatchOptions,
    ) -> None:
        self.network, self.begin, self.options = network, begin, options
        self.num_inputs = num_inputs
        self.iters = options.get("iters", 12)
        self.settled = options.get("settled") or 0.0

    @property
    def fits(self) -> bool:
        """Whether the iterations are a whole number of segments."""
        return self.iters >= MIN_ITERS and (self.iters - MIN_ITERS) % CHECK_EVERY == 0

    def __call__(self, *tensors: Tensor) -> Tensors:
        """Run directly; return flow, coarse flow, minimum and maximum, and iterations."""
        batch, watch = self._begin(*tensors), self.options.get("on_iteration")
        iterations = self._refine(lambda more: self.network.advance(batch, more, watch))
        return *self._finish(batch), iterations

    def record(self, record: Recorder, inputs: Tensors) -> Replay:
        """Record the segments; return a function that replays as many as are needed."""
        batches: list[RefinementState] = []

        def start(*tensors: Tensor) -> Tensors:
            batches[:] = [self._begin(*tensors)]
            return self.network.advance(batches[0], MIN_ITERS)

        def continue_refining() -> Tensors:
            return self.network.advance(batches[0], CHECK_EVERY)

        first, following = record(start, inputs), record(continue_refining, ())
        last = record(lambda: self._finish(batches[0]), ())

        def replay(*tensors: Tensor) -> Tensors:
            segments = iter([lambda: first(*tensors)])

            def advance(_more: int) -> Refined:
                next(segments, following)()
                return batches[0].view()

            iterations = self._refine(advance)
            return *last(), iterations

        return replay

    def _begin(self, *tensors: Tensor) -> RefinementState:
        inputs, start = tensors[: self.num_inputs], tensors[self.num_inputs :]
        options = {**self.options, "flow_init": start[0] if start else None}
        return self.begin(*inputs, **options)

    def _refine(self, advance: Callable[[int], Refined]) -> Tensor:
        return torch.tensor(
            refine_until_settled(advance, iters=self.iters, threshold=self.settled), device="cpu"
        )

    def _finish(self, batch: RefinementState) -> Tensors:
        prediction = self.network.finish(batch)
        assert prediction.minmax is not None
        return prediction.flow, prediction.low, prediction.minmax


class RecordedNetwork:
    """Runs a `FastNetwork` from recordings.

    The first call with a key begins with a dry run that compiles its kernels. It then runs directly
    with the algorithms that cuDNN guesses, since in a folder of images of many sizes it may be the
    only one. The second call runs once more, while cuDNN benchmarks its algorithms, and is then
    recorded.

    A call that cannot be recorded, for lack of memory or any other reason a driver gives, runs
    directly. Recordings hold memory: if a call runs out of memory, they are dropped.

    `record` is how to record; by default CUDA graphs that share their memory.
    """

    def __init__(self, network: FastNetwork, record: Recorder | None = None) -> None:
        self.network = network
        self._record = GraphPool(network.spec.device).record if record is None else record
        self._lock = threading.RLock()  # a watcher may estimate another pair
        self._calls: OrderedDict[CallKey, Replay | NotRecorded] = OrderedDict()

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

        def begin(*tensors: Tensor, **options: Unpack[MatchOptions]) -> RefinementState:
            *first, features2 = tensors
            return self.network.begin_match(EncodedFrame(*first), features2, **options)

        return self._estimate("match", match, begin, (*first, features2), options)

    def _estimate(
        self,
        what: str,
        estimate: Callable[..., Prediction],
        begin: Callable[..., RefinementState],
        inputs: Tensors,
        options: MatchOptions,
    ) -> Prediction:
        """Estimate from tensors; an initial flow, if given, is one of them."""
        settings = {name: value for name, value in options.items() if name != "flow_init"}
        flow_init = options.get("flow_init")
        initial = () if flow_init is None else (flow_init,)

        def run(*tensors: Tensor) -> Tensors:
            images, start = tensors[: len(inputs)], tensors[len(inputs) :]
            prediction = estimate(*images, **settings, flow_init=start[0] if start else None)
            assert prediction.minmax is not None
            return prediction.flow, prediction.low, prediction.minmax

        # A watcher is called each time, which cannot be recorded.
        direct = options.get("on_iteration") is not None
        call: Run = run
        if options.get("settled") is not None:
            call = SettlingCall(self.network, begin, len(inputs), options)
            direct = direct or not call.fits
        key = None if direct else (what, *sorted(settings.items()))
        flow, low, minmax, *iterations_used = self._call(call, (*inputs, *initial), key)
        iterations = tuple(iterations_used[0].tolist()) if iterations_used else ()
        return Prediction([flow], low, iterations=iterations, minmax=minmax)

    def _call(self, run: Run, inputs: Tensors, key: CallKey | None) -> Tensors:
        """Run a function of tensors: directly (if `key` is None), or recorded."""
        with self._lock:
            try:
                if key is None:
                    return run_directly(run, inputs)
                return self._call_recorded(run, inputs, key)
            except RuntimeError as err:
                if not self._calls or not is_out_of_memory(err):
                    raise
                log.info("out of memory: recordings are dropped, and the call runs directly")
                self._calls.clear()
            # Outside the handler, where the memory of the failed call has been freed.
            torch.cuda.empty_cache()
            return run_directly(run, inputs)

    def _call_recorded(self, run: Run, inputs: Tensors, call: CallKey) -> Tensors:
        key: CallKey = (*call, *(x.shape for x in inputs))
        recording = self._calls.get(key)
        if recording is None:
            self._store(key, NotRecorded.YET)
            with _taking_turns, cudnn_guess():
                if inputs[0].is_cuda:
                    with compiling_ahead():
                        run(*inputs)
                return tuple(run(*inputs))
        if recording is NotRecorded.YET:
            recording = self._recorded(run, inputs)
        self._store(key, recording)
        if isinstance(recording, NotRecorded):
            return run_directly(run, inputs)
        return recording(*inputs)

    def _recorded(self, run: Run, inputs: Tensors) -> Replay | NotRecorded:
        with _taking_turns, cudnn_benchmark():
            run(*inputs)  # cuDNN benchmarks on each thread, which cannot be recorded
            try:
                if isinstance(run, SettlingCall):
                    return run.record(self._record, inputs)
                return self._record(run, inputs)
            except RuntimeError as err:
                log.info("a call could not be recorded and runs directly: %s", err)
                return NotRecorded.EVER

    def _store(self, key: CallKey, recording: Replay | NotRecorded) -> None:
        self._calls[key] = recording
        self._calls.move_to_end(key)
        while len(self._calls) > MAX_RECORDINGS:
            self._calls.popitem(last=False)


def run_directly(run: Run, inputs: Tensors) -> Tensors:
    """Run a function of tensors; cuDNN benchmarks its algorithms for each new size."""
    with cudnn_benchmark():
        return tuple(run(*inputs))
