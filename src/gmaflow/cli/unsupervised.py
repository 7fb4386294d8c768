"""`gmaflow evaluate --unsupervised`: footage judged by its own frames."""

import csv
import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.cli.progress import GOES_ON, progress_bar
from gmaflow.errors import FlowError, counted

if TYPE_CHECKING:
    from gmaflow.cli.evaluate import EvaluateOptions

JSON, CSV = "unsupervised.json", "unsupervised.csv"


def judge_by_frames(options: "EvaluateOptions") -> None:
    """Judge pairs without their truth; print a table and write a page, JSON and CSV."""
    from rich.console import Console
    from rich.table import Table

    from gmaflow.data import FlowDataset, open_dataset
    from gmaflow.evaluation import spread, written
    from gmaflow.evaluation.unsupervised import NAMES, average, judge_footage
    from gmaflow.evaluation.unsupervised_report import MEANING, spoken, write_page
    from gmaflow.io import atomic_write

    chosen = options.data
    if chosen.data == "scenes":
        raise FlowError("rendered scenes have a truth; leave --unsupervised out")
    if options.warm_start:
        raise FlowError("--warm-start is judged by a truth; leave it or --unsupervised out")
    chosen.check()
    dataset = open_dataset(
        chosen.data, chosen.root, split=chosen.split, passes=chosen.passes or None
    )
    if chosen.limit is not None:
        places = spread(len(dataset), chosen.limit)
        dataset = FlowDataset(dataset.name, tuple(dataset[place] for place in places))
    estimator = options.estimator.make(padding=chosen.padding(options.padding))
    with progress_bar("judge", kept=GOES_ON) as progress:
        judged = judge_footage(estimator, dataset, options.output, progress=progress)
    title = dataset.name
    if chosen.data == "folder":  # whose pairs may lie in several folders
        title = Path(os.path.commonpath([pair.image1.parent for pair in dataset])).name
    mean = average(one.found for one in judged)
    with atomic_write(options.output / CSV) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["scene", "frame", *NAMES])
        for one in judged:
            numbers = ("" if math.isnan(n) else f"{n:.6g}" for n in asdict(one.found).values())
            writer.writerow([one.pair.scene, one.pair.frame, *numbers])
    plain = {name: value if math.isfinite(value) else None for name, value in asdict(mean).items()}
    about = {"data": dataset.name, "pairs": len(dataset), "static_camera": mean.static_camera}
    with atomic_write(options.output / JSON) as temporary:
        temporary.write_text(json.dumps({**about, "mean": plain}, indent=2) + "\n")
    page = write_page(options.output, title, judged, estimator)

    table = Table("figure", "mean", "", title=f"{title}: {counted(len(dataset), 'pair')}")
    for name, (unit, meaning) in MEANING.items():
        value = asdict(mean)[name]
        table.add_row(spoken(name), written(value), f"{meaning} ({unit})")
    console = Console()
    console.print(table)
    if mean.static_camera:
        console.print("most of the picture rests: the camera seems to stand still")
    console.print(f"wrote {page}", highlight=False, markup=False, soft_wrap=True)
