"""The warm estimates of a sequence of pairs, which can continue in the middle of it."""

from collections.abc import Callable
from contextlib import suppress

from gmaflow.data import FlowSample
from gmaflow.errors import OutputError
from gmaflow.inference import Flow, FlowEstimator, LastFlows


class WarmChain:
    """The pairs of a sequence so far, and the flow of the last one.

    Pairs are estimated from their images, not from frames encoded once as in
    `gmaflow.inference.sequence`: the two differ by rounding, and a benchmark measures pairs.

    Args:
        estimator: The estimator.
        last: The file that keeps the last flow.
    """

    def __init__(self, estimator: FlowEstimator, last: LastFlows) -> None:
        self.estimator = estimator
        self.last = last
        self.restart()

    def restart(self) -> None:
        """Start another sequence."""
        self.key = ""
        self._flow: Flow | None = None
        self._pairs: list[Callable[[], FlowSample]] = []

    def advance(self, key: str, load: Callable[[], FlowSample], flow: Flow | None) -> None:
        """Go to the next pair; `flow` is None if an earlier run finished this pair."""
        self.key, self._flow = key, flow
        self._pairs.append(load)
        if flow is not None:
            self.last.save(key, flow)

    def previous(self) -> Flow | None:
        """Return the flow of the previous pair: from memory, from disk, or estimated again.

        It is None for the first pair of a sequence.
        """
        flow = self._flow
        if flow is None and self._pairs:
            with suppress(OutputError):  # a damaged file costs time, not the run
                flow = self.last.load(self.key)
        if flow is None:
            for load in self._pairs:
                sample = load()
                flow = self.estimator(sample.image1, sample.image2, previous=flow)
        return flow
