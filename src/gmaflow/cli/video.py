"""`gmaflow video`: the flow of a video, as a video or as files."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import tyro

from gmaflow.cli.options import (
    CONTINUES_WITH_RESUME,
    PART_IS_KEPT,
    Bound,
    Estimator,
    EstimatorOptions,
    Footage,
    FootageOptions,
    Ignore,
    Json,
    Report,
    Reporting,
    parse,
    parse_fps,
    parse_time,
    run_and_report,
)
from gmaflow.cli.outputs import (
    FileFormat,
    OutputKind,
    backward_ending,
    describe_settings,
    ending_of,
    full_scale,
    holds_numbers,
    is_folder,
    refuse_existing,
    refuse_inputs,
)
from gmaflow.cli.pipeline import (
    ClipFile,
    FrameNames,
    Output,
    Pair,
    PairFolder,
    choose_scale,
    estimate_frames,
    make_settings,
    record_of,
    refuse_foreign_files,
    warn_about_breaks,
)
from gmaflow.errors import FlowError, ImageError, OutputError, counted, print_stderr
from gmaflow.io import (
    CLIP_SUFFIXES,
    USUAL_BOUND,
    VIDEO_OUTPUTS,
    MaskReader,
    Sound,
    VideoReader,
    VideoWriter,
    check_bound,
    create_clip,
    ensure_can_encode,
    has_sound,
    is_clip,
    list_images,
    name_file,
    write_image,
)
from gmaflow.io.images import check_positive

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.inference import FlowEstimator, VideoStep

Draw: TypeAlias = "Callable[..., np.ndarray]"
"""Draws a pair, given its `max_length`."""
Show = Literal["flow", "side-by-side", "arrows", "occlusion", "residual", "moving"]

SILENT = (".gif",)


@dataclass(frozen=True, kw_only=True)
class VideoOptions(Reporting):
    """Estimate the flow of a video.

    The input is a video (.mp4 .mov .webm .gif and more) or a folder of frames; the output is a
    video: .mp4 .mov .mkv .webm .gif. An output without suffix, or with a slash at its end, is a
    folder and gets a file for each frame. The flow of all frames also fits into one small file: .h5
    (float16) or .tar (8 bits).

    --show picks colours, arrows, occlusion, or what moves independently of the camera (residual,
    moving); the last three need flow in both directions. Every frame but the last is shown with its
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
    moving: what moves independently, highlighted."""
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
    def endings(self) -> dict[OutputKind, str]:
        """The files of a frame in a folder, and how their names end."""
        ending = ending_of(self.format)
        if not holds_numbers(self.format):
            return {OutputKind.PICTURE: ending}
        backward = {OutputKind.BACKWARD: backward_ending(ending)} if self.backward else {}
        return {**backward, OutputKind.FLOW: ending}

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
        check_positive("--max-length", self.max_length)
        check_bound(self.bound)
        if self.ignore is not None and not self.fits_camera:
            raise FlowError(
                "--ignore leaves pixels out of the camera's motion; it needs --show residual or "
                "--show moving"
            )


def main(args: list[str]) -> None:
    options = parse(VideoOptions, args, verb="video")
    options.check()
    on_interrupt = CONTINUES_WITH_RESUME if options.into_folder else PART_IS_KEPT
    run_and_report(run, options, sentence, on_interrupt=on_interrupt)


def run(options: VideoOptions) -> Report:
    """Estimate and write the flow of a video; returns the report."""
    check_output(options)
    if options.input.is_dir():
        warn_about_breaks(list_images(options.input))
    reader = options.footage.open(options.input, scale=options.scale)
    masks = None if options.ignore is None else MaskReader(options.ignore, clip=reader)
    silence = why_silent(options)
    draw = partial(draw_step, show=options.show, legend=options.legend, masks=masks)
    # Opened before anything is estimated, to report at once if it cannot be written.
    with open_output(options, reader, draw, sound=silence is None) as file:
        estimator = options.estimator.make()
        output = file or open_folder(options, estimator, draw)
        if masks is not None:
            output.threads = 1  # masks are read in order
        if output.scale is None and options.draws_colours:
            output.scale = options.max_length or choose_scale(
                estimator,
                reader,
                cut_threshold=options.footage.threshold,
                residual=options.fits_camera,
                quiet=options.quiet,
            )
        tally = estimate_frames(
            estimator,
            reader,
            output,
            quiet=options.quiet,
            backward=options.both_ways,
            warm_start=options.warm_start,
            cut_threshold=options.footage.threshold,
        )
        if not tally.finished:
            more = " (take more with --start, --end or --every)"
            hint = more if options.footage.takes_a_part else ""
            raise ImageError(
                reader.problem or f"{options.input} gives one frame; flow needs at least two{hint}"
            )
    if reader.problem:
        print_stderr(f"gmaflow: {reader.problem}; the readable part was used")
    return {
        **estimator.settings.as_json(),
        "input": str(options.input),
        "output": str(options.output),
        "show": "flow" if options.writes_numbers else options.show,
        "frames": tally.finished,
        "already_there": tally.already_there,
        "cuts": tally.cuts,
        "max_length": output.scale,
        "sound": silence or "kept",
        "problem": reader.problem,
        "interrupted": tally.interrupted,
    }


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
    settings = describe_settings(report)
    return f"wrote {report['output']}: {', '.join(parts)} ({settings})"


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
        suffixes = ", ".join(sorted(VIDEO_OUTPUTS))
        raise OutputError(
            f"{output}: {output.suffix} cannot be written; use {suffixes}, or a folder for flow "
            "files"
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
        refuse_foreign_files(output, options.endings.values(), verb="video")


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
    options: VideoOptions, reader: VideoReader, draw: Draw, *, sound: bool
) -> Iterator["VideoFile | ClipFile | None"]:
    """Yield a file to write to, which appears when the block succeeds; None for a folder."""
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
        yield VideoFile(video, reader.start, draw)


class VideoFile(Output):
    """A video that gets a frame for each pair; it cannot be resumed."""

    def __init__(self, video: VideoWriter, start: Fraction, draw: Draw) -> None:
        """Write to an open video that plays from `start` on."""
        super().__init__()
        self._video = video
        self._start = start
        self._draw = draw

    def write(self, pair: Pair) -> Callable[[], None]:
        # The first frame may come a little after the start, and is shown from the start on.
        begin = pair.time if pair.number else self._start
        seconds = pair.time + pair.seconds - begin
        picture = self._draw(pair, max_length=self.scale or 1.0)
        return partial(self._video.write, picture, time=begin - self._start, seconds=seconds)


def open_folder(options: VideoOptions, estimator: "FlowEstimator", draw: Draw) -> PairFolder:
    settings = make_settings(
        estimator,
        verb="video",
        source=options.input,
        endings=options.endings.values(),
        warm_start=options.warm_start,
        **options.file_settings,
    )

    def write_files(pair: Pair, paths: Mapping[OutputKind, Path], scale: float | None) -> None:
        for part, path in paths.items():
            if part is OutputKind.PICTURE:
                write_image(path, draw(pair, max_length=scale or 1.0))
            elif part is OutputKind.BACKWARD and pair.both is not None:
                pair.both.backward.save(path, bound=options.bound)
            elif pair.flow is not None:
                pair.flow.save(path, bound=options.bound)

    return PairFolder(
        options.output,
        settings,
        source=options.input,
        endings=options.endings,
        names=FrameNames(),
        write_files=write_files,
        resume=options.resume,
        scale=options.max_length if options.draws_colours else None,
    )


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
        mask = np.full(image.shape[:2], flow is not None)
        vectors = np.zeros((*image.shape[:2], 2), np.float32) if flow is None else flow
        picture = viz.flow_arrows(image, vectors, max_length=max_length, valid=mask)
        return viz.add_legend(picture, max_length) if legend else picture
    if camera is not None:
        return viz.moving_overlay(image, camera.moving)
    if both is not None:
        return viz.occlusion_overlay(image, both.occluded_in, both.occluded_out)
    return image
