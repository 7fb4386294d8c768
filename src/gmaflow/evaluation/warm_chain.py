"""The warm estimates of a sequence, so that one can go on in the middle of it."""

from collections.abc import Callable

from gmaflow.data import FlowSample
from gmaflow.evaluation.cache import LastFlow
from gmaflow.inference import Flow, FlowEstimator


class WarmChain:
    """The pairs of a sequence so far, and the flow of the last one wherever it can be had.

    Args:
        estimator: the network.
        last: where the last flow is kept on disk.
    """

    def __init__(self, estimator: FlowEstimator, last: LastFlow) -> None:
        self.estimator = estimator
        self.last = last
        self.restart()

    def restart(self) -> None:
        """Begin another sequence."""
        self.key = ""
        self._flow: Flow | None = None
        self._pairs: list[Callable[[], FlowSample]] = []

    def advance(self, key: str, load: Callable[[], FlowSample], flow: Flow | None) -> None:
        """Go one pair on; `flow` is None where the pair was finished in an earlier run."""
        self.key, self._flow = key, flow
        self._pairs.append(load)
        if flow is not None:
            self.last.save(key, flow)

    def previous(self) -> Flow | None:
        """Return the flow of the pair before, from memory, from disk, or made again.

        It is None for the first pair of a sequence.
        """
        flow = self._flow or (self.last.load(self.key) if self._pairs else None)
        if flow is None:
            for load in self._pairs:
                sample = load()
                flow = self.estimator(sample.image1, sample.image2, previous=flow)
        return flow
