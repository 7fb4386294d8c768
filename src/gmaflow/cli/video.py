"""`gmaflow video`: the flow of a video, as a video or as files."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import tyro

from gmaflow.cli.options import (
    CONTINUES_WITH_RESUME,
    Bound,
    Estimator,
    EstimatorOptions,
    Footage,
    FootageOptions,
    Ignore,
    Json,
    Report,
    Reporting,
    check_length,
    parse,
    parse_fps,
    parse_time,
    progress_bar,
    run_and_report,
)
from gmaflow.cli.outputs import (
    FileFormat,
    backward_ending,
    choose_scale,
    ending_of,
    full_scale,
    holds_numbers,
    how_estimated,
    is_about_second,
    is_folder,
    looks_at_video,
    refuse_existing,
    refuse_inputs,
)
from gmaflow.cli.result_folder import (
    RECORD,
    ResultFolder,
    endings_before,
    make_settings,
    record_of,
    warn_about_breaks,
)
from gmaflow.errors import NOT_WHOLE, FlowError, ImageError, OutputError, counted, say
from gmaflow.io import (
    CLIP_SUFFIXES,
    USUAL_BOUND,
    VIDEO_OUTPUTS,
    ClipWriter,
    MaskReader,
    Sound,
    VideoReader,
    VideoWriter,
    create_clip,
    ensure_can_encode,
    has_sound,
    is_clip,
    list_images,
    name_file,
    read_ahead,
    stem_in,
    write_behind,
    write_image,
)

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.inference import Flow, FlowEstimator, VideoStep
    from gmaflow.io import TimedFrame

Draw: TypeAlias = "Callable[[VideoStep], np.ndarray]"
Output: TypeAlias = "VideoFile | ClipFile | FrameFolder"
Show = Literal["flow", "side-by-side", "arrows", "occlusion", "residual", "moving"]

SILENT = (".gif",)


@dataclass(frozen=True, kw_only=True)
class VideoOptions(Reporting):
    """Estimate the flow of a video.

    The input is a video (.mp4 .mov .webm .gif and more) or a folder of frames; the output is a
    video: .mp4 .mov .mkv .webm .gif. An output without suffix, or with a slash at its end, is a
    folder and gets a file for each frame. The flow of all frames also fits into one small file: .h5
    (float16) or .tar (8 bits).

    --show picks colours, arrows, occlusion, or what moves other than by the camera (residual,
    moving); these three need flow in both directions. Every frame but the last is shown with its
    motion to the next one, at its own time, so speed and sound stay the same. Before a cut there is
    no flow: colours are black, nothing is drawn over the frame, and no flow file is written. Ctrl-C
    ends the video early; the result can be played. A damaged video, or one that changes its size,
    is used as far as possible; the exit code is then 1.

    For a folder, the same command with --resume continues: finished frames are not estimated again,
    and the scale of the colours is kept. A warm start continues from the last flow and gives the
    same files; if a frame in the middle is missing, it is estimated without a warm start.

    Examples:
      gmaflow video in.mp4 -o flow.mp4
      gmaflow video in.mp4 -o both.mp4 --show side-by-side --legend
      gmaflow video in.mov -o hidden.webm --show occlusion --start 1:05 --end 1:20 --scale 0.5
      gmaflow video in.mp4 -o moving.mp4 --show moving --ignore logo.png
      gmaflow video frames/ -o arrows.gif --show arrows --fps 12 --every 2
      gmaflow video in.mp4 -o flow/ --format npz --warm-start
      gmaflow video in.mp4 -o flow/ --format npz --warm-start --resume
      gmaflow video in.mp4 -o clip.h5
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="VIDEO | FOLDER")]
    """A video, or a folder of frames in natural order."""
    target: Annotated[str, tyro.conf.arg(name="output", aliases=["-o"], metavar="PATH")]
    """A video, a folder that gets a file for each frame, or a clip of flow (.h5, .tar)."""
    estimator: Estimator = field(default_factory=EstimatorOptions)
    show: Show = "flow"
    """Colours, with or without the source next to them; arrows; occlusion: hidden in the next
    frame (orange), out of it (blue); residual: colours of the flow without the camera's motion; or
    moving: what moves by itself, lit up."""
    format: FileFormat = "flo"
    """Folders: the format of flow files, or png for the pictures that --show picks."""
    backward: bool = False
    """Folders of flow files: also write the flow from each frame back to the previous one, under
    the number of the frame whose motion it is."""
    footage: Footage = field(default_factory=FootageOptions)
    scale: float = 1.0
    """Resize frames first: 0.5 is much faster but less accurate. The flow is in pixels of the
    resized frames."""
    max_length: Annotated[float | None, tyro.conf.arg(metavar="PX")] = None
    """Length at which colours are full; by default from pairs spread over the video."""
    bound: Bound = USUAL_BOUND
    ignore: Ignore = None
    """--show residual and moving: pixels that are not used to find the camera's motion, white in a
    mask: an image for all frames, or a folder or video with a mask for each frame."""
    legend: bool = False
    """Colours and arrows: draw the colour wheel and its scale in a corner."""
    warm_start: bool = False
    """Start each pair from the flow of the previous pair; with the shipped weights that is less
    accurate."""
    no_sound: bool = False
    """Leave the sound out."""
    resume: bool = False
    """Folders: skip finished frames; refused if flow.json has other settings."""
    overwrite: Annotated[bool, tyro.conf.arg(aliases=["-f", "-y"])] = False
    """Replace outputs that exist; in a folder, all numbered files of the format."""
    json: Json = False

    @property
    def output(self) -> Path:
        return Path(self.target)

    @cached_property
    def into_folder(self) -> bool:
        return is_folder(self.target)

    @property
    def writes_numbers(self) -> bool:
        """Whether flow is written, for which nothing is drawn."""
        return is_clip(self.output) or (self.into_folder and holds_numbers(self.format))

    @property
    def draws_colours(self) -> bool:
        """Whether lengths are drawn, for which a scale is needed."""
        return not self.writes_numbers and self.show not in ("occlusion", "moving")

    @property
    def fits_camera(self) -> bool:
        """Whether the camera's motion is needed."""
        return not self.writes_numbers and self.show in ("residual", "moving")

    @property
    def both_ways(self) -> bool:
        """Whether backward flow is needed."""
        return self.backward or self.show == "occlusion" or self.fits_camera

    @property
    def endings(self) -> tuple[str, ...]:
        """How the names of a folder's files end, the flow last."""
        ending = ending_of(self.format)
        return (backward_ending(ending), ending) if self.backward else (ending,)

    @property
    def file_settings(self) -> dict[str, object]:
        """The options that the files of a folder depend on."""
        footage = self.footage
        return {
            "show": self.show,
            "legend": self.legend,
            "start": float(parse_time(footage.start)),
            "end": None if footage.end is None else float(parse_time(footage.end)),
            "every": footage.every,
            "scale": self.scale,
            "fps": None if footage.fps is None else float(parse_fps(footage.fps)),
            "cut_threshold": footage.threshold,
            # Earlier versions did not know it.
            **({"bound": self.bound} if self.format == "xy" else {}),
            **({} if self.ignore is None else {"ignore": str(self.ignore)}),
        }

    def check(self) -> None:
        """Refuse options that are out of range."""
        self.footage.check(self.input)
        check_length("--max-length", self.max_length)
        check_length("--bound", self.bound)
        if self.ignore is not None and not self.fits_camera:
            raise FlowError(
                "--ignore leaves pixels out of the camera's motion; it needs --show residual or "
                "--show moving"
            )


