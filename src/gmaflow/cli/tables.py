"""`gmaflow tables`: puts runs into the paper's tables of variants and ablations."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gmaflow.cli.compare import models_of, unique_names
from gmaflow.cli.evaluate import make_console, print_notes
from gmaflow.cli.options import Models, OutputFolder, Place, PlaceOptions, parse, step_bar
from gmaflow.errors import FlowError, counted

if TYPE_CHECKING:
    from rich.table import Table

    from gmaflow.evaluation import ExampleSet
    from gmaflow.evaluation.paper_tables import PaperTable, Run

Root = Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")]


@dataclass(frozen=True, kw_only=True)
class TablesOptions:
    """Put networks into the paper's tables 2 (variants) and 3 (ablations), next to its figures.

    The row of a network follows from its weights: the kind of attention, the ablated component, and
    the training data. Writes tables.md, tables.tex and tables.json to the output folder, and the
    results of each network on each data set, so that an interrupted run resumes.

    Examples:
      gmaflow tables runs/raft runs/gma runs/gma-p -o tables --sintel /data/MPI-Sintel
      gmaflow tables runs/* -o tables --scenes 50
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folders of training runs, weight files, or names of shipped weights."""
    output: OutputFolder
    sintel: Root = None
    """MPI Sintel; by default, like the next three, from the environment or the config file."""
    kitti: Root = None
    """KITTI 2015."""
    chairs: Root = None
    """FlyingChairs."""
    things: Root = None
    """FlyingThings3D."""
    scenes: int = 0
    """Add columns for this many rendered scenes, which need no files."""
    size: tuple[int, int] = (368, 496)
    """Height and width of rendered scenes."""
    limit: int | None = None
    """Evaluate at most this many evenly spaced pairs of each pass; not comparable to the paper."""
    models: Models = ()
    iters: int = 12
    """Refinement steps."""
    place: Place = field(default_factory=PlaceOptions)


def main(args: list[str]) -> None:
    options = parse(TablesOptions, args, verb="tables")
    from gmaflow.evaluation.paper_tables import make_tables, measure_runs

    if not options.runs:
        raise FlowError("got no runs; give folders of training runs, or weight files")
    runs = open_runs(options)
    trials, notes = open_data(options)
    pairs = len(runs) * sum(len(data.examples) for data in trials)
    with step_bar("tables", pairs, quiet=options.place.quiet) as step:
        measured = measure_runs(
            runs,
            trials,
            options.output,
            open_estimator=lambda checkpoint, padding: options.place.load(
                checkpoint, iters=options.iters, padding=padding
            ),
            progress=lambda result: step(result.example.title),
        )
    tables = make_tables(runs, measured, trials)
    notes += [run.about for run in runs]
    notes += [note for data in trials for note in data.notes]
    notes.append(
        f"{counted(options.iters, 'iteration')}; the lowest error of each block is in bold"
    )
    write(options.output, tables, notes)
    console = make_console()
    for table in tables:
        console.print(as_rich(table))
    print_notes(notes, options.output / "tables.md, .tex and .json")


def open_runs(options: TablesOptions) -> "list[Run]":
    from gmaflow.evaluation.paper_tables import Run
    from gmaflow.weights import find_checkpoint

    names, models = unique_names(options.runs), models_of(options.models, options.runs)
    return [
        Run(name=name, checkpoint=find_checkpoint(weights, model=model))
        for name, weights, model in zip(names, options.runs, models, strict=True)
    ]


def open_data(options: TablesOptions) -> "tuple[list[ExampleSet], list[str]]":
    """Open the data sets of the columns, and note which are missing."""
    from gmaflow.evaluation import render_examples
    from gmaflow.evaluation.paper_tables import open_trials

    configured = {
        "sintel": options.sintel,
        "kitti-2015": options.kitti,
        "chairs": options.chairs,
        "things": options.things,
    }
    roots = {name: root for name, root in configured.items() if root is not None}
    trials, notes = open_trials(roots, limit=options.limit)
    if options.scenes:
        trials.append(
            render_examples(
                "mix",
                seed=0,
                count=options.scenes,
                size=options.size,
                passes=("clean", "final"),
                device=options.place.device,
            )
        )
    return trials, notes


def write(folder: Path, tables: "tuple[PaperTable, ...]", notes: list[str]) -> None:
    from gmaflow.evaluation.paper_tables import as_latex, as_markdown, as_plain
    from gmaflow.io.paths import write_text

    texts = {
        "tables.md": as_markdown(tables, notes),
        "tables.tex": as_latex(tables, notes),
        "tables.json": json.dumps(as_plain(tables, notes), indent=2) + "\n",
    }
    for name, text in texts.items():
        write_text(folder / name, text)


def as_rich(table: "PaperTable") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = f"Table {table.number}: {table.title}"
    # Without vertical lines and padding the widest table fits a terminal of 80 columns.
    shown = Table(title=title, title_justify="left", box=box.HORIZONTALS, padding=0)
    for label in table.labels:
        shown.add_column(label, no_wrap=True)
    for column in table.columns:
        shown.add_column(f"{column.over}\n{column.what}", justify="right")
    for block in table.blocks():
        for cells in block:
            styles = ("bold" if c.best else "underline" if c.underlined else "" for c in cells)
            shown.add_row(*(Text(c.text, style) for c, style in zip(cells, styles, strict=True)))
        shown.add_section()
    return shown
