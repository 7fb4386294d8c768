"""`gmaflow compare`: several networks on the same pairs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gmaflow.cli.evaluate import Data
from gmaflow.cli.options import Place, PlaceOptions, parse
from gmaflow.cli.progress import step_bar
from gmaflow.errors import FlowError

if TYPE_CHECKING:
    from rich.table import Table

    from gmaflow.evaluation import Comparison


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Judge several networks on the same pairs; the others are compared with the first.

    Prints, for each region of the image, how much smaller the error is and how sure that is, as in
    the paper's table 1. Leaves comparison.html and comparison.json in the output folder, and what
    `gmaflow evaluate` leaves in a folder for each network. An interrupted run goes on where it was.

    Examples:
      gmaflow compare raft-things.pth gma-things.pth --data sintel --passes clean final -o out
      gmaflow compare a.safetensors b.safetensors --data scenes --count 100 -o out
    """

    weights: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE FILE")]
    """Weights of two or more networks."""
    data: Data
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]
    """Where the results go."""
    models: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")] = ()
    """What each network is, where the files do not say: gma, gma-p, gma-p-only ..."""
    warm_start: bool = False
    """Compare sequences a second time, each pair begun from the flow of the one before."""
    show: int = 3
    """How many of the most improved pairs to show."""
    pairs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SCENE/FRAME")] = ()
    """Show these pairs instead."""
    iters: int = 12
    """Refinements."""
    place: Place = field(default_factory=PlaceOptions)
    padding: Literal["auto", "sintel", "kitti"] = "auto"
    """Where images grow to multiples of 8: as published for Sintel or for KITTI."""


def main(args: list[str]) -> None:
    """Run the verb."""
    from rich.console import Console

    options = parse(CompareOptions, args, verb="compare")
    from gmaflow.evaluation import COMPARISON_PAGE, compare, write_comparison

    names = unique_names(options.weights)
    if len(names) < 2:
        raise FlowError("one network cannot be compared; give the weights of two or more")
    models = models_of(options.models, options.weights)
    data = options.data.open()
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
    with step_bar("compare", rounds * len(names) * len(data.examples)) as step:
        comparison = compare(
            estimators,
            data,
            options.output,
            files=dict(zip(names, options.weights, strict=True)),
            warm_start=options.warm_start,
            progress=lambda _name, judged: step(judged.example.title),
        )
    write_comparison(comparison, options.output, show=options.show, pairs=options.pairs)
    console = Console()
    console.print(comparison_table(comparison))
    for note in comparison.notes:
        console.print(f"note: {note}", highlight=False, markup=False)
    if any(found.certain for line in comparison.lines for found in line.improvements):
        console.print("[dim]* the interval leaves no doubt about the sign[/dim]")
    console.print(
        f"wrote {options.output / COMPARISON_PAGE}", highlight=False, markup=False, soft_wrap=True
    )


def unique_names(weights: tuple[str, ...]) -> list[str]:
    """Name networks after their files or runs, with a number where two would have one name."""
    names: list[str] = []
    for file in weights:
        path, number = Path(file), 1
        stem = path.resolve().name if path.is_dir() else path.stem
        name = stem
        while name in names:
            number += 1
            name = f"{stem}-{number}"
        names.append(name)
    return names


def models_of(models: tuple[str, ...], weights: tuple[str, ...]) -> list[str | None]:
    """Return what each network is said to be, None where nothing is said.

    Raises:
        FlowError: some are named, but not one for each.
    """
    if models and len(models) != len(weights):
        raise FlowError(
            f"{len(models)} models are named for {len(weights)} files; give one for each"
        )
    return list(models) or [None] * len(weights)


def comparison_table(comparison: "Comparison") -> "Table":
    """Return errors and improvements by pass and region, for the terminal."""
    from rich.table import Table

    from gmaflow.evaluation import header_of, row_of

    table = Table(title=f"{comparison.data.title}: mean error, px", title_justify="left")
    table.add_column("pass")
    table.add_column("region")
    for title in header_of(comparison):
        table.add_column(title, justify="right")
    last = ""
    for line in comparison.lines:
        title = comparison.title(line)
        if last and title != last:
            table.add_section()
        table.add_row("" if title == last else title, line.region, *row_of(line))
        last = title
    return table