@dataclass
class Tally:
    """What was done so far."""

    frames: int = 0
    already_there: int = 0
    """How many of the frames an earlier run finished."""
    cuts: list[float] = field(default_factory=list)
    interrupted: bool = False


def main(args: list[str]) -> None:
    # The earlier name of --max-length.
    args = [re.sub("^--max-flow(?==|$)", "--max-length", arg) for arg in args]
    options = parse(VideoOptions, args, verb="video")
    options.check()
    report = run_and_report(run, options, sentence)
    if report["interrupted"]:
        kept = CONTINUES_WITH_RESUME if options.into_folder else "the finished part is kept"
        raise KeyboardInterrupt(kept)
    if report["problem"]:
        sys.exit(NOT_WHOLE)


def run(options: VideoOptions) -> Report:
    """Estimate and write the flow of a video; returns the report."""
    check_output(options)
    if options.input.is_dir():
        warn_about_breaks(list_images(options.input))
    reader = options.footage.open(options.input, scale=options.scale)
    masks = None if options.ignore is None else MaskReader(options.ignore, clip=reader)
    silence = why_silent(options)
    # Before anything is estimated: a place that cannot be written to is reported at once.
    with open_output(options, reader, sound=silence is None) as video:
        estimator = options.estimator.make()
        output = video or FrameFolder(options, estimator)
        output.scale = find_scale(estimator, reader, output, options)
        tally = work_through(estimator, reader, output, options, masks)
    if reader.problem:
        say(f"gmaflow: {reader.problem}; the readable part was used")
    return {
        **estimator.settings.as_json(),
        "input": str(options.input),
        "output": str(options.output),
        "show": "flow" if options.writes_numbers else options.show,
        "frames": tally.frames,
        "already_there": tally.already_there,
        "cuts": tally.cuts,
        "max_length": output.scale,
        "max_flow": output.scale,  # its earlier name
        "sound": silence or "kept",
        "problem": reader.problem,
        "interrupted": tally.interrupted,
    }


