"""The pairs of a folder of frames: which there are, where their files go, and their images."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.cli.flow_options import FlowOptions
from gmaflow.cli.flow_record import has_record, refuse_to_begin
from gmaflow.cli.outputs import (
    FORMATS,
    Part,
    find_clash,
    folder_paths,
    is_folder,
    refuse_existing,
    refuse_inputs,
)
from gmaflow.errors import FlowError, ImageError, OutputError
from gmaflow.io import ensure_can_fill, list_images

if TYPE_CHECKING:
    from gmaflow.inference.images import ImageArray


@dataclass(frozen=True)
class Job:
    """One pair of a folder."""

    first: Path
    second: Path
    paths: dict[Part, Path]

    @property
    def name(self) -> str:
        """By what it is known: the first frame's."""
        return self.first.stem


@dataclass(frozen=True, eq=False)
class Loaded:
    """A pair whose images were read, unless it is finished already or they cannot be used."""

    job: Job
    images: "tuple[ImageArray, ImageArray] | None" = None
    error: ImageError | None = None


def plan_jobs(options: FlowOptions) -> list[Job]:
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
    jobs = [
        Job(
            first,
            second,
            folder_paths(output, (first.stem, second.stem), options.extras, options.only),
        )
        for first, second in pairwise(frames)
    ]
    refuse_clashes(jobs)
    if output.resolve() == folder.resolve():
        raise OutputError(f"{output} holds the frames; choose another folder for the flow")
    refuse_to_begin(output, resume=options.resume, overwrite=options.overwrite)
    ensure_can_fill(output)
    goes_on = options.resume and has_record(output)
    for job in jobs:
        refuse_inputs(job.paths.values(), frames)
        if not goes_on:
            refuse_existing(job.paths.values(), overwrite=options.overwrite)
    return jobs


def refuse_clashes(jobs: list[Job]) -> None:
    """Refuse a folder in which two frames would write to one name (a.png beside a.jpg)."""
    written = (
        (job.second if part is Part.BACKWARD else job.first, path)
        for job in jobs
        for part, path in job.paths.items()
    )
    if clash := find_clash(written):
        one, other, path = clash
        raise ImageError(
            f"{one.name} and {other.name} would both be written to {path.name}; rename one of "
            "them, or keep one kind of image in the folder"
        )


def load_jobs(jobs: Iterable[Job], *, finished: Container[str]) -> Iterator[Loaded]:
    """Read the images of a folder's pairs, each of them once; those of finished ones not at all."""
    from gmaflow.inference import load_image

    last: dict[Path, ImageArray] = {}
    for job in jobs:
        if job.name in finished:
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
