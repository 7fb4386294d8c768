"""Evaluates a network: pair by pair with stored results, then the sums of the whole data set.

`PairEvaluator` estimates and measures pairs, with a cold or warm start. `evaluate` adds them up and
writes results.json and results.csv.
"""

import csv
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, TypeVar

from gmaflow.data import FlowSample
from gmaflow.errors import OutputError, os_reason
from gmaflow.evaluation.examples import Example, ExampleSet
from gmaflow.evaluation.metrics import (
    HISTOGRAM_EDGES,
    NEED_FOREGROUND,
    NEED_OCCLUSION,
    REGIONS,
    Averaging,
    ErrorSums,
    Figures,
    averaging_of,
    finite_or_null,
    measure,
)
from gmaflow.inference import (
    EstimatorSettings,
    Flow,
    FlowEstimator,
    LastFlows,
    SequenceFrame,
    estimate_pairs,
)
from gmaflow.io import atomic_write, ensure_can_fill, write_flow
from gmaflow.io.paths import write_text
from gmaflow.version import __version__
from gmaflow.weights import fingerprint

# Increase it when the metrics change: all stored results become invalid.
_VERSION = "4"
RESULTS, LAST_FLOW = "pairs.jsonl", "last-flow.safetensors"

Start = Literal["cold", "warm"]
"""`warm`: initialized with the flow of the previous pair in the sequence."""
PairT = TypeVar("PairT")
Values = dict[str, Any]
"""A JSON object."""
CSV, JSON, REPORT, SHOWN = "results.csv", "results.json", "report.html", "shown"
MOST_SCENES = 500
"""With more sequences than this, there are no sums by sequence: they would take too much memory."""
Kind = tuple[str, Start]
"""A pass and a start."""
_NAMED = 5
_SHOWN_PAIRS = 3
_SHARES = ("px1", "px3", "px5", "fl")
CSV_COLUMNS = (
    *("pass", "scene", "frame", "start", "height", "width", "seconds", "pixels"),
    *_SHARES,
    *(f"epe {region}" for region in REGIONS),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairResult:
    """The errors of one pair."""

    example: Example
    start: Start
    key: str
    """Identifies weights, settings and pair."""
    sums: ErrorSums
    size: tuple[int, int]
    seconds: float
    """How long the estimate took."""
    iterations: int = 0
    """How many refinements it took."""
    flow: Flow | None = None
    """The estimate; None if the result was stored before."""
    sample: FlowSample | None = None
    """The loaded pair; None if it did not have to be loaded."""

    @property
    def epe(self) -> float:
        """The pair's mean error; NaN if its ground truth has no valid pixels."""
        return self.sums.figures("pixels")["all"].epe

    def as_json(self) -> Values:
        """Return plain values from which `from_json` restores the result."""
        return {
            "size": self.size,
            "seconds": self.seconds,
            "iterations": self.iterations,
            "sums": self.sums.as_json(),
        }

    @classmethod
    def from_json(cls, example: Example, start: Start, key: str, values: Values) -> "PairResult":
        height, width = values["size"]
        return cls(
            example=example,
            start=start,
            key=key,
            sums=ErrorSums.from_json(values["sums"]),
            size=(height, width),
            seconds=values["seconds"],
            iterations=values["iterations"],
        )


STORED_FIELDS = ("size", "seconds", "iterations", "sums")
"""The values of `PairResult.as_json`."""


class ResultStore:
    """A file of results by key, one line for each, written as soon as it is computed.

    The key is made of the weights, the settings and the identity of the pair. Other weights or
    settings have other keys, so one folder can hold the results of many runs. That is why there is
    no record of the settings as in `gmaflow.io.resumable`, and nothing is ever overwritten. Memory
    holds only the position of each result.
    """

    def __init__(self, path: Path, fields: Iterable[str]) -> None:
        self.path = path
        self._fields = {"key", *fields}
        self._offsets: dict[str, int] = {}
        if path.is_file():
            self._read_offsets()

    def __contains__(self, key: str) -> bool:
        return key in self._offsets

    def get(self, key: str) -> Values | None:
        offset = self._offsets.get(key)
        if offset is None:
            return None
        with self.path.open("rb") as file:
            file.seek(offset)
            values: Values = json.loads(file.readline())
        return values

    def put(self, key: str, values: Values) -> None:
        """Append a result and flush it to the disk."""
        line = json.dumps({"key": key, **values}).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                if not self._ends_with_newline():
                    file.write(b"\n")
                offset = file.tell()
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as err:
            raise OutputError(f"{self.path} cannot be written: {os_reason(err)}") from err
        self._offsets[key] = offset

    def _read_offsets(self) -> None:
        offset = 0
        with self.path.open("rb") as file:
            for line in file:
                # A line that an interrupt truncated, or that lacks a field, is skipped; its pair is
                # evaluated again.
                with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    values = json.loads(line)
                    if values.keys() >= self._fields:
                        self._offsets[values["key"]] = offset
                offset += len(line)

    def _ends_with_newline(self) -> bool:
        if not self.path.is_file() or self.path.stat().st_size == 0:
            return True
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def split_sequences(
    pairs: Iterable[PairT], follows: Callable[[PairT], bool]
) -> Iterator[list[PairT]]:
    """Split pairs where one does not follow the previous one."""
    sequence: list[PairT] = []
    for pair in pairs:
        if sequence and not follows(pair):
            yield sequence
            sequence = []
        sequence.append(pair)
    if sequence:
        yield sequence


def find_done(
    keys: Sequence[str], finished: Container[str], last: LastFlows
) -> dict[int, Flow | None]:
    """Find the pairs of a sequence that need not be estimated again.

    They are the finished ones, unless the next pair needs their flow and it is lost.

    Args:
        keys: Identify the pairs.
        finished: Keys of pairs that an earlier run finished.
        last: The flows from which an interrupted run continues.

    Returns:
        The flows of these pairs by number; None if the next pair does not need it.
    """
    done: dict[int, Flow | None] = {}
    needed = False  # by the next pair
    for number, key in reversed(list(enumerate(keys))):
        flow = None
        with suppress(OutputError):  # a damaged file costs time, not the run
            flow = last.load(key) if needed else None
        if key in finished and (flow is not None or not needed):
            done[number] = flow
        needed = number not in done
    return done


def estimate_sequence(
    estimator: FlowEstimator,
    loads: Sequence[Callable[[], FlowSample]],
    keys: Sequence[str],
    *,
    done: Mapping[int, Flow | None],
    last: LastFlows,
) -> Iterator[tuple[int, Flow]]:
    """Estimate the pairs of a sequence, each from the flow of the previous one.

    Args:
        estimator: The estimator.
        loads: Load the pairs; the second image of each is the first of the next.
        keys: Identify the pairs.
        done: Pairs to skip, as from `find_done`.
        last: Gets the flow of each pair, from which an interrupted run continues.

    Yields:
        The numbers of the pairs, from 0, and their flow.
    """

    def frames() -> Iterator[SequenceFrame]:
        # Not encoded one by one: a benchmark measures pairs, and that would differ by rounding.
        for number, load in enumerate(loads):
            if number not in done:
                sample = load()
                if number == 0 or number - 1 in done:
                    yield SequenceFrame(number, estimator.load_frame(sample.image1))
                yield SequenceFrame(number + 1, estimator.load_frame(sample.image2))

    for pair in estimate_pairs(estimator, frames(), warm_start=True, done=done):
        assert pair.flow is not None  # there are neither cuts nor errors
        if pair.number + 1 < len(keys):
            last.save(keys[pair.number], pair.flow)
        yield pair.number, pair.flow


class PairEvaluator:
    """Estimates pairs and measures their errors; results in the folder are not computed again."""

    def __init__(self, estimator: FlowEstimator, folder: Path) -> None:
        self.estimator = estimator
        self.folder = folder
        self.store = ResultStore(folder / RESULTS, STORED_FIELDS)
        self.base = identify(estimator)
        self._loaded: tuple[Example, FlowSample] | None = None

    def evaluate(self, examples: Iterable[Example], *, warm: bool = False) -> Iterator[PairResult]:
        """Evaluate each pair with a cold start and, if `warm`, also with a warm start.

        The first pair of a sequence has the same result for both.
        """
        if not warm:
            yield from map(self._evaluate_cold, examples)
            return
        last = LastFlows(self.folder / LAST_FLOW)
        for sequence in split_sequences(examples, lambda example: example.follows):
            yield from self._evaluate_sequence(sequence, last)
        last.remove()

    def _evaluate_sequence(
        self, sequence: Sequence[Example], last: LastFlows
    ) -> Iterator[PairResult]:
        first = self._evaluate_cold(sequence[0])
        if first.flow is not None and len(sequence) > 1:
            last.save(first.key, first.flow)
        yield first
        yield replace(first, start="warm")
        keys = [first.key]
        for example in sequence[1:]:
            keys.append(digest(self.base, "warm", keys[-1], example.identity()))
        finished = {first.key, *(key for key in keys if key in self.store)}
        done = find_done(keys, finished, last)
        loads = [partial(self._load, example) for example in sequence]
        flows = estimate_sequence(self.estimator, loads, keys, done=done, last=last)
        for number, example in enumerate(sequence):
            if number > 0:
                yield self._evaluate_cold(example)
            if keys[number] in finished and number not in done:
                next(flows)  # the flow was lost; later its time would count as the next pair's
            if number > 0:
                yield self._evaluate(example, "warm", keys[number], lambda: next(flows)[1])

    def _evaluate_cold(self, example: Example) -> PairResult:
        def estimate() -> Flow:
            sample = self._load(example)
            return self.estimator(sample.image1, sample.image2)

        return self._evaluate(example, "cold", digest(self.base, example.identity()), estimate)

    def _evaluate(
        self, example: Example, start: Start, key: str, estimate: Callable[[], Flow]
    ) -> PairResult:
        stored = self.store.get(key)
        if stored is not None:
            return PairResult.from_json(example, start, key, stored)
        sample = self._load(example)
        begin = time.perf_counter()
        flow = estimate()
        seconds = time.perf_counter() - begin
        height, width = flow.array.shape[:2]
        result = PairResult(
            example=example,
            start=start,
            key=key,
            sums=measure(flow.array, sample),
            size=(height, width),
            seconds=seconds,
            iterations=flow.iterations or 0,
            flow=flow,
            sample=sample,
        )
        if is_reproducible(flow, self.estimator):
            self.store.put(key, result.as_json())
        return result

    def _load(self, example: Example) -> FlowSample:
        """Load a pair; the last one is kept, for its warm start."""
        if self._loaded is None or self._loaded[0] is not example:
            self._loaded = example, example.load()
        return self._loaded[1]


def identify(estimator: FlowEstimator) -> str:
    """Return a key that changes when the weights or the settings change."""
    settings = estimator.settings
    chosen = {"padding": settings.padding} | settings.chosen()
    # Worded as for the results that are already stored.
    templates = {
        "padding": "{}",
        "backend": "{}",
        "settled": "settled {:g}",
        "max_memory": "within {:g} bytes",
    }
    return digest(
        _VERSION,
        fingerprint(estimator.network),
        str(settings.iters),
        f"torch.{settings.precision}",
        estimator.device.type,
        *(templates.get(name, f"{name} {{}}").format(value) for name, value in chosen.items()),
    )


def is_reproducible(flow: Flow, estimator: FlowEstimator) -> bool:
    """Whether the flow depends only on what `identify` covers.

    Without a memory limit, tiles depend on how much memory happened to be free.
    """
    return not flow.in_tiles or estimator.max_memory is not None


def digest(*parts: str) -> str:
    """Return a short hash of some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@dataclass(frozen=True, kw_only=True)
class About(EstimatorSettings):
    """The network and its settings: enough to repeat the evaluation."""

    weights: str
    fingerprint: str
    warm_start: bool

    @classmethod
    def of(cls, estimator: FlowEstimator, *, weights: str, warm_start: bool) -> "About":
        return cls(
            weights=weights,
            fingerprint=fingerprint(estimator.network),
            warm_start=warm_start,
            **asdict(estimator.settings),
        )


@dataclass(eq=False)
class Summary:
    """Sums by pass and start, and by sequence; the best and the worst pairs.

    Its size does not depend on the number of pairs.
    """

    totals: dict[Kind, ErrorSums] = field(default_factory=dict)
    scenes: dict[Kind, dict[str, ErrorSums]] = field(default_factory=dict)
    """The same for each sequence; empty if there are too many."""
    worst: list[PairResult] = field(default_factory=list)
    best: list[PairResult] = field(default_factory=list)
    """From a cold start, like the worst; the best first."""
    without_pixels: list[str] = field(default_factory=list)
    """The first few pairs whose ground truth has no valid pixels."""
    num_without_pixels: int = 0
    seconds: float = 0.0
    iterations: int = 0
    num_pairs: int = 0
    too_many_scenes: bool = False

    def add(self, result: PairResult) -> bool:
        """Add a pair; returns whether it is among the best or worst so far."""
        kind = (result.example.group, result.start)
        self.totals[kind] = self.totals.get(kind, ErrorSums.none()) + result.sums
        self._add_to_scene(kind, result.example.scene, result.sums)
        if result.start == "warm":
            return False
        self.num_pairs += 1
        self.seconds += result.seconds
        self.iterations += result.iterations
        if math.isnan(result.epe):
            self.num_without_pixels += 1
            if len(self.without_pixels) < _NAMED:
                self.without_pixels.append(result.example.title)
            return False
        # Without its arrays, which would fill the memory.
        light = replace(result, flow=None, sample=None)
        by_error = sorted([*self.best, light], key=lambda one: (one.epe, one.key))
        self.best = by_error[:_SHOWN_PAIRS]
        by_error = sorted([*self.worst, light], key=lambda one: (one.epe, one.key), reverse=True)
        self.worst = by_error[:_SHOWN_PAIRS]
        return light in self.best or light in self.worst

    def _add_to_scene(self, kind: Kind, scene: str, sums: ErrorSums) -> None:
        scenes = self.scenes.setdefault(kind, {})
        if self.too_many_scenes:
            return
        scenes[scene] = scenes.get(scene, ErrorSums.none()) + sums
        if len(scenes) > MOST_SCENES:
            self.too_many_scenes = True
            for by_scene in self.scenes.values():
                by_scene.clear()

    def with_combined(self) -> dict[Kind, ErrorSums]:
        """Return the totals and, if there are several passes, those of all combined."""
        groups = list(dict.fromkeys(group for group, _ in self.totals))
        if len(groups) == 1:
            return self.totals
        combined: dict[Kind, ErrorSums] = {}
        for (_, start), sums in self.totals.items():
            kind = (" + ".join(groups), start)
            combined[kind] = combined.get(kind, ErrorSums.none()) + sums
        return self.totals | combined

    def notes(self) -> list[str]:
        """Report which figures are missing or partial, and why."""
        notes = []
        if self.num_without_pixels:
            more = ", ..." if self.num_without_pixels > len(self.without_pixels) else ""
            notes.append(
                f"{self.num_without_pixels} of {self.num_pairs} pairs have no valid ground truth "
                f"and are not counted: {', '.join(self.without_pixels)}{more}"
            )
        if self.too_many_scenes:
            notes.append(
                f"more than {MOST_SCENES} sequences, so none is summed up; results.csv lists each "
                "pair"
            )
        for regions, mask in (
            (NEED_OCCLUSION, "an occlusion mask"),
            (NEED_FOREGROUND, "a mask of moving objects"),
        ):
            defined = sum(
                sums.num_pairs(regions[0])
                for (_, start), sums in self.totals.items()
                if start == "cold"
            )
            names = ", ".join(regions)
            if 0 < defined < self.num_pairs:
                notes.append(f"{names}: only over the {defined} pairs that have {mask}")
            elif defined == 0 and regions == NEED_OCCLUSION:
                notes.append(f"no pair has {mask}, so there are no figures for {names}")
        return notes


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """The result of an evaluation."""

    data: ExampleSet
    about: About
    summary: Summary

    @property
    def averaging(self) -> Averaging:
        """How the end-point error is averaged, as the data set's benchmark does."""
        return averaging_of(self.data.name)

    @property
    def notes(self) -> list[str]:
        """Remarks for the reader of the figures."""
        notes = [*self.data.notes, *self.summary.notes()]
        if self.about.warm_start and not self.data.has_sequences:
            notes.append("no pair follows another, so a warm start makes no difference")
        if self.about.settled is not None and self.summary.num_pairs:
            used = self.summary.iterations / self.summary.num_pairs
            notes.append(
                f"iterations: {used:.1f} per pair on average, at most {self.about.iters}; a pair "
                f"stops when an iteration changes its flow by less than {self.about.settled:g} px"
            )
        return notes

    def columns(self) -> Iterator[tuple[str, dict[str, Figures]]]:
        """Yield each pass and start: a title and the figures by region."""
        several = len({start for _, start in self.summary.totals}) > 1
        for (group, start), sums in self.summary.with_combined().items():
            yield f"{group}, {start}" if several else group, sums.figures(self.averaging)

    def shown(self) -> tuple[list[PairResult], list[PairResult]]:
        """Return the worst pairs and the best ones, without duplicates."""
        worst = self.summary.worst
        worst_keys = {result.key for result in worst}
        return worst, [result for result in self.summary.best if result.key not in worst_keys]


def evaluate(
    estimator: FlowEstimator,
    data: ExampleSet,
    folder: Path,
    *,
    weights: str = "",
    warm_start: bool = False,
    progress: Callable[[PairResult], None] = lambda _result: None,
) -> Evaluation:
    """Evaluate all pairs and write results.json and results.csv.

    Results in the folder are not computed again. With `warm_start`, each pair is evaluated a second
    time, initialized with the flow of the previous one. `weights` is their name in the report.
    """
    ensure_can_fill(folder)
    evaluator, summary = PairEvaluator(estimator, folder), Summary()
    # If no pair follows another, both starts are the same: leave one out.
    warm = warm_start and data.has_sequences
    with atomic_write(folder / CSV) as raw, TextIOWrapper(raw, "utf-8", newline="") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS, restval="")
        writer.writeheader()
        for result in evaluator.evaluate(data.examples, warm=warm):
            flow = result.flow
            if summary.add(result) and flow is not None and is_reproducible(flow, estimator):
                write_flow(folder / SHOWN / f"{result.key}.flo", flow.array)
            writer.writerow(csv_row(result))
            progress(result)
    about = About.of(estimator, weights=weights, warm_start=warm_start)
    evaluation = Evaluation(data=data, about=about, summary=summary)
    keep = {result.key for results in evaluation.shown() for result in results}
    for path in (folder / SHOWN).glob("*.flo"):
        if path.stem not in keep:
            path.unlink(missing_ok=True)
    write_text(folder / JSON, json.dumps(as_json(evaluation), indent=2) + "\n")
    return evaluation