def find_scale(
    estimator: "FlowEstimator",
    reader: VideoReader,
    output: Output,
    options: VideoOptions,
) -> float | None:
    """Return the length at full colour: as given, as kept, or chosen; None if not needed."""
    if not options.draws_colours:
        return None
    scale = options.max_length or output.scale
    if scale is not None:
        return scale
    looks = looks_at_video(reader)
    return choose_scale(
        estimator,
        looks,
        cut_threshold=options.footage.threshold,
        residual=options.fits_camera,
        quiet=options.quiet,
    )


def work_through(
    estimator: "FlowEstimator",
    reader: VideoReader,
    output: Output,
    options: VideoOptions,
    masks: MaskReader | None,
) -> Tally:
    """Read, estimate and write at the same time; an interrupt ends it early and keeps the rest."""
    from gmaflow.inference import estimate_video

    tally = Tally()
    total = None if reader.num_frames is None else reader.num_frames - 1

    draw = partial(
        draw_step,
        show=options.show,
        max_length=output.scale or 1.0,
        legend=options.legend,
        masks=masks,
    )

    def finish(step: "VideoStep") -> None:
        output.write(step, draw)
        tally.frames += 1
        if step.cut:
            tally.cuts.append(round(float(step.time + step.seconds), 3))

    try:
        with (
            progress_bar("frames", quiet=options.quiet) as show_progress,
            write_behind() as later,
            closing(read_ahead(reader.passing_over(inner_frames(output.done)))) as frames,
        ):

            def counted_frames() -> "Iterator[TimedFrame]":
                for number, frame in enumerate(frames):
                    show_progress(number, total)
                    tally.already_there += number - 1 in output.done
                    if frame is not None:  # not passed over
                        yield frame

            for step in estimate_video(
                estimator,
                counted_frames(),
                backward=options.both_ways,
                warm_start=options.warm_start,
                cut_threshold=options.footage.threshold,
                done=output.done,
            ):
                later(partial(finish, step))
    except KeyboardInterrupt:
        if not tally.frames + tally.already_there:
            raise
        tally.interrupted = True
    tally.frames += tally.already_there
    if not tally.frames:
        hint = " (take more with --start, --end or --every)" if options.footage.takes_a_part else ""
        raise ImageError(
            reader.problem or f"{options.input} gives one frame; flow needs at least two{hint}"
        )
    return tally


