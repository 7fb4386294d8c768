"""The way from pairs to their errors, one pair at a time."""

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gmaflow.data import FlowSample
from gmaflow.evaluation.cache import ResultStore, StoredResult
from gmaflow.evaluation.examples import Example
from gmaflow.evaluation.metrics import measure
from gmaflow.evaluation.warm_chain import WarmChain
from gmaflow.inference import Flow, FlowEstimator, LastFlows
from gmaflow.weights import fingerprint

# Another number makes all stored results void: raise it when the metrics change.
_VERSION = "3"
RESULTS, LAST_FLOW = "pairs.jsonl", "last-flow.safetensors"

Start = Literal["cold", "warm"]
"""`warm`: from the flow of the pair before in the sequence."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """A pair and its errors.

    Attributes:
        example: the pair.
        start: what the estimate began from.
        key: names weights, settings and pair.
        result: its errors.
        flow: the estimate, None if the result was there already.
        sample: what was read of the pair, None if nothing had to be.
    """

    example: Example
    start: Start
    key: str
    result: StoredResult
    flow: Flow | None = None
    sample: FlowSample | None = None

    @property
    def epe(self) -> float:
        """The pair's mean error; NaN if no pixel of its truth is known."""
        return self.result.sums.figures("pixels")["all"].epe


class Judge:
    """Estimates pairs and measures the errors; what was measured before is not estimated again.

    Args:
        estimator: the network.
        folder: where results are kept.
    """

    def __init__(self, estimator: FlowEstimator, folder: Path) -> None:
        self.estimator = estimator
        self.folder = folder
        self.store = ResultStore(folder / RESULTS)
        self.last = LastFlows(folder / LAST_FLOW)
        self.base = identify(estimator)

    def judge(self, examples: Iterable[Example], *, warm: bool = False) -> Iterator[Judged]:
        """Judge each pair, cold and, if asked for, warm too; the first of a sequence is both."""
        chain = WarmChain(self.estimator, self.last)
        for example in examples:
            identity = example.source.identity()
            cold = self._judge(example, "cold", digest(self.base, identity))
            yield cold
            if not warm:
                continue
            if example.follows:
                key = digest(self.base, "warm", chain.key, identity)
                warmed = self._judge(example, "warm", key, chain=chain, sample=cold.sample)
            else:
                chain.restart()
                warmed = replace(cold, start="warm")
            chain.advance(warmed.key, example.source.load, warmed.flow)
            yield warmed

    def _judge(
        self,
        example: Example,
        start: Start,
        key: str,
        *,
        chain: WarmChain | None = None,
        sample: FlowSample | None = None,
    ) -> Judged:
        found = self.store.get(key)
        if found is not None:
            result = StoredResult.from_json(found)
            return Judged(example=example, start=start, key=key, result=result)
        sample = sample or example.source.load()
        previous = chain.previous() if chain else None
        begin = time.perf_counter()
        flow = self.estimator(sample.image1, sample.image2, previous=previous)
        seconds = time.perf_counter() - begin
        height, width = flow.array.shape[:2]
        result = StoredResult(measure(flow.array, sample), (height, width), seconds)
        if can_be_kept(flow, self.estimator):
            self.store.put(key, result.as_json())
        return Judged(
            example=example, start=start, key=key, result=result, flow=flow, sample=sample
        )


def identify(estimator: FlowEstimator) -> str:
    """Return what changes whenever the weights or the settings do."""
    return digest(
        _VERSION,
        fingerprint(estimator.network),
        str(estimator.iters),
        str(estimator.dtype),
        estimator.device.type,
        estimator.padding,
        # Whoever names a back end wants to see what that one computes.
        *([] if estimator.backend == "auto" else [estimator.backend]),
        # Within little memory there are tiles, and the flow is another.
        *([] if estimator.max_memory is None else [f"within {estimator.max_memory:g} bytes"]),
    )


def can_be_kept(flow: Flow, estimator: FlowEstimator) -> bool:
    """Tell whether `identify` tells all that the flow depends on.

    Where there is no limit, it is what happens to be free that makes tiles.
    """
    return not flow.in_tiles or estimator.max_memory is not None


def digest(*parts: str) -> str:
    """Return a short name for some texts, another one if any of them differs."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
