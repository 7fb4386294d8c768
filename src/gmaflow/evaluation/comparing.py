"""Compares two or more networks on the same pairs, with bootstrap confidence intervals.

Legend: n pairs, r regions, c columns of sums, t resamples.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from gmaflow.errors import FlowError, counted
from gmaflow.evaluation.evaluating import Evaluation, PairResult, Start, evaluate
from gmaflow.evaluation.examples import Example, ExampleSet
from gmaflow.evaluation.metrics import REGIONS, Averaging, Column, finite_or_null
from gmaflow.inference import FlowEstimator
from gmaflow.io.paths import write_text

COMPARISON, COMPARISON_PAGE = "comparison.json", "comparison.html"
Tables = Float64[np.ndarray, "n r c"]
FEW = 10
"""With fewer pairs than this an interval means little."""
RESAMPLES = 2000
_AT_ONCE = 200
_PERCENT = 95.0


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """How much smaller an error is, in percent of the first network's error."""

    percent: float
    """Positive is better; NaN if there are no pixels."""
    low: float
    high: float
    """The end of the 95 % bootstrap interval that begins at `low`."""
    pairs: int
    """The number of pairs that have pixels in the region."""

    @property
    def certain(self) -> bool:
        """Whether the interval excludes 0; never with only a few pairs."""
        return self.pairs >= FEW and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, eq=False)
class Contender:
    """A network of the comparison and its results, without their arrays."""

    name: str
    estimator: FlowEstimator
    evaluation: Evaluation
    results: tuple[PairResult, ...]

    def of(self, start: Start) -> list[PairResult]:
        """Return the results of one start, pair by pair."""
        return [result for result in self.results if result.start == start]

    def tables(self, start: Start) -> Tables:
        """Return the sums of one start, pair by pair."""
        return np.stack([result.sums.table for result in self.of(start)])