def inner_frames(done: Iterable[int]) -> set[int]:
    """Return the frames that only finished steps need."""
    finished = set(done)
    return {number for number in finished if number == 0 or number - 1 in finished}


def sentence(report: Report) -> str:
    frames, cuts = counted(report["frames"], "frame"), report["cuts"]
    parts = [f"{frames} of {report['show']}{full_scale(report['max_length'])}"]
    if report["already_there"]:
        parts.append(f"{report['already_there']} already there")
    if cuts:
        where = ", ".join(f"{cut:g}" for cut in cuts[:5]) + (" ..." if len(cuts) > 5 else "")
        parts.append(f"{counted(len(cuts), 'cut')} (at {where} s)")
    if report["sound"] != "none in the source":
        parts.append("sound {sound}".format(**report))
    if report["interrupted"]:
        parts.append("interrupted there")
    how = how_estimated(report)
    return f"wrote {report['output']}: {', '.join(parts)} ({how})"


# --- Where the flow goes: into a video, or into a file for each frame -----------------------------


def check_output(options: VideoOptions) -> None:
    """Refuse outputs that cannot be written, or contradict the options."""
    output = options.output
    refuse_inputs([output], [options.input])
    if options.backward and not (options.into_folder and options.writes_numbers):
        raise OutputError(
            "--backward is for flow files in a folder; --show occlusion draws its result"
        )
    if options.writes_numbers and options.show != "flow":
        remedy = "add --format png for pictures, or give a video"
        raise OutputError(f"{output}: gets flow, not {options.show}; {remedy}")
    if options.into_folder:
        check_output_folder(options)
        return
    what = "a clip of flow" if is_clip(output) else "a video"
    if output.suffix.lower() not in VIDEO_OUTPUTS | CLIP_SUFFIXES:
        known = ", ".join(sorted(VIDEO_OUTPUTS))
        raise OutputError(
            f"{output}: {output.suffix} cannot be written; use {known}, or a folder for flow files"
        )
    if options.format != "flo":
        raise OutputError(f"{output} is {what}; --format is for folders: drop the suffix")
    if options.resume:
        raise OutputError(
            f"{output} is {what}, which cannot be resumed; --resume is for folders: drop the suffix"
        )
    refuse_existing([output], overwrite=options.overwrite)


def check_output_folder(options: VideoOptions) -> None:
    """Refuse an output folder that cannot be written, or contradicts the options."""
    output = options.output
    if options.writes_numbers:
        ensure_can_encode(name_file("flow", ending_of(options.format)))
    record = record_of(output)
    record.check_start(resume=options.resume, overwrite=options.overwrite, among_others=True)
    resumes = options.resume and record.exists()
    if not (resumes or options.overwrite) and output.is_dir() and any(output.iterdir()):
        raise OutputError(f"{output} is not empty; add --overwrite to write into it")
    if options.overwrite:
        refuse_foreign_files(output, options.endings)


def refuse_foreign_files(folder: Path, endings: Sequence[str]) -> None:
    """Refuse to replace numbered files that gmaflow did not write, such as frames of a video."""
    before = endings_before(folder, "video")
    for ending in (ending for ending in endings if ending not in before):
        for path in sorted(folder.glob("*")):
            stem = stem_in(path.name, ending)
            if stem is not None and step_of(stem, ending) is not None:
                raise OutputError(
                    f"{folder} holds {path.name}, which gmaflow video did not write according to "
                    f"{RECORD}; remove such files, or choose another folder"
                )


def why_silent(options: VideoOptions) -> str | None:
    """Return why the result has no sound, or None if it has sound."""
    if not has_sound(options.input):
        return "none in the source"
    if options.into_folder or is_clip(options.output):
        return "left out: files have none"
    if options.output.suffix.lower() in SILENT:
        return f"left out: {options.output.suffix} cannot hold sound"
    return "left out, as requested" if options.no_sound else None