def csv_row(result: PairResult) -> dict[str, object]:
    """Return a pair's figures by column; empty where there are none."""
    figures = result.sums.figures("pixels")
    height, width = result.size
    numbers: dict[str, float] = {
        **{share: getattr(figures["all"], share) for share in _SHARES},
        **{f"epe {region}": region_figures.epe for region, region_figures in figures.items()},
    }
    return {
        "pass": result.example.group,
        "scene": result.example.scene,
        "frame": result.example.frame,
        "start": result.start,
        "height": height,
        "width": width,
        "seconds": f"{result.seconds:.3f}",
        "pixels": figures["all"].pixels,
        **{name: "" if math.isnan(value) else f"{value:.6g}" for name, value in numbers.items()},
    }


def as_json(evaluation: Evaluation) -> dict[str, object]:
    """Return an evaluation as plain values; null where a region has no pixels."""
    summary, averaging = evaluation.summary, evaluation.averaging
    results: dict[str, dict[str, object]] = {}
    for (group, start), sums in summary.with_combined().items():
        results.setdefault(group, {})[start] = {
            "regions": _regions(sums, averaging),
            "histogram": sums.histogram.astype(int).tolist(),
            "sequences": {
                scene: _regions(each, averaging)
                for scene, each in summary.scenes.get((group, start), {}).items()
            },
        }
    return {
        "gmaflow": __version__,
        "data": {
            "name": evaluation.data.name,
            "title": evaluation.data.title,
            "pairs": summary.num_pairs,
        },
        "network": asdict(evaluation.about),
        "averaging": {"epe": averaging, "shares": "pixels"},
        "histogram_edges": HISTOGRAM_EDGES,
        "seconds_per_pair": summary.seconds / max(1, summary.num_pairs),
        "iterations_per_pair": summary.iterations / max(1, summary.num_pairs),
        "notes": evaluation.notes,
        "results": results,
    }


def _regions(sums: ErrorSums, averaging: Averaging) -> dict[str, dict[str, float | None]]:
    return {
        region: finite_or_null(asdict(values)) for region, values in sums.figures(averaging).items()
    }
