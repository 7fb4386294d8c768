"""Evaluates a whole data set: every pair, the sums, and the files results.json and results.csv."""

import csv
import heapq
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gmaflow.evaluation.examples import ExampleSet
from gmaflow.evaluation.metrics import (
    HISTOGRAM_EDGES,
    NEED_FOREGROUND,
    NEED_OCCLUSION,
    REGIONS,
    Averaging,
    ErrorSums,
    Figures,
    averaging_of,
)
from gmaflow.evaluation.pair_evaluator import PairEvaluator, PairResult, Start, is_reproducible
from gmaflow.inference import FlowEstimator
from gmaflow.io import atomic_write, ensure_can_fill, write_flow
from gmaflow.version import __version__
from gmaflow.weights import describe, fingerprint

CSV, JSON, REPORT, SHOWN = "results.csv", "results.json", "report.html", "shown"
MOST_SCENES = 500
"""With more sequences than this, no sums by sequence: a set of single pairs would use too much."""
Kind = tuple[str, Start]
"""A pass and a start."""
Progress = Callable[[PairResult], None]
_NAMED = 5
_SHARES = ("px1", "px3", "px5", "fl")
CSV_COLUMNS = (
    *("pass", "scene", "frame", "start", "height", "width", "seconds", "pixels"),
    *_SHARES,
    *(f"epe {region}" for region in REGIONS),
)


@dataclass(frozen=True, kw_only=True)
class About:
    """The network and its settings: enough to repeat the evaluation."""

    weights: str
    fingerprint: str
    model: str
    iters: int
    precision: str
    device: str
    padding: str
    backend: str
    max_memory: float | None
    """Bytes; None: the free memory."""
    warm_start: bool

    @classmethod
    def of(cls, estimator: FlowEstimator, *, weights: str, warm_start: bool) -> "About":
        """Describe an estimator."""
        return cls(
            weights=weights,
            fingerprint=fingerprint(estimator.network),
            model=describe(estimator.config),
            iters=estimator.iters,
            precision=str(estimator.dtype).removeprefix("torch."),
            device=str(estimator.device),
            padding=estimator.padding,
            backend=estimator.backend,
            max_memory=estimator.max_memory,
            warm_start=warm_start,
        )


class Extremes:
    """The results with the smallest errors, or with the largest."""

    def __init__(self, count: int, *, largest: bool) -> None:
        self.count = count
        self._sign = 1 if largest else -1
        self._heap: list[tuple[float, str, PairResult]] = []

    def offer(self, result: PairResult) -> bool:
        """Add a result if it is extreme enough; returns whether it is."""
        entry = (self._sign * result.epe, result.key, result)
        if len(self._heap) < self.count:
            heapq.heappush(self._heap, entry)
            return True
        return heapq.heappushpop(self._heap, entry)[1] != result.key

    def ranked(self) -> list[PairResult]:
        """Return the results, the most extreme first."""
        return [result for *_, result in sorted(self._heap, reverse=True)]