@contextmanager
def open_output(
    options: VideoOptions, reader: VideoReader, *, sound: bool
) -> Iterator["VideoFile | ClipFile | None"]:
    """Give a file to write to, which appears when the block ends well; None for a folder."""
    if options.into_folder:
        yield None
        return
    if is_clip(options.output):
        with create_clip(options.output, bound=options.bound) as clip:
            yield ClipFile(clip)
        return
    with ExitStack() as stack:
        track = stack.enter_context(Sound(options.input, start=reader.start)) if sound else None
        video = stack.enter_context(
            VideoWriter(
                options.output,
                fps=reader.info.fps / options.footage.every,
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
        # The first frame may come a little after the start, and is shown from the start on.
        begin = step.time if step.number else self._start
        seconds = step.time + step.seconds - begin
        self._video.write(draw(step), time=begin - self._start, seconds=seconds)


class ClipFile:
    """A clip that gets the flow of each step."""

    def __init__(self, clip: ClipWriter) -> None:
        self.done: dict[int, Flow | None] = {}
        """Empty: a clip cannot be resumed."""
        self.scale: float | None = None
        self._clip = clip

    def write(self, step: "VideoStep", draw: Draw) -> None:
        """Write the flow of a step, if it has any."""
        del draw
        if step.flow is not None:
            self._clip.add(step.number, step.flow.array)


class FrameFolder(ResultFolder):
    """A folder that gets a numbered file for each step."""

    def __init__(self, options: VideoOptions, estimator: "FlowEstimator") -> None:
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
            source=options.input,
            pair_of=step_of,
            resume=options.resume,
            scale=options.max_length if options.draws_colours else None,
        )
        self.done = {int(name): self.flows.get(name) for name in self.finished}
        """Steps that are finished, with their flow if it is known."""
        self._numbers = holds_numbers(options.format)
        self._bound = options.bound

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
            backward = self.folder / name_file(f"{step.number + 1:06d}", extra[0])
            step.both.backward.save(backward, bound=self._bound)
        step.flow.save(self.folder / name_file(name, ending), bound=self._bound)


def step_of(stem: str, ending: str) -> str | None:
    """Return the step that a numbered file belongs to, or None for any other file.

    Backward flow has the number of the frame that it starts from, which is the next one.
    """
    if not (stem.isascii() and stem.isdecimal() and f"{int(stem):06d}" == stem):
        return None
    number = int(stem) - is_about_second(ending)
    return f"{number:06d}" if number >= 0 else None


# --- Pictures -------------------------------------------------------------------------------------


def draw_step(
    step: "VideoStep",
    show: Show,
    *,
    max_length: float,
    legend: bool = False,
    masks: MaskReader | None = None,
) -> "np.ndarray":
    """Draw a frame and its motion; before a cut, only the frame, and black instead of flow."""
    import numpy as np

    from gmaflow import viz

    image, both, camera = step.image, step.both, None
    if show in ("residual", "moving") and both is not None:
        ignored = None if masks is None else masks.mask(step.number, image.shape)
        camera = both.camera(ignore=ignored)
    flow = None if step.flow is None else step.flow.array
    if show in ("flow", "side-by-side", "residual"):
        vectors = camera.residual if camera else flow
        black = np.zeros_like(image)
        colours = black if vectors is None else viz.flow_to_image(vectors, max_length=max_length)
        colours = viz.add_legend(colours, max_length) if legend else colours
        return np.concatenate([image, colours], axis=1) if show == "side-by-side" else colours
    if show == "arrows":
        known = np.full(image.shape[:2], flow is not None)
        vectors = np.zeros((*image.shape[:2], 2), np.float32) if flow is None else flow
        picture = viz.flow_arrows(image, vectors, max_length=max_length, valid=known)
        return viz.add_legend(picture, max_length) if legend else picture
    if camera is not None:
        return viz.moving_overlay(image, camera.moving)
    if both is not None:
        return viz.occlusion_overlay(image, both.occluded_in, both.occluded_out)
    return image
