"""The paper's tables of variants (2) and ablations (3), with measured networks next to its figures.

The paper is Jiang et al., "Learning to Estimate Hidden Motions with Global Motion Aggregation"
(ICCV 2021). "C+T" networks are trained on Chairs and Things, "C+T+S/K" networks also on Sintel or
KITTI, so that they have seen the data they are evaluated on. Figures compare only on whole training
sets.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

from gmaflow.data import dataset_info, look_up_root
from gmaflow.errors import DatasetError, FlowError
from gmaflow.evaluation.evaluating import PairResult, evaluate
from gmaflow.evaluation.examples import (
    PAPER_SPLITS,
    SCENES,
    ExampleSet,
    incomplete,
    open_examples,
    published_padding,
    thin,
)
from gmaflow.evaluation.metrics import Figures
from gmaflow.inference import FlowEstimator, PaddingKind
from gmaflow.io.paths import PathLike
from gmaflow.model import MODELS
from gmaflow.weights import Checkpoint, describe

_PARTS = ("noc", "occ", "occ-in", "occ-out", "all")
_ERRORS = {
    "clean": ((0.32, 0.29), (5.36, 4.25), (4.45, 3.81), (7.01, 5.03), (0.74, 0.62)),
    "final": ((0.66, 0.59), (7.09, 6.22), (6.21, 5.30), (8.71, 7.90), (1.19, 1.06)),
    "albedo": ((0.34, 0.32), (6.35, 5.58), (5.83, 5.23), (7.29, 6.20), (0.84, 0.76)),
}
TABLE_1 = {name: dict(zip(_PARTS, errors, strict=True)) for name, errors in _ERRORS.items()}
"""By pass and region: the errors of RAFT and of GMA, both trained on C+T+S/K."""

PAPER, ABLATED_ON, SEEN, OTHER_DATA = "paper", "C+T", "C+T+S/K", "other data"


@dataclass(frozen=True)
class TableRow:
    """One network's line."""

    block: str
    """Rows of one block are compared with each other."""
    label: str
    """The method or the component."""
    training: str
    values: tuple[float | None, ...]
    """A figure for each column; None if it was not measured."""
    source: str = PAPER
    """`paper`, or the name of a run."""

    @property
    def description(self) -> str:
        """Its source, with its training data unless the block or the table implies it."""
        redundant = self.training in (self.block, ABLATED_ON)
        return self.source if redundant else f"{self.source} ({self.training})"


FINAL_COMPONENTS = ("alpha", "concatenate", "w/ residual")
"""The rows of table 3 that are the final model itself."""
_FINAL_MODEL = (0.79, 3.14, 2.80, 1.30, 2.74)

TABLE_2 = (
    TableRow("C+T", "RAFT", "C+T", (1.43, 2.71, 5.04, 17.4)),
    TableRow("C+T", "GMA (p only)", "C+T", (1.48, 2.88, 5.01, 16.9)),
    TableRow("C+T", "GMA (+p)", "C+T", (1.33, 2.87, 4.83, 16.6)),
    TableRow("C+T", "GMA", "C+T", (1.30, 2.74, 4.69, 17.1)),
    TableRow(SEEN, "RAFT", SEEN, (0.76, 1.22, 0.63, 1.5)),
    TableRow(SEEN, "GMA (p only)", SEEN, (0.64, 1.08, 0.56, 1.2)),
    TableRow(SEEN, "GMA (+p)", SEEN, (0.65, 1.11, 0.58, 1.3)),
    TableRow(SEEN, "GMA", SEEN, (0.62, 1.06, 0.57, 1.2)),
)
"""Errors on Sintel clean, Sintel final and KITTI 2015, and Fl on KITTI 2015 in percent."""
TABLE_3 = (
    TableRow("scale", "1", ABLATED_ON, (0.82, 3.10, 2.78, 1.35, 2.82)),
    TableRow("scale", "alpha", ABLATED_ON, _FINAL_MODEL),
    TableRow("combination", "replace", ABLATED_ON, (0.88, 3.16, 2.94, 1.41, 2.79)),
    TableRow("combination", "concatenate", ABLATED_ON, _FINAL_MODEL),
    TableRow("residual", "w/o residual", ABLATED_ON, (0.88, 3.13, 2.83, 1.40, 2.75)),
    TableRow("residual", "w/ residual", ABLATED_ON, _FINAL_MODEL),
)
"""Errors on Chairs, Things clean, Things final, Sintel clean and Sintel final."""

