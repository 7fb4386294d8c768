"""`gmaflow flow FOLDER` or `IMAGE ...`: the flow between consecutive frames."""

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gmaflow.cli.options import CONTINUES_WITH_RESUME, Report, progress_bar
from gmaflow.cli.outputs import (
    FORMATS,
    PairOutput,
    Part,
    check_formats,
    choose_scale,
    folder_endings,
    folder_paths,
    is_about_second,
    is_folder,
    looks_at_frames,
    refuse_existing,
    refuse_inputs,
    write_parts,
)
from gmaflow.cli.result_folder import ResultFolder, make_settings, record_of, warn_about_breaks
from gmaflow.errors import FlowError, ImageError, OutputError, say
from gmaflow.io import create_clip, is_clip, list_images, read_ahead, write_behind
from gmaflow.io.folders import natural_key
from gmaflow.io.paths import find_clash, require_file

if TYPE_CHECKING:
    from gmaflow.cli.flow import FlowOptions
    from gmaflow.inference import Flow, FlowEstimator, PairEstimate, SequenceFrame


@dataclass(frozen=True)
class PairJob:
    """A pair of a folder, and the paths of its files."""

    first: Path
    second: Path
    paths: dict[Part, Path]

    @property
    def name(self) -> str:
        """The name of the pair, which is the first frame's."""
        return self.first.stem


Save: TypeAlias = "Callable[[int, PairEstimate[SequenceFrame]], None]"
"""Writes the flow of a pair, given its number."""


def run_sequence(options: "FlowOptions") -> Report:
    """Estimate and write the flow between consecutive frames."""
    frames = list_frames(options.inputs)
    if len(options.targets) == 1 and is_clip(options.targets[0]):
        return run_clip(options, frames)
    folder = check_folder(options, frames)
    jobs = plan_jobs(options, frames, folder)
    check_formats(jobs[0].paths.items())
    warn_about_breaks(frames)
    estimator = options.estimator.make()
    output = open_folder(options, folder, estimator, jobs)
    if options.draws and output.scale is None and len(output.finished) < len(jobs):
        looks = looks_at_frames(frames)
        output.scale = choose_scale(estimator, looks, quiet=options.quiet)

    def save(number: int, pair: "PairEstimate[SequenceFrame]") -> None:
        result = make_result(pair, options, output.scale)
        write = partial(write_parts, result, jobs[number].paths.items())
        output.add(jobs[number].name, result.flow, write)

    finished = {
        number: output.flows.get(job.name)
        for number, job in enumerate(jobs)
        if job.name in output.finished
    }
    report = estimate_frames(frames, estimator, options, finished=finished, save=save)
    return report | {"outputs": {"folder": str(folder)}, "max_length": output.scale}


def run_clip(options: "FlowOptions", frames: list[Path]) -> Report:
    """Estimate the flow between consecutive frames, and write it into one file."""
    output = Path(options.targets[0])
    if options.resume or options.extras or options.only is not None:
        raise OutputError(
            f"{output} holds only forward flow, and cannot be resumed; drop --resume, --format, "
            "--backward, --attention and --truth, or give a folder"
        )
    refuse_inputs([output], frames)
    refuse_existing([output], overwrite=options.overwrite)
    warn_about_breaks(frames)
    clip = create_clip(output, bound=options.bound)
    estimator = options.estimator.make()

    def save(number: int, pair: "PairEstimate[SequenceFrame]") -> None:
        assert pair.flow is not None
        clip.add(number, pair.flow.array)

    with clip:
        report = estimate_frames(frames, estimator, options, finished={}, save=save)
    return report | {"outputs": {"clip": str(output)}, "max_length": None}


def list_frames(inputs: Sequence[Path]) -> list[Path]:
    """List the frames in natural order: the images of a folder, or those that were given."""
    if not inputs:
        raise FlowError("there is no input; give two images, or a folder of frames")
    first, *more = inputs
    if not more and first.is_file():
        raise ImageError(
            f"{first} is one file; give two images, or a folder of frames; "
            "for a video, use gmaflow video"
        )
    if more:
        frames = sorted(inputs, key=lambda path: natural_key(path.name))
        for path in frames:
            require_file(path, ImageError, "images, or only one folder")
        if twice := [one for one, other in pairwise(frames) if one == other]:
            raise ImageError(f"{twice[0]} is given twice; give each frame once")
        return frames
    frames = list_images(first)
    if len(frames) < 2:
        raise ImageError(f"{first} holds {len(frames)} image; flow needs at least two frames")
    return frames


def check_folder(options: "FlowOptions", frames: list[Path]) -> Path:
    """Return the folder to write to."""
    if options.truth is not None:
        raise FlowError("--truth is for one pair; gmaflow evaluate measures many")
    if len(options.targets) > 1:
        raise OutputError("several outputs are for one pair; give one folder for a sequence")
    folder = Path(options.targets[0])
    is_file = folder.is_file() or folder.suffix.lower() in FORMATS
    if not is_folder(options.targets[0]) and is_file:
        raise OutputError(f"{folder}: the flow of a sequence needs a folder; drop the suffix")
    if folder.resolve() in {frame.parent.resolve() for frame in frames}:
        raise OutputError(f"{folder} holds the frames; choose another folder for the flow")
    return folder


