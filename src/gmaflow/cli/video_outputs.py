"""Where the flow of a video goes: into a video, or into a file for each frame; and its pictures."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from gmaflow.cli.outputs import (
    ending_of,
    holds_numbers,
    is_about_second,
    refuse_existing,
    refuse_inputs,
)
from gmaflow.cli.result_folder import (
    RECORD,
    ResultFolder,
    endings_before,
    make_settings,
    record_of,
)
from gmaflow.errors import OutputError
from gmaflow.io import (
    VIDEO_OUTPUTS,
    Sound,
    VideoReader,
    VideoWriter,
    ensure_can_encode,
    has_sound,
    write_image,
)

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.cli.video import VideoOptions
    from gmaflow.inference import Flow, FlowEstimator, VideoStep

Draw: TypeAlias = "Callable[[VideoStep], np.ndarray]"
Show = Literal["flow", "side-by-side", "arrows", "occlusion"]

SILENT = (".gif",)


def check_output(options: "VideoOptions") -> None:
    """Refuse outputs that cannot be written, or contradict the options.

    Raises:
        OutputError: The output is refused.
    """
    output = options.output
    refuse_inputs([output], [options.input])
    if options.backward and not options.writes_numbers:
        raise OutputError(
            "--backward is for flow files in a folder; --show occlusion draws its result"
        )
    if options.into_folder:
        check_output_folder(options)
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
            f"{output} is a video, which cannot be resumed; --resume is for folders: drop the "
            "suffix"
        )
    refuse_existing([output], overwrite=options.overwrite)


def check_output_folder(options: "VideoOptions") -> None:
    """Refuse an output folder that cannot be written, or contradicts the options.

    Raises:
        OutputError: The folder is refused.
    """
    output = options.output
    if options.writes_numbers:
        if options.show != "flow":
            raise OutputError(
                f"{output}: a folder gets flow files, not {options.show}; add --format png for "
                "pictures, or give a video"
            )
        ensure_can_encode(f"flow{ending_of(options.format)}")
    record = record_of(output)
    record.check_start(resume=options.resume, overwrite=options.overwrite, among_others=True)
    resumes = options.resume and record.exists()
    if not (resumes or options.overwrite) and output.is_dir() and any(output.iterdir()):
        raise OutputError(f"{output} is not empty; add --overwrite to write into it")
    if options.overwrite:
        refuse_foreign_files(output, options.endings)


def refuse_foreign_files(folder: Path, endings: Sequence[str]) -> None:
    """Refuse to replace numbered files that gmaflow did not write, such as frames of a video.

    Raises:
        OutputError: There are such files.
    """
    before = endings_before(folder, "video")
    for ending in (ending for ending in endings if ending not in before):
        for path in sorted(folder.glob(f"*{ending}")):
            if step_of(path.name.removesuffix(ending), ending) is not None:
                raise OutputError(
                    f"{folder} holds {path.name}, which gmaflow video did not write according to "
                    f"{RECORD}; remove such files, or choose another folder"
                )


def why_silent(options: "VideoOptions") -> str | None:
    """Return why the result has no sound, or None if it has sound."""
    if not has_sound(options.input):
        return "none in the source"
    if options.into_folder:
        return "left out: files have none"
    if options.output.suffix.lower() in SILENT:
        return f"left out: {options.output.suffix} cannot hold sound"
    return "left out, as requested" if options.no_sound else None


@contextmanager
def open_output(
    options: "VideoOptions", reader: VideoReader, *, sound: bool
) -> Iterator["VideoFile | None"]:
    """Give a video to write to, which appears when the block ends without error; None for a folder.

    Raises:
        OutputError: The place cannot be written to.
    """
    if options.into_folder:
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
        """Write to an open video that plays from `start` on."""
        self.done: dict[int, Flow | None] = {}
        """Empty: a video cannot be resumed."""
        self.scale: float | None = None
        """The length at full colour."""
        self._video = video
        self._start = start

    def write(self, step: "VideoStep", draw: Draw) -> None:
        """Write a step."""
        # The first frame may come a little after the start, and is shown from the start on.
        begin = step.time if step.number else self._start
        seconds = step.time + step.seconds - begin
        self._video.write(draw(step), time=begin - self._start, seconds=seconds)


class FrameFolder(ResultFolder):
    """A folder that gets a numbered file for each step."""

    def __init__(self, options: "VideoOptions", estimator: "FlowEstimator") -> None:
        """Look at the folder.

        Raises:
            OutputError: It is to be resumed, but has other settings.
        """
        how = make_settings(
            estimator,
            verb="video",
            source=options.input,
            endings=options.endings,
            warm_start=options.warm_start,
            **options.file_settings,
        )
        super().__init__(
            options.output,
            how,
            pair_of=step_of,
            resume=options.resume,
            scale=options.max_flow if options.draws_colours else None,
        )
        self.done = {int(name): self.flows.get(name) for name in self.finished}
        """Steps that are finished, with their flow if it is known."""
        self._numbers = holds_numbers(options.format)

    def write(self, step: "VideoStep", draw: Draw) -> None:
        """Write the flow or the picture of a step; without flow there is no flow file."""
        if self._numbers and step.flow is None:
            return
        name = f"{step.number:06d}"
        self.add(name, step.flow, lambda: self._write_file(name, step, draw))

    def _write_file(self, name: str, step: "VideoStep", draw: Draw) -> None:
        *extra, ending = self.endings
        if not self._numbers or step.flow is None:
            write_image(self.folder / f"{name}{ending}", draw(step))
            return
        if extra and step.both is not None:
            step.both.backward.save(self.folder / f"{step.number + 1:06d}{extra[0]}")
        step.flow.save(self.folder / f"{name}{ending}")


def step_of(stem: str, ending: str) -> str | None:
    """Return the step that a numbered file belongs to, or None for any other file.

    Backward flow has the number of the frame that it starts from, which is the next one.
    """
    if not (stem.isascii() and stem.isdecimal() and f"{int(stem):06d}" == stem):
        return None
    number = int(stem) - is_about_second(ending)
    return f"{number:06d}" if number >= 0 else None


def draw_step(
    step: "VideoStep", show: Show, *, max_length: float, legend: bool = False
) -> "np.ndarray":
    """Draw a frame and its motion; before a cut, only the frame, and black instead of flow."""
    import numpy as np

    from gmaflow import viz

    match show:
        case "flow":
            return draw_flow(step, max_length=max_length, legend=legend)
        case "side-by-side":
            colours = draw_flow(step, max_length=max_length, legend=legend)
            return np.concatenate([step.image, colours], axis=1)
        case "arrows":
            height, width, _ = step.image.shape
            flow = (
                np.zeros((height, width, 2), np.float32) if step.flow is None else step.flow.array
            )
            known = np.full((height, width), step.flow is not None)
            picture = viz.flow_arrows(step.image, flow, max_length=max_length, valid=known)
            return viz.add_legend(picture, max_length) if legend else picture
        case "occlusion":
            if step.both is None:
                return step.image
            return viz.occlusion_overlay(step.image, step.both.occluded_in, step.both.occluded_out)


def draw_flow(step: "VideoStep", *, max_length: float, legend: bool) -> "np.ndarray":
    """Draw the flow as colours; black if there is none."""
    import numpy as np

    from gmaflow import viz

    if step.flow is None:
        colours = np.zeros_like(step.image)
    else:
        colours = viz.flow_to_image(step.flow.array, max_length=max_length)
    return viz.add_legend(colours, max_length) if legend else colours