METHODS = {
    "RAFT": MODELS["raft"],
    "GMA (p only)": MODELS["gma-p-only"],
    "GMA (+p)": MODELS["gma-p"],
    "GMA": MODELS["gma"],
}
"""The methods of table 2 that gmaflow can train."""
_ABLATED = {
    "1": replace(MODELS["gma"], learned_alpha=False),
    "replace": replace(MODELS["gma"], combination="replace"),
    "w/o residual": replace(MODELS["gma"], residual=False),
}
_STAGES = {"chairs": "C", "things": "C+T", "sintel": SEEN, "kitti": SEEN}
_LEARNED_FROM = ("sintel", "kitti-2015")
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "%_&#${}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)

Measured = Mapping[tuple[str, str], Figures]
"""Figures of whole frames, by data set and pass."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A network to put into the tables."""

    name: str
    checkpoint: Checkpoint

    @property
    def method(self) -> str | None:
        """Its method in table 2; None if it has no row there."""
        config = self.checkpoint.config
        return next((name for name, other in METHODS.items() if other == config), None)

    @property
    def components(self) -> tuple[str, ...]:
        """Its rows in table 3: those of the final model, the one it ablates, or none."""
        if self.checkpoint.config == MODELS["gma"]:
            return FINAL_COMPONENTS
        return tuple(n for n, config in _ABLATED.items() if config == self.checkpoint.config)

    @property
    def training(self) -> str:
        """What it was trained on, as table 2 groups it."""
        stage = self.checkpoint.card.trained_on
        if self.checkpoint.origin == "published":
            # The authors' files have it only in their names, such as gma-things.pth.
            stage = f"stage:{self.checkpoint.card.title.rpartition('-')[2]}"
        return _STAGES.get(stage.removeprefix("stage:"), OTHER_DATA)

    def places(self, table: "PaperTable") -> list[tuple[str, str]]:
        """Return the blocks and labels of its rows in a table."""
        if table.number == 2:
            return [(self.training, self.method)] if self.method else []
        return [(row.block, row.label) for row in table.rows if row.label in self.components]

    @property
    def about(self) -> str:
        about = f"{self.name} is {describe(self.checkpoint.config)}"
        if self.method is None and not self.components:
            return f"{about}, which has no row in either table, so it was not measured"
        other = self.training == OTHER_DATA
        return f"{about}, trained on {self.checkpoint.card.trained_on if other else self.training}"


@dataclass(frozen=True)
class TableColumn:
    """A figure of a data set: its name in the paper in three parts, and where it is found here."""

    over: str
    what: str
    split: str
    dataset: str
    group: str
    figure: Literal["epe", "fl"] = "epe"

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.over, self.what, self.split)))

    def of(self, measured: Measured) -> float | None:
        """Return the figure of a run; None if it was not measured or has no pixels."""
        figures = measured.get((self.dataset, self.group))
        value = math.nan if figures is None else getattr(figures, self.figure)
        return None if math.isnan(value) else value

    def text(self, value: float | None) -> str:
        """Write a figure as the paper does."""
        return "-" if value is None else f"{value:.{1 if self.figure == 'fl' else 2}f}"


_SINTEL = (
    TableColumn("Sintel", "clean", "(train)", "sintel", "clean"),
    TableColumn("Sintel", "final", "(train)", "sintel", "final"),
)
_KITTI = (
    TableColumn("KITTI-15", "AEPE", "(train)", "kitti-2015", "occ"),
    TableColumn("KITTI-15", "Fl-all %", "(train)", "kitti-2015", "occ", "fl"),
)
TABLE_2_COLUMNS = (*_SINTEL, *_KITTI)
_CHAIRS_THINGS = (
    TableColumn("Chairs", "", "(val)", "chairs", "chairs"),
    TableColumn("Things", "clean", "(test)", "things", "clean"),
    TableColumn("Things", "final", "(test)", "things", "final"),
)


