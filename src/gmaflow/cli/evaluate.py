"""`gmaflow evaluate`: measures how good the flow is."""

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gmaflow.cli.options import (
    CONTINUES,
    Estimator,
    EstimatorOptions,
    Ignore,
    Json,
    OutputFolder,
    PaddingChoice,
    parse,
    progress_bar,
    step_bar,
)
from gmaflow.errors import DatasetError, FlowError, counted, printable, suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from gmaflow.data import FlowDataset
    from gmaflow.evaluation import ExampleSet
    from gmaflow.evaluation.pages import Table

_WIDTH_OF_FILES = 200


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Which pairs are evaluated."""

    data: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """sintel, kitti-2015, chairs ... (`gmaflow data list`), folder for your own, or scenes."""
    root: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """The data set's folder; by default from the environment or the config file."""
    split: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """training, validation ...; by default the data set's first."""
    passes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")] = ()
    """clean, final, albedo; occ or noc for KITTI; by default the first."""
    limit: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Evaluate at most this many evenly spaced pairs of each pass; such figures do not
    compare with those of all pairs."""
    preset: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Kind of rendered scenes, for --data scenes; mix by default."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Seed of rendered scenes; 0 by default."""
    count: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Number of rendered scenes; 20 by default."""
    size: tuple[int, int] | None = None
    """Height and width of rendered scenes; 368x496 by default."""
    textures: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Images for rendered scenes, of which only the tenth held out from training is used."""
    ignore: Ignore = None
    """Pixels that do not count, white in a mask: an image for all pairs, or a folder or video with
    a mask for each evaluated pair of a pass."""
    by: Literal["region", "depth"] = "region"
    """Print the usual regions, or hidden pixels by depth: their distance to visible ones."""

    def check(self) -> None:
        """Refuse an unknown data set, and options that would have no effect."""
        from gmaflow.data import DATASETS
        from gmaflow.evaluation import SCENES

        names = (*DATASETS, SCENES)
        if self.data not in names:
            folder = self.data.removeprefix("folder:")
            hint = suggest(self.data, names)
            if folder and Path(folder).is_dir():
                hint = f"did you mean --data folder --root {folder}?"
            raise DatasetError(f"unknown data set {self.data!r}; {hint}")
        of_files = {"--root": self.root, "--split": self.split}
        of_scenes = {
            "--count": self.count,
            "--preset": self.preset,
            "--seed": self.seed,
            "--size": self.size,
            "--textures": self.textures,
        }
        rendered = self.data == SCENES
        for option, value in (of_files if rendered else of_scenes).items():
            if value is not None:
                kind = "data sets of files" if rendered else "rendered scenes, --data scenes"
                instead = "; use --limit for fewer pairs" if option == "--count" else ""
                raise DatasetError(f"{option} is for {kind}, not for {self.data}{instead}")

    def open(self, device: str = "auto") -> "ExampleSet":
        """List the pairs; scenes are rendered on the device."""
        from gmaflow.evaluation import SCENES, ignoring, open_examples, render_examples, thin

        self.check()
        if self.data == SCENES:
            examples = render_examples(
                self.preset or "mix",
                seed=self.seed or 0,
                count=20 if self.count is None else self.count,
                size=self.size or (368, 496),
                passes=self.passes,
                textures=self.textures,
                device=device,
            )
        else:
            examples = open_examples(self.data, self.root, split=self.split, passes=self.passes)
        examples = examples if self.limit is None else thin(examples, self.limit)
        return examples if self.ignore is None else ignoring(examples, self.ignore)

    def open_footage(self) -> "FlowDataset":
        """List pairs of frames, with or without ground truth."""
        from gmaflow.data import FlowDataset, open_dataset
        from gmaflow.evaluation import SCENES, spread

        if self.data == SCENES:
            raise FlowError("rendered scenes have ground truth; remove --unsupervised")
        self.check()
        dataset = open_dataset(self.data, self.root, split=self.split, passes=self.passes or None)
        if self.limit is None:
            return dataset
        places = spread(len(dataset), self.limit)
        return FlowDataset(dataset.name, tuple(dataset[place] for place in places))

    def padding(self, chosen: Literal["auto", "sintel", "kitti"]) -> Literal["sintel", "kitti"]:
        """Return how images are padded; `auto` is what was published for the data set."""
        from gmaflow.evaluation import published_padding

        return published_padding(self.data) if chosen == "auto" else chosen


