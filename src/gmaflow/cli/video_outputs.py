"""Where the flow of a video goes: into a video, or into a file for each frame."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gmaflow.cli.flow_record import (
    RECORD,
    FolderRecord,
    endings_before,
    has_record,
    make_record,
    refuse_to_begin,
)
from gmaflow.cli.formats import ending_of, holds_numbers
from gmaflow.cli.outputs import is_folder, refuse_existing, refuse_inputs, tells_of_second
from gmaflow.cli.result_folder import ResultFolder
from gmaflow.cli.video_options import VideoOptions
from gmaflow.errors import OutputError
from gmaflow.io import (
    VIDEO_OUTPUTS,
    Sound,
    VideoReader,
    VideoWriter,
    ensure_can_encode,
    ensure_can_fill,
    has_sound,
    write_image,
)

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.inference import Flow, FlowEstimator, VideoStep

Draw: TypeAlias = "Callable[[VideoStep], np.ndarray]"

SILENT = (".gif",)


def check_output(options: VideoOptions) -> None:
    """Refuse outputs that cannot be meant.

    Raises:
        OutputError: It is such an output.
    """
    output = options.output
    refuse_inputs([output], [options.input])
    if options.backward and not writes_numbers(options):
        raise OutputError(
            "--backward is for flow files in a folder; --show occlusion draws what comes of it"
        )
    if is_folder(options.target):
        if holds_numbers(options.format) and options.show != "flow":
            raise OutputError(
                f"{output}: a folder gets flow files, not {options.show}; add --format png for "
                "pictures, or give a video"
            )
        if holds_numbers(options.format):
            ensure_can_encode(f"flow{ending_of(options.format)}")
        refuse_to_begin(output, resume=options.resume, overwrite=options.overwrite)
        goes_on = options.resume and has_record(output)
        if not (goes_on or options.overwrite) and output.is_dir() and any(output.iterdir()):
            raise OutputError(f"{output} holds files already; add --overwrite to write into it")
        if options.overwrite:
            refuse_foreign_files(output, options.endings)
        ensure_can_fill(output)
        return
    if output.suffix.lower() not in VIDEO_OUTPUTS:
        known = ", ".join(sorted(VIDEO_OUTPUTS))
        raise OutputError(
            f"{output}: {output.suffix} cannot be written; use {known}, or a folder for flow files"
        )
    if options.format != "flo":
        raise OutputError(f"{output} is a video; --format is for folders: drop the suffix")
    if options.resume:
        raise OutputError(
            f"{output} is a video, which is written in one go; --resume is for folders: drop the "
            "suffix"
        )
    refuse_existing([output], overwrite=options.overwrite)


def refuse_foreign_files(folder: Path, endings: Sequence[str]) -> None:
    """Refuse to replace numbered files that gmaflow did not write, as frames of a video may be.

    Raises:
        OutputError: There are such files.
    """
    before = endings_before(folder, "video")
    for ending in (ending for ending in endings if ending not in before):
        for path in sorted(folder.glob(f"*{ending}")):
            if step_of(path.name.removesuffix(ending), ending) is not None:
                raise OutputError(
                    f"{folder} holds {path.name}, and no {RECORD} tells that gmaflow video wrote "
                    "it; remove such files, or choose another folder"
                )


def writes_numbers(options: VideoOptions) -> bool:
    """Tell whether flow files are wanted, for which nothing is drawn."""
    return is_folder(options.target) and holds_numbers(options.format)


def why_silent(options: VideoOptions) -> str | None:
    """Return why the result has no sound, or None if it has."""
    if not has_sound(options.input):
        return "none in the source"
    if is_folder(options.target):
        return "left out: files have none"
    if options.output.suffix.lower() in SILENT:
        return f"left out: {options.output.suffix} cannot hold any"
    return "left out, as asked for" if options.no_sound else None


@contextmanager
def open_output(
    options: VideoOptions, reader: VideoReader, *, sound: bool
) -> Iterator["VideoFile | None"]:
    """Give a video to write to, which appears when the block ends well; None for a folder.

    Raises:
        OutputError: The place cannot be written to.
    """
    if is_folder(options.target):
        yield None
        return
    with ExitStack() as stack:
        track = stack.enter_context(Sound(options.input, start=reader.start)) if sound else None
        video = stack.enter_context(
            VideoWriter(
                options.output,
                fps=reader.info.fps / options.every,
                time_base=reader.info.time_base,
                pixel_aspect=reader.info.pixel_aspect,
                sound=track,
            )
        )
        yield VideoFile(video, reader.start)


class VideoFile:
    """A video that gets a frame for each step."""

    def __init__(self, video: VideoWriter, start: Fraction) -> None:
        """Write to a video that is open, and plays from `start` on."""
        self.done: dict[int, Flow | None] = {}
        """Nothing: a video is written in one go."""
        self.scale: float | None = None
        """The length at full colour."""
        self._video = video
        self._start = start

    def write(self, step: "VideoStep", draw: Draw) -> None:
        """Write a step."""
        # The first frame may come a little after the start, from which on it is shown.
        begin = step.time if step.number else self._start
        seconds = step.time + step.seconds - begin
        self._video.write(draw(step), time=begin - self._start, seconds=seconds)


class FrameFolder(ResultFolder):
    """A folder that gets a file for each step, called by its number."""

    def __init__(self, options: VideoOptions, estimator: "FlowEstimator") -> None:
        """Look at what is there.

        Raises:
            OutputError: It is to be gone on with, but was begun in another way.
        """
        how = make_record(
            estimator,
            verb="video",
            source=options.input,
            endings=options.endings,
            warm_start=options.warm_start,
            **options.file_settings,
        )
        record = FolderRecord.open(
            options.output, how, resume=options.resume, scale=options.max_flow
        )
        super().__init__(record, options.endings, pair_of=step_of, warm_start=options.warm_start)
        self.done = {int(name): self.flows.get(name) for name in self.finished}
        """Steps that are there already, with their flow where it is known."""
        self._numbers = holds_numbers(options.format)

    def write(self, step: "VideoStep", draw: Draw) -> None:
        """Write the flow or the picture of a step; of no flow there is no flow file."""
        if self._numbers and step.flow is None:
            return
        name = f"{step.number:06d}"
        self.add(name, step.flow, lambda: self._write_file(name, step, draw))

    def _write_file(self, name: str, step: "VideoStep", draw: Draw) -> None:
        folder, (*extra, ending) = self.record.folder, self.endings
        if not self._numbers or step.flow is None:
            write_image(folder / f"{name}{ending}", draw(step))
            return
        if extra and step.both is not None:
            step.both.backward.save(folder / f"{step.number + 1:06d}{extra[0]}")
        step.flow.save(folder / f"{name}{ending}")


def step_of(stem: str, ending: str) -> str | None:
    """Return which step a numbered file is of, or None for any other.

    Backward flow has the number of the frame that it leads away from, which is the next one.
    """
    if not (stem.isascii() and stem.isdecimal() and f"{int(stem):06d}" == stem):
        return None
    number = int(stem) - tells_of_second(ending)
    return f"{number:06d}" if number >= 0 else None
