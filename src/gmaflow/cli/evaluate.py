"""`gmaflow evaluate`: how good the flow is, on data whose true motion is known."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gmaflow.cli.options import Estimator, EstimatorOptions, parse
from gmaflow.cli.progress import step_bar
from gmaflow.cli.scenes import parse_size
from gmaflow.errors import DatasetError, suggest

if TYPE_CHECKING:
    from rich.table import Table

    from gmaflow.evaluation import Evaluation, ExampleSet


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Which pairs are judged."""

    data: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """sintel, kitti-2015, chairs ... (`gmaflow data list`), folder for your own, or scenes."""
    root: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where the data set lies; by default what the environment or the config file says."""
    split: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """training, validation ...; by default the data set's first."""
    passes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")] = ()
    """clean, final, albedo; occ or noc for KITTI; by default the first."""
    limit: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Judge at most so many pairs of each pass, spread over it; not comparable to the whole."""
    preset: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Kind of rendered scenes, for --data scenes; mix by default."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Which rendered scenes; 0 by default."""
    count: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """How many rendered scenes; 20 by default."""
    size: Annotated[str | None, tyro.conf.arg(metavar="HxW")] = None
    """Height and width of rendered scenes; 368x496 by default."""

    def check(self) -> None:
        """Refuse a data set that there is none of, and options that would change nothing.

        Raises:
            DatasetError: There is such a thing.
        """
        from gmaflow.data import DATASETS
        from gmaflow.evaluation import SCENES

        known = (*DATASETS, SCENES)
        if self.data not in known:
            raise DatasetError(f"there is no data set {self.data!r}; {suggest(self.data, known)}")
        of_files = {"--root": self.root, "--split": self.split}
        of_scenes = {
            "--count": self.count,
            "--preset": self.preset,
            "--seed": self.seed,
            "--size": self.size,
        }
        rendered = self.data == SCENES
        for option, value in (of_files if rendered else of_scenes).items():
            if value is not None:
                wanted = "data sets of files" if rendered else "rendered scenes, --data scenes"
                instead = "; for fewer pairs there is --limit" if option == "--count" else ""
                raise DatasetError(f"{option} is for {wanted}, not for {self.data}{instead}")

    def open(self) -> "ExampleSet":
        """List the pairs."""
        from gmaflow.evaluation import SCENES, open_examples, render_examples, thin

        self.check()
        if self.data == SCENES:
            found = render_examples(
                self.preset or "mix",
                seed=self.seed or 0,
                count=20 if self.count is None else self.count,
                size=parse_size(self.size or "368x496"),
                passes=self.passes,
            )
        else:
            found = open_examples(self.data, self.root, split=self.split, passes=self.passes)
        return found if self.limit is None else thin(found, self.limit)

    def padding(self, chosen: Literal["auto", "sintel", "kitti"]) -> Literal["sintel", "kitti"]:
        """Return how images are padded; `auto` is as was published for the data set."""
        from gmaflow.evaluation import published_padding

        return published_padding(self.data) if chosen == "auto" else chosen


Data = Annotated[DataOptions, tyro.conf.OmitArgPrefixes]


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Judge a network on pairs whose true motion is known.

    Leaves report.html, results.json and results.csv in the output folder. Results are kept there
    pair by pair: an interrupted run goes on where it was, and a repeated one computes nothing.

    Examples:
      gmaflow evaluate --data sintel --root /data/MPI-Sintel --passes clean final -o sintel
      gmaflow evaluate --data sintel --limit 20 -o trial
      gmaflow evaluate --data kitti-2015 --weights gma-things.pth -o kitti
      gmaflow evaluate --data scenes --preset mix --count 50 -o scenes
      gmaflow evaluate --data folder --root frames/ --unsupervised -o own
    """

    data: Data
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]
    """Where the results go."""
    warm_start: bool = False
    """Judge sequences a second time, each pair begun from the flow of the one before."""
    unsupervised: bool = False
    """Judge by the frames alone, for footage whose true motion nobody knows."""
    padding: Literal["auto", "sintel", "kitti"] = "auto"
    """Where images grow to multiples of 8: as published for Sintel or for KITTI."""
    estimator: Estimator = field(default_factory=EstimatorOptions)


def main(args: list[str]) -> None:
    """Run the verb."""
    from rich.console import Console

    options = parse(EvaluateOptions, args, verb="evaluate")
    if options.unsupervised:
        from gmaflow.cli.unsupervised import judge_by_frames

        judge_by_frames(options)
        return
    from gmaflow.evaluation import REPORT, evaluate, write_report

    data = options.data.open()
    estimator = options.estimator.make(padding=options.data.padding(options.padding))
    rounds = 2 if options.warm_start and data.has_sequences else 1
    with step_bar("evaluate", rounds * len(data.examples)) as step:
        evaluation = evaluate(
            estimator,
            data,
            options.output,
            weights=options.estimator.weights or "shipped",
            warm_start=options.warm_start,
            progress=lambda judged: step(judged.example.title),
        )
    write_report(evaluation, estimator, options.output)
    console = Console()
    for table in (main_table(evaluation), region_table(evaluation)):
        console.print(table)
    for note in evaluation.notes:
        console.print(f"note: {note}", highlight=False, markup=False)
    console.print(f"wrote {options.output / REPORT}", highlight=False, markup=False, soft_wrap=True)


def main_table(evaluation: "Evaluation") -> "Table":
    """Return the overall figures of each pass, for the terminal."""
    from rich.table import Table

    from gmaflow.evaluation import written

    table = Table(title=f"{evaluation.data.title}: {evaluation.about.model}", title_justify="left")
    for name in ("", "pairs", "EPE", "1px %", "3px %", "5px %", "Fl %"):
        table.add_column(name, justify="right" if name else "left")
    for title, regions in evaluation.columns():
        found = regions["all"]
        shares = (found.px1, found.px3, found.px5, found.fl)
        cells = (written(found.epe), *(written(share, 2) for share in shares))
        table.add_row(title, str(found.images), *cells)
    return table


def region_table(evaluation: "Evaluation") -> "Table":
    """Return the end-point error of each region, for the terminal."""
    from rich.table import Table

    from gmaflow.evaluation import REGIONS, written

    columns = list(evaluation.columns())
    # Beside many columns the meanings would be squeezed to nothing; the report has them.
    explained = len(columns) <= 2
    table = Table("EPE by region")
    for title, _ in columns:
        table.add_column(title, justify="right")
    if explained:
        table.add_column("", style="dim")
    for region, meaning in REGIONS.items():
        if any(region in regions for _, regions in columns):
            errors = (
                written(regions[region].epe) if region in regions else "" for _, regions in columns
            )
            table.add_row(region, *errors, *([meaning] if explained else []))
    return table
