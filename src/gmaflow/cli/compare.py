"""`gmaflow compare`: compares several networks on the same pairs."""

from dataclasses import dataclass, field
from itertools import chain, count
from typing import TYPE_CHECKING, Annotated

import tyro

from gmaflow.cli.evaluate import Data, print_notes, print_table
from gmaflow.cli.options import (
    Json,
    Models,
    OutputFolder,
    PaddingChoice,
    Place,
    PlaceOptions,
    parse,
    step_bar,
)
from gmaflow.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gmaflow.evaluation import Comparison
    from gmaflow.evaluation.comparing import Line
    from gmaflow.evaluation.pages import Table


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Evaluate several networks on the same pairs and compare them with the first.

    Prints, for each region of the image, how much smaller the error is and its 95 % confidence
    interval, as in the paper's table 1. Writes comparison.html and comparison.json to the output
    folder, and the files of `gmaflow evaluate` to a subfolder for each network. An interrupted run
    resumes.

    Examples:
      gmaflow compare raft-things.pth gma-things.pth --data sintel --passes clean final -o out
      gmaflow compare a.safetensors b.safetensors --data scenes --count 100 -o out
      gmaflow compare gma gma-affine --data scenes --preset deep-mix --by depth -o out
    """

    weights: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE FILE")]
    """Weights of two or more networks: files, folders of runs, or names of shipped weights."""
    data: Data
    output: OutputFolder
    models: Models = ()
    warm_start: bool = False
    """Compare sequences a second time, each pair initialized with the previous flow."""
    show: int = 3
    """How many of the most improved and of the most worsened pairs to show."""
    pairs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SCENE/FRAME")] = ()
    """Show these pairs instead."""
    iters: int = 12
    """Refinement steps."""
    place: Place = field(default_factory=PlaceOptions)
    padding: PaddingChoice = "auto"
    json: Json = False


def main(args: list[str]) -> None:
    options = parse(CompareOptions, args, verb="compare")
    from gmaflow.evaluation import compare, write_comparison
    from gmaflow.evaluation.comparing import COMPARISON
    from gmaflow.evaluation.metrics import SHOWN_BY

    names = unique_names(options.weights)
    if len(names) < 2:
        raise FlowError("got one network; give the weights of two or more to compare")
    models = models_of(options.models, options.weights)
    if options.show < 0:
        raise FlowError(f"--show is {options.show}; give 0 or more")
    data = options.data.open(options.place.device)
    data.find(options.pairs)  # before hours of work, not after
    estimators = {
        name: options.place.load(
            file,
            model=model,
            iters=options.iters,
            padding=options.data.padding(options.padding),
        )
        for name, file, model in zip(names, options.weights, models, strict=True)
    }
    rounds = 2 if options.warm_start and data.has_sequences else 1
    with step_bar(
        "compare", rounds * len(names) * len(data.examples), quiet=options.place.quiet
    ) as step:
        comparison = compare(
            estimators,
            data,
            options.output,
            files=dict(zip(names, options.weights, strict=True)),
            warm_start=options.warm_start,
            progress=lambda result: step(result.example.title),
        )
    page = write_comparison(comparison, options.output, show=options.show, pairs=options.pairs)
    if options.json:
        print((options.output / COMPARISON).read_text(), end="")
        return
    lines = [line for line in comparison.lines if line.region in SHOWN_BY[options.data.by]]
    print_table(comparison_table(comparison, lines), title=f"{data.title}: mean error, px")
    notes = list(comparison.notes)
    if any(improvement.certain for line in lines for improvement in line.improvements):
        notes.append("* the interval excludes 0")
    print_notes(notes, page)


def unique_names(weights: tuple[str, ...]) -> list[str]:
    """Name networks after their files or runs; a number makes duplicate names unique."""
    from gmaflow.weights import name_weights

    names: list[str] = []
    for name in map(name_weights, weights):
        numbered = (f"{name}-{number}" for number in count(2))
        names.append(next(one for one in chain([name], numbered) if one not in names))
    return names


def models_of(models: tuple[str, ...], weights: tuple[str, ...]) -> list[str | None]:
    """Return the model given for each network, None if no models are given."""
    if models and len(models) != len(weights):
        raise FlowError(f"got {len(models)} models for {len(weights)} files; give one for each")
    return list(models) or [None] * len(weights)


def comparison_table(comparison: "Comparison", lines: "Sequence[Line]") -> "Table":
    """Return errors and improvements by pass and region."""
    from gmaflow.evaluation.pages import Table, comparison_cells, comparison_header

    rows, last = [], ""
    for line in lines:
        title = comparison.title(line)
        rows.append(("" if title == last else title, line.region, *comparison_cells(line)))
        last = title
    return Table(("pass", "region", *comparison_header(comparison)), rows, text_columns=(0, 1))
