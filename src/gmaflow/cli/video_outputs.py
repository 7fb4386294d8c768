"""Where the flow of a video goes: into a video, or into a file for each frame."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeAlias

from gmaflow.cli.outputs import KITTI, is_folder, refuse_existing, refuse_inputs
from gmaflow.cli.video_options import VideoOptions
from gmaflow.errors import OutputError
from gmaflow.io import (
    VIDEO_OUTPUTS,
    Sound,
    VideoReader,
    VideoWriter,
    has_sound,
    write_flow,
    write_image,
)

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.inference import VideoStep

Draw: TypeAlias = "Callable[[VideoStep], np.ndarray]"
Write: TypeAlias = "Callable[[VideoStep, Draw], None]"

SILENT = (".gif",)


def check_output(options: VideoOptions) -> None:
    """Refuse outputs that cannot be meant.

    Raises:
        OutputError: It is such an output.
    """
    output = options.output
    refuse_inputs([output], [options.input])
    if is_folder(options.target):
        if options.format != "png" and options.show != "flow":
            raise OutputError(
                f"{output}: a folder gets flow files, not {options.show}; add --format png for "
                "pictures, or give a video"
            )
        if output.is_dir() and any(output.iterdir()) and not options.overwrite:
            raise OutputError(f"{output} holds files already; add --overwrite to write into it")
        return
    if output.suffix.lower() not in VIDEO_OUTPUTS:
        known = ", ".join(sorted(VIDEO_OUTPUTS))
        raise OutputError(
            f"{output}: {output.suffix} cannot be written; use {known}, or a folder for flow files"
        )
    if options.format != "flo":
        raise OutputError(f"{output} is a video; --format is for folders: drop the suffix")
    refuse_existing([output], overwrite=options.overwrite)


def writes_numbers(options: VideoOptions) -> bool:
    """Tell whether flow files are wanted, for which nothing is drawn."""
    return is_folder(options.target) and options.format != "png"


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
def open_output(options: VideoOptions, reader: VideoReader, *, sound: bool) -> Iterator[Write]:
    """Give a function that writes a step; a video appears when the block ends well.

    Raises:
        OutputError: The place cannot be written to.
    """
    if is_folder(options.target):
        options.output.mkdir(parents=True, exist_ok=True)
        yield lambda step, draw: write_file(options, step, draw)
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

        def write(step: "VideoStep", draw: Draw) -> None:
            # The first frame may come a little after the start, from which on it is shown.
            begin = step.time if step.number else reader.start
            seconds = step.time + step.seconds - begin
            video.write(draw(step), time=begin - reader.start, seconds=seconds)

        yield write


def write_file(options: VideoOptions, step: "VideoStep", draw: Draw) -> None:
    """Write the picture or the flow of one frame; where there is no flow, there is no file."""
    stem = options.output / f"{step.number:06d}"
    if options.format == "png":
        write_image(stem.with_suffix(".png"), draw(step))
    elif step.flow is not None:
        ending = KITTI if options.format == "kitti" else f".{options.format}"
        write_flow(stem.with_name(stem.name + ending), step.flow.array)