def plan_jobs(options: "FlowOptions", frames: list[Path], folder: Path) -> list[PairJob]:
    """List the pairs, after everything that can be checked before the work."""
    jobs = [
        PairJob(
            first,
            second,
            folder_paths(folder, (first.stem, second.stem), options.extras, options.only),
        )
        for first, second in pairwise(frames)
    ]
    refuse_clashes(jobs)
    record = record_of(folder)
    record.check_start(resume=options.resume, overwrite=options.overwrite, among_others=True)
    resumes = options.resume and record.exists()
    for job in jobs:
        refuse_inputs(job.paths.values(), frames)
        if not resumes:
            refuse_existing(job.paths.values(), overwrite=options.overwrite)
    return jobs


def refuse_clashes(jobs: list[PairJob]) -> None:
    """Refuse frames of which two (a.png and a.jpg) would be written to one name."""
    written = (
        (job.second if part is Part.BACKWARD else job.first, path)
        for job in jobs
        for part, path in job.paths.items()
    )
    if clash := find_clash(written):
        one, other, path = clash
        raise ImageError(
            f"{one.name} and {other.name} would both be written to {path.name}; rename one of "
            "them, or give one kind of image"
        )


def open_folder(
    options: "FlowOptions", folder: Path, estimator: "FlowEstimator", jobs: list[PairJob]
) -> ResultFolder:
    frames = [jobs[0].first, *(job.second for job in jobs)]
    source = frames if len(options.inputs) > 1 else options.inputs[0]
    how = make_settings(
        estimator,
        verb="flow",
        source=source,
        endings=list(folder_endings(options.extras, options.only).values()),
        warm_start=options.warm_start,
        attention=list(options.attention),
        # Earlier versions did not know it.
        **({"bound": options.bound} if options.only == "xy" else {}),
    )
    firsts = {job.first.stem: job.name for job in jobs}
    seconds = {job.second.stem: job.name for job in jobs}
    return ResultFolder(
        folder,
        how,
        source=source,
        pair_of=lambda stem, ending: (seconds if is_about_second(ending) else firsts).get(stem),
        resume=options.resume,
        scale=options.max_length if options.draws else None,
    )


def estimate_frames(
    frames: Sequence[Path],
    estimator: "FlowEstimator",
    options: "FlowOptions",
    *,
    finished: "dict[int, Flow | None]",
    save: Save,
) -> Report:
    """Estimate and write the pairs; returns what was done, and why some pairs were skipped.

    `finished` pairs are left out, by number and with their flow if it is known. `save` runs in a
    thread of its own.
    """
    from gmaflow.inference import estimate_pairs

    done, skipped, total = 0, [], len(frames) - 1
    kept = "" if is_clip(options.targets[0]) else CONTINUES_WITH_RESUME
    with (
        progress_bar("pairs", quiet=options.quiet, kept=kept) as show_progress,
        closing(read_ahead(load_frames(frames, finished))) as loaded,
        write_behind() as later,
    ):
        for pair in estimate_pairs(
            estimator,
            loaded,
            backward=options.backward,
            warm_start=options.warm_start,
            points=options.points,
            done=finished,
            skip_unusable=True,
        ):
            number = pair.first.number
            if pair.error is not None:
                names = f"{frames[number].name} -> {frames[number + 1].name}"
                skipped.append(f"{names}: {pair.error}")
                say(f"gmaflow: skipped {skipped[-1]}")
            else:
                later(partial(save, number, pair))
                done += 1
            show_progress(pair.second.number, total)
    if skipped and not done and not finished:
        raise ImageError(f"no pair can be used; the first: {skipped[0]}")
    return {
        **estimator.settings.as_json(),
        "inputs": [str(path) for path in options.inputs],
        "pairs": total,
        "estimated": done,
        "already_there": len(finished),
        "skipped": skipped,
    }


def load_frames(frames: Sequence[Path], finished: Container[int]) -> "Iterator[SequenceFrame]":
    """Read the frames of the pairs that are not finished; an unreadable frame is its error."""
    from gmaflow.inference import SequenceFrame, load_image

    for number, path in enumerate(frames):
        is_first = number not in finished and number + 1 < len(frames)
        is_second = number - 1 not in finished and number > 0
        if is_first or is_second:
            try:
                yield SequenceFrame(number, load_image(path))
            except ImageError as err:
                yield SequenceFrame(number, err)


def make_result(
    pair: "PairEstimate[SequenceFrame]", options: "FlowOptions", max_length: float | None
) -> PairOutput:
    import numpy as np

    image1, image2 = pair.first.image, pair.second.image
    assert isinstance(image1, np.ndarray)
    assert isinstance(image2, np.ndarray)
    assert pair.flow is not None
    return PairOutput(
        image1,
        image2,
        pair.flow,
        pair.both,
        pair.attention,
        options.points,
        max_length=max_length,
        bound=options.bound,
    )