Data = Annotated[DataOptions, tyro.conf.OmitArgPrefixes]


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Evaluate a network on pairs with ground truth.

    Writes report.html, results.json and results.csv to the output folder. The results of each pair
    are stored there: an interrupted run resumes, and a repeated run computes nothing.

    Examples:
      gmaflow evaluate --data sintel --root /data/MPI-Sintel --passes clean final -o sintel
      gmaflow evaluate --data sintel --limit 20 -o trial
      gmaflow evaluate --data kitti-2015 --weights gma-things.pth -o kitti
      gmaflow evaluate --data scenes --preset mix --count 50 -o scenes
      gmaflow evaluate --data folder --root frames/ --unsupervised -o own
    """

    data: Data
    output: OutputFolder
    warm_start: bool = False
    """Evaluate sequences a second time, each pair initialized with the previous flow."""
    unsupervised: bool = False
    """Evaluate without ground truth, from the frames themselves."""
    padding: PaddingChoice = "auto"
    json: Json = False
    estimator: Estimator = field(default_factory=EstimatorOptions)


def main(args: list[str]) -> None:
    options = parse(EvaluateOptions, args, verb="evaluate")
    if options.unsupervised:
        evaluate_footage(options)
        return
    from gmaflow.evaluation import evaluate, write_report
    from gmaflow.evaluation.evaluating import JSON
    from gmaflow.evaluation.metrics import SHOWN_BY
    from gmaflow.evaluation.pages import overall_table, region_table

    data = options.data.open(options.estimator.device)
    estimator = options.estimator.make(padding=options.data.padding(options.padding))
    rounds = 2 if options.warm_start and data.has_sequences else 1
    with step_bar("evaluate", rounds * len(data.examples), quiet=options.estimator.quiet) as step:
        evaluation = evaluate(
            estimator,
            data,
            options.output,
            weights=options.estimator.weights or "shipped",
            warm_start=options.warm_start,
            progress=lambda result: step(result.example.title),
        )
    page = write_report(evaluation, estimator, options.output)
    if options.json:
        print((options.output / JSON).read_text(), end="")
        return
    print_table(overall_table(evaluation), title=f"{data.title}: {evaluation.about.model}")
    regions = region_table(evaluation, SHOWN_BY[options.data.by])
    if len(regions.header) > 5:  # the last two columns would squeeze the others
        regions = replace(
            regions, header=regions.header[:-2], rows=[row[:-2] for row in regions.rows]
        )
    print_table(regions, title="EPE by region, px")
    print_notes(evaluation.notes, page)


def make_console() -> "Console":
    """Return rich's console; files and pipes are wide, so that nothing in them is cut."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, _WIDTH_OF_FILES))


def print_table(table: "Table", *, title: str) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    # Names of files are not trusted: no markup, no control characters.
    shown = RichTable(title=Text(printable(title), "table.title"), title_justify="left")
    for i, name in enumerate(table.header):
        last = i == len(table.header) - 1
        is_text = i in table.text_columns
        shown.add_column(
            name, justify="left" if is_text else "right", style="dim" if is_text and last else ""
        )
    for row in table.rows:
        shown.add_row(*(Text(printable(str(getattr(cell, "text", cell)))) for cell in row))
    make_console().print(shown)


def print_notes(notes: "Sequence[str]", page: Path) -> None:
    """Print the notes of a result, and where its page is."""
    console = make_console()
    for note in notes:
        console.print(printable(f"note: {note}"), highlight=False, markup=False)
    console.print(f"wrote {page}", highlight=False, markup=False, soft_wrap=True)


def evaluate_footage(options: EvaluateOptions) -> None:
    """Evaluate without ground truth."""
    from gmaflow.evaluation.unsupervised import (
        as_json,
        check_footage,
        mean_table,
        write_unsupervised,
    )

    if options.warm_start:
        raise FlowError("--warm-start needs ground truth; remove it or --unsupervised")
    dataset = options.data.open_footage()
    estimator = options.estimator.make(padding=options.data.padding(options.padding))
    with progress_bar(
        "evaluate", quiet=options.estimator.quiet, on_interrupt=CONTINUES
    ) as progress:
        checked = check_footage(
            estimator, dataset, options.output, ignore=options.data.ignore, progress=progress
        )
    title = dataset.name
    if options.data.data == "folder":  # whose pairs may be in several subfolders
        title = Path(os.path.commonpath([pair.image1.parent for pair in dataset])).name
    page = write_unsupervised(options.output, title, checked, estimator)
    figures = as_json(checked)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print_table(mean_table(checked), title=f"{title}: {counted(len(dataset), 'pair')}")
    static = ["most of the image does not change: the camera seems to be static"]
    print_notes(static if figures["static_camera"] else [], page)
