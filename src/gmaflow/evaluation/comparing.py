"""Two or more networks on the same pairs: who is better, where, and how surely."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from gmaflow.errors import FlowError, counted
from gmaflow.evaluation.bootstrap import FEW, Improvement, improvements
from gmaflow.evaluation.evaluating import Evaluation, evaluate
from gmaflow.evaluation.examples import Example, ExampleSet
from gmaflow.evaluation.judging import Judged, Start
from gmaflow.evaluation.metrics import Column
from gmaflow.evaluation.regions import REGIONS
from gmaflow.inference import FlowEstimator
from gmaflow.io import atomic_write

COMPARISON, COMPARISON_PAGE = "comparison.json", "comparison.html"
Tables = Float64[np.ndarray, "n r c"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Contender:
    """A network that takes part, and what it came to.

    Attributes:
        name: what to call it.
        estimator: the network.
        evaluation: its errors.
        keys: of its results from a cold start, pair by pair.
        tables: its sums, pair by pair, for each start.
    """

    name: str
    estimator: FlowEstimator
    evaluation: Evaluation
    keys: list[str]
    tables: Mapping[Start, Tables]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A region of a pass: the error of each network, and how the others improve on the first."""

    group: str
    start: Start
    region: str
    errors: tuple[float, ...]
    improvements: tuple[Improvement, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Several networks on the same pairs; the first is what the others are compared with."""

    data: ExampleSet
    contenders: tuple[Contender, ...]
    lines: tuple[Line, ...]

    @property
    def notes(self) -> list[str]:
        """What a reader should know."""
        notes = list(self.contenders[0].evaluation.notes)
        groups = Counter(example.group for example in self.data.examples)
        notes += [
            f"{group} has {counted(count, 'pair')}; intervals drawn from so few are guesses"
            for group, count in groups.items()
            if count < FEW
        ]
        return notes

    def title(self, line: Line) -> str:
        """Name the pass of a line, and its start where there are several."""
        several = len({line.start for line in self.lines}) > 1
        return f"{line.group}, {line.start}" if several else line.group

    def most_improved(self, count: int) -> list[tuple[int, Example]]:
        """Return the pairs whose mean error the second network lowers most, with their places."""
        before, after = (pair_errors(one.tables["cold"]) for one in self.contenders[:2])
        gains = np.nan_to_num(before - after, nan=-math.inf)
        best = np.argsort(-gains, kind="stable")[:count]
        return [(int(i), self.data.examples[i]) for i in best if gains[i] > 0]

    def find(self, names: Sequence[str]) -> list[tuple[int, Example]]:
        """Return pairs by name: SCENE/FRAME, or PASS/SCENE/FRAME.

        Raises:
            FlowError: there is no such pair.
        """
        known: dict[str, int] = {}
        for i, example in enumerate(self.data.examples):
            known.setdefault(f"{example.scene}/{example.frame}", i)
            known[f"{example.group}/{example.scene}/{example.frame}"] = i
        for name in names:
            if name not in known:
                raise FlowError(
                    f"there is no pair {name!r}; give names such as {next(iter(known))}"
                )
        return [(known[name], self.data.examples[known[name]]) for name in names]


def compare(
    estimators: dict[str, FlowEstimator],
    data: ExampleSet,
    folder: Path,
    *,
    files: dict[str, str] | None = None,
    warm_start: bool = False,
    progress: Callable[[str, Judged], None] = lambda _name, _judged: None,
) -> Comparison:
    """Evaluate several networks on the same pairs, and compare them with the first.

    Args:
        estimators: two or more, by name.
        data: the pairs.
        folder: where results go, those of each network in a folder of its name.
        files: where the weights came from, by name.
        warm_start: compare a second time, each pair begun from the flow of the one before.
        progress: is told of each pair.

    Raises:
        FlowError: there are fewer than two, or a pair cannot be read.
    """
    if len(estimators) < 2:
        raise FlowError("one network cannot be compared; give the weights of two or more")
    contenders = [
        _contend(
            name,
            estimator,
            data,
            folder / name,
            weights=(files or {}).get(name, name),
            warm_start=warm_start,
            progress=partial(progress, name),
        )
        for name, estimator in estimators.items()
    ]
    comparison = Comparison(
        data=data, contenders=tuple(contenders), lines=tuple(_lines(data, contenders))
    )
    with atomic_write(folder / COMPARISON) as temporary:
        temporary.write_text(json.dumps(as_json(comparison), indent=2) + "\n")
    return comparison


def _contend(
    name: str,
    estimator: FlowEstimator,
    data: ExampleSet,
    folder: Path,
    *,
    weights: str,
    warm_start: bool,
    progress: Callable[[Judged], None],
) -> Contender:
    """Evaluate one network, and keep the sums of every pair."""
    keys: list[str] = []
    tables: dict[Start, list[np.ndarray]] = {}

    def note(judged: Judged) -> None:
        if judged.start == "cold":
            keys.append(judged.key)
        tables.setdefault(judged.start, []).append(judged.result.sums.table)
        progress(judged)

    evaluation = evaluate(
        estimator, data, folder, weights=weights, warm_start=warm_start, progress=note
    )
    return Contender(
        name=name,
        estimator=estimator,
        evaluation=evaluation,
        keys=keys,
        tables={start: np.stack(each) for start, each in tables.items()},
    )


def pair_errors(tables: Tables) -> Float64[np.ndarray, " n"]:
    """Return the mean error of each pair; NaN where no pixel is known."""
    whole = tables[:, list(REGIONS).index("all")]
    pixels = whole[:, Column.PIXELS]
    errors: np.ndarray = whole[:, Column.ERROR] / np.where(pixels > 0, pixels, np.nan)
    return errors


def as_json(comparison: Comparison) -> dict[str, object]:
    """Return a comparison as plain values; null where there is no pixel."""
    return {
        "data": comparison.data.title,
        "networks": {one.name: asdict(one.evaluation.about) for one in comparison.contenders},
        "notes": comparison.notes,
        "intervals": "95 %, pairs drawn anew 2000 times, the same for all networks",
        "lines": [
            {
                "pass": line.group,
                "start": line.start,
                "region": line.region,
                "epe": {
                    one.name: _plain(error)
                    for one, error in zip(comparison.contenders, line.errors, strict=True)
                },
                "improvement_percent": {
                    one.name: {name: _plain(value) for name, value in asdict(found).items()}
                    for one, found in zip(comparison.contenders[1:], line.improvements, strict=True)
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
        tables = [one.tables[start][groups == group] for one in contenders]
        found = [
            one.evaluation.summary.totals[group, start].figures(averaging) for one in contenders
        ]
        better = [improvements(tables[0], other, averaging=averaging) for other in tables[1:]]
        lines += [
            Line(
                group=group,
                start=start,
                region=region,
                errors=tuple(figures[region].epe for figures in found),
                improvements=tuple(each[row] for each in better),
            )
            for row, region in enumerate(REGIONS)
            if region in found[0] and found[0][region].pixels
        ]
    return lines


def _plain(value: float | int) -> float | int | None:
    return value if math.isfinite(value) else None
