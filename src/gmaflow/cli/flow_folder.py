"""`gmaflow flow FOLDER`: the flow between consecutive frames."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.cli.flow_options import FlowOptions
from gmaflow.cli.outputs import (
    Part,
    folder_paths,
    is_folder,
    refuse_existing,
    refuse_inputs,
    write_parts,
)
from gmaflow.cli.pairs import estimate_pair, settings
from gmaflow.errors import FlowError, ImageError, OutputError

if TYPE_CHECKING:
    from gmaflow.inference import Flow, FlowEstimator, ImageLike


def run_folder(options: FlowOptions) -> dict[str, object]:
    """Estimate and write the flow between consecutive frames of a folder."""
    from gmaflow.io import list_images

    folder, output = options.inputs[0], options.output
    if folder.is_file():
        raise FlowError(f"{folder} is one image; give two images, or a folder of frames")
    frames = list_images(folder)
    if len(frames) < 2:
        raise ImageError(f"{folder} holds {len(frames)} image; flow needs at least two frames")
    if not is_folder(output):
        raise OutputError(f"{output}: the flow of a folder needs a folder; drop the suffix")
    if options.truth is not None:
        raise FlowError("--truth is for one pair; gmaflow evaluate judges many")
    jobs = [
        Job(first, second, folder_paths(output, first.stem, options.extras))
        for first, second in pairwise(frames)
    ]
    refuse_clashes(jobs)
    if output.resolve() == folder.resolve():
        raise OutputError(f"{output} holds the frames; choose another folder for the flow")
    for job in jobs:
        refuse_inputs(job.paths.values(), frames)
        if not options.resume:
            refuse_existing(job.paths.values(), overwrite=options.overwrite)
    finished = sum(job.finished for job in jobs) if options.resume else 0
    estimator = options.estimator.make()
    done, skipped = run_jobs(jobs, estimator, options)
    if skipped and not done and not finished:
        raise ImageError(f"no pair of {folder} could be used; the first: {skipped[0]}")
    return {
        **settings(estimator),
        "inputs": [str(folder)],
        "outputs": {"folder": str(output)},
        "pairs": len(jobs),
        "estimated": done,
        "already_there": finished,
        "skipped": skipped,
    }


@dataclass(frozen=True)
class Job:
    """One pair of a folder."""

    first: Path
    second: Path
    paths: dict[Part, Path]

    @property
    def finished(self) -> bool:
        """Whether everything that is wanted of this pair is there already."""
        return all(path.is_file() and path.stat().st_size > 0 for path in self.paths.values())


def run_jobs(
    jobs: list[Job],
    estimator: "FlowEstimator",
    options: FlowOptions,
) -> tuple[int, list[str]]:
    """Work through a folder's pairs; returns how many were estimated, and what was wrong."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn
    from rich.text import Text

    from gmaflow.inference import load_image, read_flow

    done, skipped = 0, []
    previous: Flow | None = None
    loaded: tuple[Path, ImageLike] | None = None
    columns = (*Progress.get_default_columns()[:-1], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=options.json) as progress:
        for job in progress.track(jobs, description="flow"):
            try:
                if options.resume and job.finished:
                    previous = read_flow(job.paths[Part.FLOW]) if options.warm_start else None
                    continue
                # The second frame of the pair before is the first of this one.
                known = loaded is not None and loaded[0] == job.first
                first = loaded[1] if known and loaded else load_image(job.first)
                loaded = None
                second = load_image(job.second)
                loaded = (job.second, second)
                result = estimate_pair(
                    estimator,
                    first,
                    second,
                    backward=options.backward,
                    points=options.points,
                    previous=previous if options.warm_start else None,
                )
            except OutputError:
                raise
            except FlowError as err:
                previous = None
                skipped.append(f"{job.first.name} -> {job.second.name}: {err}")
                told = Text(f"skipped {skipped[-1]}", style="yellow")
                progress.console.print(told, soft_wrap=True)
                continue
            write_parts(replace(result, max_length=options.max_length), job.paths)
            previous = result.flow
            done += 1
    return done, skipped


def refuse_clashes(jobs: list[Job]) -> None:
    """Refuse a folder in which two frames would write to one name (a.png beside a.jpg)."""
    seen: dict[Path, Path] = {}
    for job in jobs:
        for path in job.paths.values():
            if seen.setdefault(path, job.first) != job.first:
                raise ImageError(
                    f"{seen[path].name} and {job.first.name} would both be written to "
                    f"{path.name}; keep one kind of image in the folder"
                )
