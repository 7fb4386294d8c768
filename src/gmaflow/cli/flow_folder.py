"""`gmaflow flow FOLDER`: the flow between consecutive frames."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.cli.flow_options import FlowOptions
from gmaflow.cli.flow_record import check_record, make_record, write_record
from gmaflow.cli.outputs import (
    FORMATS,
    PairResult,
    Part,
    folder_paths,
    is_folder,
    refuse_existing,
    refuse_inputs,
    write_parts,
)
from gmaflow.cli.pairs import estimate_pair, settings, tell_of_breaks
from gmaflow.cli.progress import GOES_ON_IF_ASKED, progress_bar
from gmaflow.errors import FlowError, ImageError, OutputError, say
from gmaflow.io import list_images, read_ahead, write_behind

if TYPE_CHECKING:
    from gmaflow.inference import Flow, FlowEstimator, Frame
    from gmaflow.inference.images import ImageArray


def run_folder(options: FlowOptions) -> dict[str, object]:
    """Estimate and write the flow between consecutive frames of a folder."""
    folder, output = options.inputs[0], options.output
    jobs = plan_jobs(options)
    tell_of_breaks([jobs[0].first, *(job.second for job in jobs)])
    finished = sum(job.finished for job in jobs) if options.resume else 0
    estimator = options.estimator.make()
    if finished:
        check_record(output, make_record(options, estimator))
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


def plan_jobs(options: FlowOptions) -> "list[Job]":
    """List the pairs of a folder, before anything is estimated.

    Raises:
        FlowError: There are none, or what is asked for cannot be.
    """
    folder, output = options.inputs[0], options.output
    if folder.is_file():
        raise FlowError(
            f"{folder} is one file; give two images, or a folder of frames; "
            "for a video there is gmaflow video"
        )
    frames = list_images(folder)
    if len(frames) < 2:
        raise ImageError(f"{folder} holds {len(frames)} image; flow needs at least two frames")
    if not is_folder(options.target) and (output.is_file() or output.suffix.lower() in FORMATS):
        raise OutputError(f"{output}: the flow of a folder needs a folder; drop the suffix")
    if options.truth is not None:
        raise FlowError("--truth is for one pair; gmaflow evaluate judges many")
    if options.resume and options.overwrite:
        raise OutputError("--resume keeps what is there and --overwrite does not; give one of them")
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
    return jobs


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


@dataclass(frozen=True, eq=False)
class Loaded:
    """A pair whose images were read, unless it is finished already or they cannot be used."""

    job: Job
    images: "tuple[ImageArray, ImageArray] | None" = None
    error: ImageError | None = None


def load_jobs(jobs: Iterable[Job], *, resume: bool) -> Iterator[Loaded]:
    """Read the images of a folder's pairs, each of them once."""
    from gmaflow.inference import load_image

    last: dict[Path, ImageArray] = {}
    for job in jobs:
        if resume and job.finished:
            yield Loaded(job)
            continue
        try:
            # The second frame of the pair before is the first of this one.
            first = last[job.first] if job.first in last else load_image(job.first)
            second = load_image(job.second)
        except ImageError as err:
            last = {}
            yield Loaded(job, error=err)
        else:
            last = {job.second: second}
            yield Loaded(job, (first, second))


def run_jobs(
    jobs: list[Job],
    estimator: "FlowEstimator",
    options: FlowOptions,
) -> tuple[int, list[str]]:
    """Work through a folder's pairs; returns how many were estimated, and what was wrong."""
    work = FolderWork(estimator, options)
    done, skipped = 0, []
    with (
        progress_bar("flow", quiet=options.json, kept=GOES_ON_IF_ASKED) as show_progress,
        closing(read_ahead(load_jobs(jobs, resume=options.resume))) as loaded,
        write_behind() as later,
    ):
        for number, pair in enumerate(loaded):
            show_progress(number, len(jobs))
            try:
                result = work.estimate(pair)
            except ImageError as err:  # other errors would come again with every pair
                skipped.append(f"{pair.job.first.name} -> {pair.job.second.name}: {err}")
                say(f"gmaflow: skipped {skipped[-1]}")
                continue
            if result is not None:
                if not done:
                    begin_folder(jobs, estimator, options)
                later(partial(write_parts, result, pair.job.paths))
                done += 1
    return done, skipped


def begin_folder(jobs: list[Job], estimator: "FlowEstimator", options: FlowOptions) -> None:
    """Write down how the flow is estimated, and drop flow that is to be replaced."""
    if options.overwrite:
        # Else an interrupted run would leave it under a record that is not its own.
        for job in jobs:
            job.paths[Part.FLOW].unlink(missing_ok=True)
    write_record(options.output, make_record(options, estimator))


class FolderWork:
    """Estimates the pairs of a folder in turn, and remembers what serves the next one."""

    def __init__(self, estimator: "FlowEstimator", options: FlowOptions) -> None:
        self.estimator = estimator
        self.options = options
        self._previous: Flow | None = None
        self._encoded: dict[Path, Frame] = {}

    def estimate(self, pair: Loaded) -> PairResult | None:
        """Find out what is wanted of a pair; None if it is finished.

        Raises:
            ImageError: Its images cannot be used.
            FlowError: What is wanted cannot be had of any pair.
        """
        from gmaflow.inference import read_flow

        previous, self._previous = self._previous, None
        encoded, self._encoded = self._encoded, {}
        job, options = pair.job, self.options
        if pair.error is not None:
            raise pair.error
        if pair.images is None:
            self._previous = read_flow(job.paths[Part.FLOW]) if options.warm_start else None
            return None
        first = encoded.get(job.first) or self.estimator.encode(pair.images[0])
        second = self.estimator.encode(pair.images[1])
        self._encoded = {job.second: second}
        result = estimate_pair(
            self.estimator,
            first,
            second,
            backward=options.backward,
            points=options.points,
            previous=previous if options.warm_start else None,
        )
        self._previous = result.flow
        return replace(result, max_length=options.max_length)


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
