"""A whole evaluation: every pair judged, and what is left in the folder."""

import csv
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from gmaflow.evaluation.examples import ExampleSet
from gmaflow.evaluation.judging import Judge, Judged, can_be_kept
from gmaflow.evaluation.metrics import HISTOGRAM_EDGES, Averaging, Figures, averaging_of
from gmaflow.evaluation.regions import REGIONS
from gmaflow.evaluation.summary import Ranked, Summary
from gmaflow.inference import FlowEstimator
from gmaflow.io import atomic_write, ensure_can_fill, write_flow
from gmaflow.version import __version__
from gmaflow.weights import describe, fingerprint

CSV, JSON, REPORT, SHOWN = "results.csv", "results.json", "report.html", "shown"
Progress = Callable[[Judged], None]
_SHARES = ("px1", "px3", "px5", "fl")
CSV_COLUMNS = (
    *("pass", "scene", "frame", "start", "height", "width", "seconds", "pixels"),
    *_SHARES,
    *(f"epe {region}" for region in REGIONS),
)


@dataclass(frozen=True, kw_only=True)
class About:
    """What was judged, and how: enough to do it again."""

    weights: str
    fingerprint: str
    model: str
    iters: int
    precision: str
    device: str
    padding: str
    backend: str
    max_memory: float | None
    """Bytes; None: what was free."""
    warm_start: bool

    @classmethod
    def of(cls, estimator: FlowEstimator, *, weights: str, warm_start: bool) -> "About":
        """Ask an estimator."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """What an evaluation found."""

    data: ExampleSet
    about: About
    summary: Summary

    @property
    def averaging(self) -> Averaging:
        """How the end-point error is averaged, as this data set's benchmark does."""
        return averaging_of(self.data.name)

    @property
    def notes(self) -> list[str]:
        """What a reader should know."""
        notes = [*self.data.notes, *self.summary.notes()]
        if self.about.warm_start and not self.data.has_sequences:
            notes.append("no pair follows another, so a warm start changes nothing")
        return notes

    def columns(self) -> Iterator[tuple[str, dict[str, Figures]]]:
        """Give each pass and start a title, with its figures by region."""
        several = len({start for _, start in self.summary.totals}) > 1
        for (group, start), sums in self.summary.with_together().items():
            yield f"{group}, {start}" if several else group, sums.figures(self.averaging)

    def shown(self) -> tuple[list[Ranked], list[Ranked]]:
        """Return the worst pairs and the best; of a few, none is both."""
        worst = self.summary.worst.ranked()
        taken = {ranked.key for ranked in worst}
        return worst, [ranked for ranked in self.summary.best.ranked() if ranked.key not in taken]


def evaluate(
    estimator: FlowEstimator,
    data: ExampleSet,
    folder: Path,
    *,
    weights: str = "",
    warm_start: bool = False,
    progress: Progress = lambda _judged: None,
) -> Evaluation:
    """Judge all pairs and write results.json and results.csv.

    Args:
        estimator: the network.
        data: the pairs.
        folder: where results go; those that are there already are not computed again.
        weights: what to call the weights.
        warm_start: judge each pair a second time, begun from the flow of the one before.
        progress: is told of each pair as it is done.

    Raises:
        FlowError: a pair cannot be read, or the folder cannot be written. What was judged before
            is kept.
    """
    ensure_can_fill(folder)
    judge, summary = Judge(estimator, folder), Summary()
    # Where no pair follows another the two starts are the same, and one of them would only confuse.
    warm = warm_start and data.has_sequences
    with csv_rows(folder / CSV) as write_row:
        for judged in judge.judge(data.examples, warm=warm):
            flow = judged.flow
            if summary.add(judged) and flow is not None and can_be_kept(flow, estimator):
                write_flow(folder / SHOWN / f"{judged.key}.flo", flow.array)
            write_row(csv_row(judged))
            progress(judged)
    judge.last.remove()
    about = About.of(estimator, weights=weights, warm_start=warm_start)
    evaluation = Evaluation(data=data, about=about, summary=summary)
    _prune(folder / SHOWN, keep={ranked.key for some in evaluation.shown() for ranked in some})
    with atomic_write(folder / JSON) as temporary:
        temporary.write_text(json.dumps(as_json(evaluation), indent=2) + "\n")
    return evaluation


@contextmanager
def csv_rows(path: Path) -> Iterator[Callable[[dict[str, object]], object]]:
    """Give a function that writes a row; the file appears when all are written."""
    with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS, restval="")
        writer.writeheader()
        yield writer.writerow


def csv_row(judged: Judged) -> dict[str, object]:
    """Return a pair's figures by column; empty where they cannot be told."""
    figures = judged.result.sums.figures("pixels")
    height, width = judged.result.size
    numbers: dict[str, float] = {
        **{share: getattr(figures["all"], share) for share in _SHARES},
        **{f"epe {region}": found.epe for region, found in figures.items()},
    }
    return {
        "pass": judged.example.group,
        "scene": judged.example.scene,
        "frame": judged.example.frame,
        "start": judged.start,
        "height": height,
        "width": width,
        "seconds": f"{judged.result.seconds:.3f}",
        "pixels": figures["all"].pixels,
        **{name: "" if math.isnan(value) else f"{value:.6g}" for name, value in numbers.items()},
    }


def as_json(evaluation: Evaluation) -> dict[str, object]:
    """Return an evaluation as plain values; null where there is no pixel."""
    summary, averaging = evaluation.summary, evaluation.averaging
    results: dict[str, dict[str, object]] = {}
    for (group, start), sums in summary.with_together().items():
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


def _prune(folder: Path, *, keep: set[str]) -> None:
    for path in folder.glob("*.flo"):
        if path.stem not in keep:
            path.unlink(missing_ok=True)