class TableCell(NamedTuple):
    """A cell of a table, and how it is emphasized."""

    text: str
    best: bool = False
    underlined: bool = False
    """It names a setting of the final model."""


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper."""

    number: int
    title: str
    labels: tuple[str, ...]
    """Titles of the columns before the figures."""
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    """Those of a block are consecutive."""

    @property
    def header(self) -> list[str]:
        return [*self.labels, *(column.title for column in self.columns)]

    def blocks(self) -> Iterator[list[list[TableCell]]]:
        """Yield the lines of each block; repeated labels are left empty."""
        for block, rows in groupby(self.rows, lambda row: row.block):
            lines: list[list[TableCell]] = []
            label = ""
            for row in rows:
                shown = "" if row.label == label else row.label
                label = row.label
                heads = [
                    TableCell("" if lines else block),
                    TableCell(shown, underlined=shown in FINAL_COMPONENTS),
                    TableCell(row.description),
                ]
                lines.append([*heads[-len(self.labels) :], *self.cells(row)])
            yield lines

    def cells(self, row: TableRow) -> Iterator[TableCell]:
        """Yield each figure, and whether it is the best of its block.

        Figures on data that the network was trained on are in parentheses. The paper's figures and
        measured ones are compared separately, and so are networks trained on different data.
        """

        def rivals(of: TableRow) -> tuple[str, bool, str]:
            return of.block, of.source == PAPER, of.training

        block = [other for other in self.rows if rivals(other) == rivals(row)]
        for index, (value, column) in enumerate(zip(row.values, self.columns, strict=True)):
            text = column.text(value)
            if value is not None and row.training == SEEN and column.dataset in _LEARNED_FROM:
                text = f"({text})"
            figures = [figure for other in block if (figure := other.values[index]) is not None]
            yield TableCell(text, best=len(figures) > 1 and value == min(figures))


TABLES = (
    PaperTable(
        2,
        "Variants on Sintel and KITTI 2015",
        ("Trained on", "Method", ""),
        TABLE_2_COLUMNS,
        TABLE_2,
    ),
    PaperTable(3, "Ablations", ("Component", ""), (*_CHAIRS_THINGS, *_SINTEL), TABLE_3),
)


def make_tables(
    runs: Sequence[Run], measured: Mapping[str, Measured], trials: Sequence[ExampleSet]
) -> tuple[PaperTable, ...]:
    """Put the runs into tables 2 and 3; a table without any run is left out."""
    extra = tuple(
        TableColumn("Scenes", group, "", SCENES, group)
        for data in trials
        if data.name == SCENES
        for group in dict.fromkeys(example.group for example in data.examples)
    )
    tables = []
    for table in TABLES:
        columns = (*table.columns, *extra)
        rows = [replace(row, values=row.values + (None,) * len(extra)) for row in table.rows]
        for run in runs:
            rows += [
                TableRow(
                    block,
                    label,
                    run.training,
                    tuple(column.of(measured[run.name]) for column in columns),
                    source=run.name,
                )
                for block, label in run.places(table)
            ]
        if len(rows) > len(table.rows):
            # Below the paper's row of the same label; other training data in blocks of their own.
            blocks = list(dict.fromkeys(row.block for row in rows))
            labels = list(dict.fromkeys(row.label for row in rows))
            rows.sort(key=lambda row: (blocks.index(row.block), labels.index(row.label)))
            tables.append(replace(table, columns=columns, rows=tuple(rows)))
    return tuple(tables)


TRIALS = {
    "sintel": ("clean", "final"),
    "kitti-2015": ("occ",),
    "chairs": ("",),
    "things": ("clean", "final"),
}
"""The data sets that the tables have columns for, and the passes of each."""


def open_trials(
    roots: Mapping[str, PathLike], *, limit: int | None = None
) -> tuple[list[ExampleSet], list[str]]:
    """Open those data sets of the tables that are present; also note which are incomplete.

    Roots that are not given are looked up in the environment and the config file. With `limit`, at
    most so many pairs of each pass are used, evenly spaced.
    """
    opened, notes = [], []
    for name in TRIALS:
        root, info = roots.get(name), dataset_info(name)
        if look_up_root(info, root) is None:
            notes.append(f"{info.title} is not set up; see `gmaflow data list`")
            continue
        try:
            data, note = open_trial(name, root)
        except DatasetError as err:
            if root is not None:
                raise
            notes.append(f"{info.title} is left out: {err}")
            continue
        data = data if limit is None else thin(data, limit)
        notes += filter(None, [note or incomplete(data)])
        opened.append(data)
    return opened, notes


def open_trial(name: str, root: PathLike | None) -> tuple[ExampleSet, str]:
    """Open the paper's pairs; if those of Things are unknown, all its test pairs and a note."""
    try:
        return open_examples(name, root, split=PAPER_SPLITS[name], passes=TRIALS[name]), ""
    except DatasetError as err:
        if name != "things":
            raise
        data = open_examples(name, root, split="test", passes=TRIALS[name])
        return data, f"{data.title}: its figures do not compare with the paper's, since {err}"


