"""The paper's tables of variants (2) and ablations (3), with our runs beside its figures."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gmaflow.evaluation.examples import SCENES, ExampleSet
from gmaflow.evaluation.paper import TABLE_2, TABLE_3
from gmaflow.evaluation.paper_rows import FINAL_COMPONENTS, Measured, Run

PAPER, ABLATED_ON = "paper", "C+T"
SEEN = "C+T+S/K"
"""Networks so trained have seen what they are judged on; the paper puts them in parentheses."""


@dataclass(frozen=True)
class Column:
    """A figure of a data set.

    Attributes:
        over: the data set, as the paper calls it.
        what: the pass or the figure, where there are several.
        split: the part of the data set.
        dataset: its name here.
        group: the pass here.
        figure: what is reported.
    """

    over: str
    what: str
    split: str
    dataset: str
    group: str
    figure: Literal["epe", "fl"] = "epe"

    @property
    def title(self) -> str:
        """All of its name."""
        return " ".join(filter(None, (self.over, self.what, self.split)))

    @property
    def digits(self) -> int:
        """Decimals, as in the paper."""
        return 1 if self.figure == "fl" else 2

    def of(self, measured: Measured) -> float | None:
        """Return the figure of a run, None where it was not measured or has no pixel."""
        found = measured.get((self.dataset, self.group))
        value = math.nan if found is None else getattr(found, self.figure)
        return None if math.isnan(value) else value


@dataclass(frozen=True, kw_only=True)
class Row:
    """A network's line.

    Attributes:
        block: rows that are compared with each other.
        label: the method, or the component.
        source: `paper`, or the name of a run.
        values: a figure for each column, None where there is none.
        training: what the network learned from, as table 2 groups it.
        underlined: whether the final model has this setting.
    """

    block: str
    label: str
    source: str
    values: tuple[float | None, ...]
    training: str
    underlined: bool = False

    @property
    def has_seen(self) -> bool:
        """Whether the network learned from some of what it is judged on."""
        return self.training == SEEN


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        number: its number there.
        title: what it shows.
        labels: titles of the columns before the figures.
        columns: the figures.
        rows: the lines, those of a block together.
    """

    number: int
    title: str
    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def lines(self) -> Iterator[tuple[Row, list[str]]]:
        """Give each row the cells before its figures; what the row above says is not repeated."""
        block = label = None
        for row in self.rows:
            new_block, new_label = row.block != block, (row.block, row.label) != (block, label)
            cells = [row.block if new_block else "", row.label if new_label else "", row.source]
            yield row, cells[-len(self.labels) :]
            block, label = row.block, row.label

    def text(self, row: Row, index: int) -> str:
        """Return a figure as it is printed; in parentheses where the data had been seen."""
        value, column = row.values[index], self.columns[index]
        if value is None:
            return "-"
        seen = row.has_seen and column.dataset in _LEARNED_FROM
        told = f"{value:.{column.digits}f}"
        return f"({told})" if seen else told

    def is_best(self, row: Row, index: int) -> bool:
        """Whether a figure is the lowest of its block.

        The paper's and ours are compared each by themselves, and so are networks that have seen
        what they are judged on.
        """

        def rivals(of: Row) -> tuple[str, bool, bool]:
            return of.block, of.source == PAPER, of.has_seen

        others = [other.values[index] for other in self.rows if rivals(other) == rivals(row)]
        known = [value for value in others if value is not None]
        return len(known) > 1 and row.values[index] == min(known)


_SINTEL = (
    Column("Sintel", "clean", "(train)", "sintel", "clean"),
    Column("Sintel", "final", "(train)", "sintel", "final"),
)
_KITTI = (
    Column("KITTI-15", "AEPE", "(train)", "kitti-2015", "occ"),
    Column("KITTI-15", "Fl-all %", "(train)", "kitti-2015", "occ", "fl"),
)
_CHAIRS_THINGS = (
    Column("Chairs", "", "(val)", "chairs", "chairs"),
    Column("Things", "clean", "(test)", "things", "clean"),
    Column("Things", "final", "(test)", "things", "final"),
)
_LEARNED_FROM = ("sintel", "kitti-2015")


def make_tables(
    runs: Sequence[Run], measured: Mapping[str, Measured], trials: Sequence[ExampleSet]
) -> tuple[PaperTable, ...]:
    """Lay the runs into tables 2 and 3; one in which no run has a row is left out."""
    extra = tuple(
        Column("Scenes", group, "", SCENES, group)
        for data in trials
        if data.name == SCENES
        for group in dict.fromkeys(example.group for example in data.examples)
    )
    tables = (_variants(runs, measured, extra), _ablations(runs, measured, extra))
    return tuple(t for t in tables if any(row.source != PAPER for row in t.rows))


def _variants(
    runs: Sequence[Run], measured: Mapping[str, Measured], extra: tuple[Column, ...]
) -> PaperTable:
    columns = (*_SINTEL, *_KITTI, *extra)
    none = (None,) * len(extra)
    rows = []
    methods = list(dict.fromkeys(row.method for row in TABLE_2))
    trainings = [row.training for row in TABLE_2] + [run.training for run in runs if run.method]
    for training in dict.fromkeys(trainings):
        for method in methods:
            rows += [
                Row(
                    block=training,
                    label=method,
                    source=PAPER,
                    values=(one.clean, one.final, one.kitti, one.kitti_fl, *none),
                    training=training,
                )
                for one in TABLE_2
                if (one.training, one.method) == (training, method)
            ]
            rows += [
                Row(
                    block=training,
                    label=method,
                    source=run.name,
                    values=tuple(column.of(measured[run.name]) for column in columns),
                    training=training,
                )
                for run in runs
                if (run.training, run.method) == (training, method)
            ]
    return PaperTable(
        number=2,
        title="Variants on Sintel and KITTI 2015",
        labels=("Trained on", "Method", ""),
        columns=columns,
        rows=tuple(rows),
    )


def _ablations(
    runs: Sequence[Run], measured: Mapping[str, Measured], extra: tuple[Column, ...]
) -> PaperTable:
    columns = (*_CHAIRS_THINGS, *_SINTEL, *extra)
    rows = []
    for one in TABLE_3:
        theirs = (one.chairs, one.things_clean, one.things_final, one.clean, one.final)
        final = one.component in FINAL_COMPONENTS
        sources = [(PAPER, ABLATED_ON, (*theirs, *(None,) * len(extra)))]
        sources += [
            (run.name, run.training, tuple(column.of(measured[run.name]) for column in columns))
            for run in runs
            if one.component in run.components
        ]
        rows += [
            Row(
                block=one.block,
                label=one.component,
                source=source,
                values=values,
                training=training,
                underlined=final,
            )
            for source, training, values in sources
        ]
    return PaperTable(
        number=3,
        title="Ablations",
        labels=("Component", ""),
        columns=columns,
        rows=tuple(rows),
    )