@dataclass(frozen=True, kw_only=True)
class Line:
    """One region of a pass: the error of each network, and how the others improve on the first."""

    group: str
    start: Start
    region: str
    errors: tuple[float, ...]
    improvements: tuple[Improvement, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Several networks on the same pairs; the first is the baseline."""

    data: ExampleSet
    contenders: tuple[Contender, ...]
    lines: tuple[Line, ...]

    @property
    def notes(self) -> list[str]:
        """Remarks for the reader of the figures."""
        notes = list(self.contenders[0].evaluation.notes)
        groups = Counter(example.group for example in self.data.examples)
        notes += [
            f"{group} has {counted(count, 'pair')}; intervals from so few pairs are unreliable"
            for group, count in groups.items()
            if count < FEW
        ]
        return notes

    def title(self, line: Line) -> str:
        """Name the pass of a line, and its start if there are several."""
        several = len({line.start for line in self.lines}) > 1
        return f"{line.group}, {line.start}" if several else line.group

    def most_changed(self, count: int, *, better: bool) -> list[tuple[int, Example]]:
        """Return the pairs whose mean error the second network lowers most, or raises most.

        Each comes with its index.
        """
        before, after = (pair_errors(one.tables("cold")) for one in self.contenders[:2])
        gains = np.nan_to_num(before - after if better else after - before, nan=-math.inf)
        best = np.argsort(-gains, kind="stable")[:count]
        return [(int(i), self.data.examples[i]) for i in best if gains[i] > 0]


def compare(
    estimators: dict[str, FlowEstimator],
    data: ExampleSet,
    folder: Path,
    *,
    files: dict[str, str] | None = None,
    warm_start: bool = False,
    progress: Callable[[PairResult], None] = lambda _result: None,
) -> Comparison:
    """Evaluate two or more networks on the same pairs, as `evaluate`, and compare with the first.

    Each network has a subfolder of its name. `files` are the files of the weights, by name.
    """
    if len(estimators) < 2:
        raise FlowError("got one network; give the weights of two or more to compare")
    results: list[PairResult] = []

    def collect(result: PairResult) -> None:
        results.append(replace(result, flow=None, sample=None))
        progress(result)

    contenders = []
    for name, estimator in estimators.items():
        results.clear()
        evaluation = evaluate(
            estimator,
            data,
            folder / name,
            weights=(files or {}).get(name, name),
            warm_start=warm_start,
            progress=collect,
        )
        contenders.append(Contender(name, estimator, evaluation, tuple(results)))
    comparison = Comparison(
        data=data, contenders=tuple(contenders), lines=tuple(_lines(data, contenders))
    )
    write_text(folder / COMPARISON, json.dumps(as_json(comparison), indent=2) + "\n")
    return comparison


def pair_errors(tables: Tables) -> Float64[np.ndarray, " n"]:
    """Return the mean error of each pair; NaN if it has no valid pixels."""
    whole = tables[:, list(REGIONS).index("all")]
    pixels = whole[:, Column.PIXELS]
    errors: np.ndarray = whole[:, Column.ERROR] / np.where(pixels > 0, pixels, np.nan)
    return errors


def as_json(comparison: Comparison) -> dict[str, object]:
    """Return a comparison as plain values; null where there are no pixels."""
    names = [one.name for one in comparison.contenders]
    return {
        "data": comparison.data.title,
        "networks": {one.name: asdict(one.evaluation.about) for one in comparison.contenders},
        "notes": comparison.notes,
        "intervals": f"{_PERCENT:g} %, paired bootstrap over pairs, {RESAMPLES} resamples",
        "lines": [
            {
                "pass": line.group,
                "start": line.start,
                "region": line.region,
                "epe": finite_or_null(dict(zip(names, line.errors, strict=True))),
                "improvement_percent": {
                    name: finite_or_null(asdict(gain))
                    for name, gain in zip(names[1:], line.improvements, strict=True)
                },
            }
            for line in comparison.lines
        ],
    }


def _lines(data: ExampleSet, contenders: list[Contender]) -> list[Line]:
    groups = np.array([example.group for example in data.examples])
    averaging = contenders[0].evaluation.averaging
    lines = []
    for group, start in contenders[0].evaluation.summary.totals:
        tables = [one.tables(start)[groups == group] for one in contenders]
        totals = [
            one.evaluation.summary.totals[group, start].figures(averaging) for one in contenders
        ]
        better = [improvements(tables[0], other, averaging=averaging) for other in tables[1:]]
        lines += [
            Line(
                group=group,
                start=start,
                region=region,
                errors=tuple(regions[region].epe for regions in totals),
                improvements=tuple(gains[row] for gains in better),
            )
            for row, region in enumerate(REGIONS)
            if region in totals[0] and totals[0][region].pixels
        ]
    return lines


def improvements(
    before: Float64[np.ndarray, "n r c"],
    after: Float64[np.ndarray, "n r c"],
    *,
    averaging: Averaging,
) -> list[Improvement]:
    """Compare the sums of the same pairs under two networks, region by region.

    The interval is a paired bootstrap: pairs are resampled with replacement, the same ones for both
    networks, so that the difficulty of a pair cancels out.
    """
    by_image = averaging == "images"
    columns = [Column.MEANS, Column.IMAGES] if by_image else [Column.ERROR, Column.PIXELS]
    first, second = before[..., columns], after[..., columns]
    once = np.ones((1, len(before)))
    percents = _percent(once, first, second)[0]
    drawn = np.concatenate([_percent(weights, first, second) for weights in _draw(len(before))])
    pairs = (first[..., -1] > 0).sum(axis=0)
    return [
        Improvement(percent=float(percent), low=low, high=high, pairs=int(count))
        for percent, (low, high), count in zip(
            percents, map(_interval, drawn.T), pairs, strict=True
        )
    ]


def _draw(count: int) -> Iterator[Float64[np.ndarray, "t n"]]:
    """Yield how often each pair is drawn in each resample."""
    rng = np.random.default_rng(0)
    for _ in range(RESAMPLES // _AT_ONCE):
        yield rng.multinomial(count, np.full(count, 1 / count), size=_AT_ONCE).astype(np.float64)


def _percent(
    weights: Float64[np.ndarray, "t n"],
    first: Float64[np.ndarray, "n r 2"],
    second: Float64[np.ndarray, "n r 2"],
) -> Float64[np.ndarray, "t r"]:
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = []
        for sums in (first, second):
            total, count = np.moveaxis(np.einsum("tn,nrk->trk", weights, sums), 2, 0)
            errors.append(total / count)
        result: np.ndarray = 100 * (errors[0] - errors[1]) / errors[0]
    return result


def _interval(values: Float64[np.ndarray, " t"]) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return float("nan"), float("nan")
    outside = (100 - _PERCENT) / 2
    low, high = np.percentile(finite, [outside, 100 - outside])
    return float(low), float(high)