def measure_runs(
    runs: Sequence[Run],
    trials: Sequence[ExampleSet],
    folder: Path,
    *,
    open_estimator: Callable[[Checkpoint, PaddingKind], FlowEstimator],
    progress: Callable[[PairResult], None] = lambda _result: None,
) -> dict[str, Measured]:
    """Evaluate each run that has a row on each set; results are stored as `evaluate` does."""
    listed = [run for run in runs if run.method or run.components]
    if not listed:
        raise FlowError(f"no run fits the tables: {'; '.join(run.about for run in runs)}")
    if not trials:
        raise FlowError(
            "none of the tables' data sets was found; give the folder of one (--sintel FOLDER), or "
            "use rendered scenes (--scenes 50)"
        )
    measured: dict[str, Measured] = {}
    for run in listed:
        figures: dict[tuple[str, str], Figures] = {}
        for data in trials:
            evaluation = evaluate(
                open_estimator(run.checkpoint, published_padding(data.name)),
                data,
                folder / run.name / data.name,
                weights=run.name,
                progress=progress,
            )
            for (group, _), sums in evaluation.summary.totals.items():
                figures[data.name, group] = sums.figures(evaluation.averaging)["all"]
        measured[run.name] = figures
    return measured


def as_markdown(tables: Sequence[PaperTable], notes: Sequence[str]) -> str:
    """Write the tables as Markdown; the best of a block is bold, the final model underlined."""

    def mark(cell: TableCell) -> str:
        text = cell.text.replace("|", r"\|")
        text = f"<u>{text}</u>" if cell.underlined else text
        return f"**{text}**" if cell.best else text

    parts = []
    for table in tables:
        rules = ["---"] * len(table.labels) + ["---:"] * len(table.columns)
        rows = [[mark(cell) for cell in line] for block in table.blocks() for line in block]
        body = "\n".join(f"| {' | '.join(line)} |" for line in [table.header, rules, *rows])
        parts.append(f"## Table {table.number}: {table.title}\n\n{body}\n")
    return "\n".join(parts) + "".join(f"\n- {note}" for note in notes) + "\n"


def as_latex(tables: Sequence[PaperTable], notes: Sequence[str]) -> str:
    """Write the tables as LaTeX; they need the package booktabs."""

    def mark(cell: TableCell) -> str:
        text = r"$\alpha$" if cell.text == "alpha" else cell.text.translate(_LATEX)
        text = rf"\underline{{{text}}}" if cell.underlined else text
        return rf"\textbf{{{text}}}" if cell.best else text

    parts = [f"% {note}" for note in notes]
    for table in tables:
        kinds = "l" * len(table.labels) + "r" * len(table.columns)
        parts += [
            rf"% Table {table.number}: {table.title}",
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            " & ".join(title.translate(_LATEX) for title in table.header) + r" \\",
        ]
        for block in table.blocks():
            parts += [r"\midrule", *(" & ".join(map(mark, line)) + r" \\" for line in block)]
        parts += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(parts) + "\n"


def as_plain(tables: Sequence[PaperTable], notes: Sequence[str]) -> dict[str, object]:
    """Return the tables as plain values; null where there is no figure."""
    return {
        "tables": [
            {
                "number": table.number,
                "title": table.title,
                "rows": [
                    {
                        "block": row.block,
                        "label": row.label,
                        "source": row.source,
                        "figures": {
                            column.title: value
                            for column, value in zip(table.columns, row.values, strict=True)
                        },
                    }
                    for row in table.rows
                ],
            }
            for table in tables
        ],
        "notes": list(notes),
    }
