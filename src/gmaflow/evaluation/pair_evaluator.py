"""Evaluates pairs one by one, with a cold or warm start, and stores the results."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gmaflow.data import FlowSample
from gmaflow.errors import OutputError
from gmaflow.evaluation.examples import Example
from gmaflow.evaluation.metrics import ErrorSums, measure
from gmaflow.inference import Flow, FlowEstimator, LastFlows
from gmaflow.weights import fingerprint

# Increase it when the metrics change: all stored results become invalid.
_VERSION = "4"
RESULTS, LAST_FLOW = "pairs.jsonl", "last-flow.safetensors"

Start = Literal["cold", "warm"]
"""`warm`: initialized with the flow of the previous pair in the sequence."""
Values = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PairResult:
    """The errors of one pair.

    Attributes:
        example: the pair.
        start: how the estimate was initialized.
        key: identifies weights, settings and pair.
        sums: its errors.
        size: height and width.
        seconds: how long the estimate took.
        flow: the estimate; None if the result was stored before.
        sample: the loaded pair; None if it did not have to be loaded.
    """

    example: Example
    start: Start
    key: str
    sums: ErrorSums
    size: tuple[int, int]
    seconds: float
    flow: Flow | None = None
    sample: FlowSample | None = None

    @property
    def epe(self) -> float:
        """The pair's mean error; NaN if its ground truth has no valid pixels."""
        return self.sums.figures("pixels")["all"].epe

    def as_json(self) -> Values:
        """Return plain values from which `from_json` restores the result."""
        return {"size": self.size, "seconds": self.seconds, "sums": self.sums.as_json()}

    @classmethod
    def from_json(cls, example: Example, start: Start, key: str, values: Values) -> "PairResult":
        """Restore a result from `as_json`."""
        height, width = values["size"]
        return cls(
            example=example,
            start=start,
            key=key,
            sums=ErrorSums.from_json(values["sums"]),
            size=(height, width),
            seconds=values["seconds"],
        )


class ResultStore:
    """A file of results by key, one line for each, written as soon as it is computed.

    The key is made of the weights, the settings and the identity of the pair. Other weights or
    settings have other keys, so one folder can hold the results of many runs. That is why there is
    no record of the settings as in `gmaflow.io.resumable`, and nothing is ever overwritten. Memory
    holds only the position of each result.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, int] = {}
        if path.is_file():
            self._read_places()

    def get(self, key: str) -> Values | None:
        """Return a result, or None if it is not stored."""
        place = self._places.get(key)
        if place is None:
            return None
        with self.path.open("rb") as file:
            file.seek(place)
            values: Values = json.loads(file.readline())
        return values

    def put(self, key: str, values: Values) -> None:
        """Append a result and flush it to the disk.

        Raises:
            OutputError: the file cannot be written.
        """
        line = json.dumps({"key": key, **values}).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                if not self._ends_with_newline():
                    file.write(b"\n")
                place = file.tell()
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as err:
            raise OutputError(f"{self.path} cannot be written: {err.strerror}") from err
        self._places[key] = place

    def _read_places(self) -> None:
        place = 0
        with self.path.open("rb") as file:
            for line in file:
                # A line that an interrupt truncated is skipped; its pair is evaluated again.
                with suppress(ValueError, KeyError, TypeError):
                    self._places[json.loads(line)["key"]] = place
                place += len(line)

    def _ends_with_newline(self) -> bool:
        if not self.path.is_file() or self.path.stat().st_size == 0:
            return True
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


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


class PairEvaluator:
    """Estimates pairs and measures their errors; stored results are not computed again.

    Args:
        estimator: the network.
        folder: where results are stored.
    """

    def __init__(self, estimator: FlowEstimator, folder: Path) -> None:
        self.estimator = estimator
        self.store = ResultStore(folder / RESULTS)
        self.last = LastFlows(folder / LAST_FLOW)
        self.base = identify(estimator)

    def evaluate(self, examples: Iterable[Example], *, warm: bool = False) -> Iterator[PairResult]:
        """Evaluate each pair with a cold start and, if `warm`, also with a warm start.

        The first pair of a sequence has the same result for both.
        """
        chain = WarmChain(self.estimator, self.last)
        for example in examples:
            identity = example.identity()
            cold = self._evaluate(example, "cold", digest(self.base, identity))
            yield cold
            if not warm:
                continue
            if example.follows:
                key = digest(self.base, "warm", chain.key, identity)
                warmed = self._evaluate(example, "warm", key, chain=chain, sample=cold.sample)
            else:
                chain.restart()
                warmed = replace(cold, start="warm")
            chain.advance(warmed.key, example.source.load, warmed.flow)
            yield warmed

    def _evaluate(
        self,
        example: Example,
        start: Start,
        key: str,
        *,
        chain: WarmChain | None = None,
        sample: FlowSample | None = None,
    ) -> PairResult:
        stored = self.store.get(key)
        if stored is not None:
            return PairResult.from_json(example, start, key, stored)
        sample = sample or example.source.load()
        previous = chain.previous() if chain else None
        begin = time.perf_counter()
        flow = self.estimator(sample.image1, sample.image2, previous=previous)
        seconds = time.perf_counter() - begin
        height, width = flow.array.shape[:2]
        result = PairResult(
            example=example,
            start=start,
            key=key,
            sums=measure(flow.array, sample),
            size=(height, width),
            seconds=seconds,
            flow=flow,
            sample=sample,
        )
        if is_reproducible(flow, self.estimator):
            self.store.put(key, result.as_json())
        return result


def identify(estimator: FlowEstimator) -> str:
    """Return a key that changes when the weights or the settings change."""
    return digest(
        _VERSION,
        fingerprint(estimator.network),
        str(estimator.iters),
        str(estimator.dtype),
        estimator.device.type,
        estimator.padding,
        # If a back end is requested by name, its own results are wanted.
        *([] if estimator.backend == "auto" else [estimator.backend]),
        # A memory limit can lead to tiles, which change the flow.
        *([] if estimator.max_memory is None else [f"within {estimator.max_memory:g} bytes"]),
    )


def is_reproducible(flow: Flow, estimator: FlowEstimator) -> bool:
    """Whether the flow depends only on what `identify` covers.

    Without a memory limit, tiles depend on how much memory happened to be free.
    """
    return not flow.in_tiles or estimator.max_memory is not None


def digest(*parts: str) -> str:
    """Return a short hash of some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