@dataclass(eq=False)
class Summary:
    """Sums by pass and start, and by sequence; the best and the worst pairs.

    Its size does not depend on the number of pairs.

    Attributes:
        totals: errors of each pass, for a cold and a warm start.
        scenes: the same for each sequence; empty if there are too many.
        worst: pairs with the largest errors, from a cold start.
        best: pairs with the smallest errors.
        without_pixels: the first few pairs whose ground truth has no valid pixels.
        num_without_pixels: the number of such pairs.
        seconds: total time of the estimates.
        num_pairs: the number of pairs.
        too_many_scenes: whether there are more than `MOST_SCENES` sequences.
    """

    shown: int = 3
    totals: dict[Kind, ErrorSums] = field(default_factory=dict)
    scenes: dict[Kind, dict[str, ErrorSums]] = field(default_factory=dict)
    without_pixels: list[str] = field(default_factory=list)
    num_without_pixels: int = 0
    seconds: float = 0.0
    num_pairs: int = 0
    too_many_scenes: bool = False

    def __post_init__(self) -> None:
        self.worst = Extremes(self.shown, largest=True)
        self.best = Extremes(self.shown, largest=False)

    def add(self, result: PairResult) -> bool:
        """Add a pair; returns whether it is among the best or worst so far."""
        kind = (result.example.group, result.start)
        self.totals[kind] = self.totals.get(kind, ErrorSums.none()) + result.sums
        self._add_to_scene(kind, result.example.scene, result.sums)
        if result.start == "warm":
            return False
        self.num_pairs += 1
        self.seconds += result.seconds
        if math.isnan(result.epe):
            self.num_without_pixels += 1
            if len(self.without_pixels) < _NAMED:
                self.without_pixels.append(result.example.title)
            return False
        # Without its arrays, which would fill the memory.
        light = replace(result, flow=None, sample=None)
        # Ask both: among few pairs, one may be in both lists.
        return any([self.worst.offer(light), self.best.offer(light)])

    def _add_to_scene(self, kind: Kind, scene: str, sums: ErrorSums) -> None:
        scenes = self.scenes.setdefault(kind, {})
        if self.too_many_scenes:
            return
        scenes[scene] = scenes.get(scene, ErrorSums.none()) + sums
        if len(scenes) > MOST_SCENES:
            self.too_many_scenes = True
            for some in self.scenes.values():
                some.clear()

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
        """Say which figures are missing or partial, and why."""
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
        for regions, lacking in (
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
                notes.append(f"{names}: only over the {defined} pairs that have {lacking}")
            elif defined == 0 and regions == NEED_OCCLUSION:
                notes.append(f"no pair has {lacking}, so there are no figures for {names}")
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
        return notes

    def columns(self) -> Iterator[tuple[str, dict[str, Figures]]]:
        """Yield each pass and start: a title and the figures by region."""
        several = len({start for _, start in self.summary.totals}) > 1
        for (group, start), sums in self.summary.with_combined().items():
            yield f"{group}, {start}" if several else group, sums.figures(self.averaging)

    def shown(self) -> tuple[list[PairResult], list[PairResult]]:
        """Return the worst pairs and the best ones, without duplicates."""
        worst = self.summary.worst.ranked()
        taken = {result.key for result in worst}
        return worst, [result for result in self.summary.best.ranked() if result.key not in taken]


def evaluate(
    estimator: FlowEstimator,
    data: ExampleSet,
    folder: Path,
    *,
    weights: str = "",
    warm_start: bool = False,
    progress: Progress = lambda _result: None,
) -> Evaluation:
    """Evaluate all pairs and write results.json and results.csv.

    Args:
        estimator: the network.
        data: the pairs.
        folder: where results go; stored results are not computed again.
        weights: a name for the weights.
        warm_start: evaluate each pair a second time, initialized with the flow of the previous one.
        progress: called with each result.

    Raises:
        FlowError: a pair cannot be read, or the folder cannot be written. Earlier results are kept.
    """
    ensure_can_fill(folder)
    evaluator, summary = PairEvaluator(estimator, folder), Summary()
    # If no pair follows another, both starts are the same: leave one out.
    warm = warm_start and data.has_sequences
    with csv_rows(folder / CSV) as write_row:
        for result in evaluator.evaluate(data.examples, warm=warm):
            flow = result.flow
            if summary.add(result) and flow is not None and is_reproducible(flow, estimator):
                write_flow(folder / SHOWN / f"{result.key}.flo", flow.array)
            write_row(csv_row(result))
            progress(result)
    evaluator.last.remove()
    about = About.of(estimator, weights=weights, warm_start=warm_start)
    evaluation = Evaluation(data=data, about=about, summary=summary)
    keep = {result.key for some in evaluation.shown() for result in some}
    for path in (folder / SHOWN).glob("*.flo"):
        if path.stem not in keep:
            path.unlink(missing_ok=True)
    with atomic_write(folder / JSON) as temporary:
        temporary.write_text(json.dumps(as_json(evaluation), indent=2) + "\n")
    return evaluation


@contextmanager
def csv_rows(path: Path) -> Iterator[Callable[[dict[str, object]], object]]:
    """Yield a function that writes a row; the file appears when all are written."""
    with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS, restval="")
        writer.writeheader()
        yield writer.writerow


def csv_row(result: PairResult) -> dict[str, object]:
    """Return a pair's figures by column; empty where there are none."""
    figures = result.sums.figures("pixels")
    height, width = result.size
    numbers: dict[str, float] = {
        **{share: getattr(figures["all"], share) for share in _SHARES},
        **{f"epe {region}": found.epe for region, found in figures.items()},
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
            "regions": _plain(sums.figures(averaging)),
            "histogram": sums.histogram.astype(int).tolist(),
            "sequences": {
                scene: _plain(each.figures(averaging))
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
        "notes": evaluation.notes,
        "results": results,
    }


def _plain(figures: dict[str, Figures]) -> dict[str, dict[str, float | None]]:
    return {
        region: {
            name: None if math.isnan(value) else value for name, value in asdict(found).items()
        }
        for region, found in figures.items()
    }
