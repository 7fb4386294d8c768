"""`gmaflow video`: the flow of a video, as a video or as files."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gmaflow.cli.options import Estimator, EstimatorOptions, check_length, parse
from gmaflow.cli.outputs import (
    FOLDER_NAMES,
    FileFormat,
    Part,
    ending_of,
    full_scale,
    holds_numbers,
    how_estimated,
    is_folder,
    settings,
)
from gmaflow.cli.progress import GOES_ON_IF_ASKED, progress_bar
from gmaflow.cli.result_folder import warn_about_breaks
from gmaflow.cli.scale import choose_scale, looks_at_video
from gmaflow.cli.video_outputs import (
    FrameFolder,
    Show,
    VideoFile,
    check_output,
    draw_step,
    open_output,
    why_silent,
)
from gmaflow.errors import NOT_WHOLE, FlowError, ImageError, counted, say
from gmaflow.io import VideoReader, list_images, read_ahead, write_behind

if TYPE_CHECKING:
    from gmaflow.inference import FlowEstimator, VideoStep
    from gmaflow.io import TimedFrame

USUAL_FPS = "25"


@dataclass(frozen=True, kw_only=True)
class VideoOptions:
    """Estimate the flow of a video.

    The input is a video (.mp4 .mov .webm .gif and more) or a folder of frames; the output is a
    video: .mp4 .mov .mkv .webm .gif. An output without suffix, or with a slash at its end, is a
    folder and gets a file for each frame.

    --show picks colours, arrows, or occlusion, which needs flow in both directions. Every frame but
    the last is shown with its motion to the next one, at its own time, so speed and sound stay the
    same. Before a cut there is no flow: colours are black, arrows and occlusion are left out, and
    no flow file is written. Ctrl-C ends the video early; the result can be played. A damaged video,
    or one that changes its size, is used as far as possible; the exit code is then 1.

    For a folder, the same command with --resume continues: finished frames are not estimated again,
    and the scale of the colours is kept. A warm start continues from the last flow and gives the
    same files; if a frame in the middle is missing, it is estimated without a warm start.

    Examples:
      gmaflow video in.mp4 -o flow.mp4
      gmaflow video in.mp4 -o both.mp4 --show side-by-side --legend
      gmaflow video in.mov -o hidden.webm --show occlusion --start 1:05 --end 1:20 --scale 0.5
      gmaflow video frames/ -o arrows.gif --show arrows --fps 12 --every 2
      gmaflow video in.mp4 -o flow/ --format npz --warm-start
      gmaflow video in.mp4 -o flow/ --format npz --warm-start --resume
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="VIDEO | FOLDER")]
    """A video, or a folder of frames in natural order."""
    target: Annotated[str, tyro.conf.arg(name="output", aliases=["-o"], metavar="PATH")]
    """A video, or a folder that gets a file for each frame."""
    estimator: Estimator = field(default_factory=EstimatorOptions)
    show: Show = "flow"
    """Colours, with or without the source next to them; arrows; or occlusion: hidden in the next
    frame (orange), out of it (blue)."""
    format: FileFormat = "flo"
    """Folders: the format of flow files, or png for the pictures that --show picks."""
    backward: bool = False
    """Folders of flow files: also write the flow from each frame back to the previous one, under
    the number of the frame whose motion it is."""
    start: Annotated[str, tyro.conf.arg(metavar="TIME")] = "0"
    """Where to begin: seconds, m:s or h:m:s."""
    end: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = None
    """Where to end."""
    every: int = 1
    """Use only every n-th frame; the speed stays the same, the motions get longer."""
    scale: float = 1.0
    """Resize frames first: 0.5 is much faster; the flow is in pixels of the resized frames."""
    fps: Annotated[str | None, tyro.conf.arg(metavar="NUMBER")] = None
    """Folders of frames: frames per second, such as 12, 29.97 or 30000/1001; 25 by default."""
    max_flow: Annotated[float | None, tyro.conf.arg(metavar="PX", aliases=["--max-length"])] = None
    """Length at which colours are full; by default from pairs spread over the video."""
    legend: bool = False
    """Colours and arrows: draw the colour wheel and its scale in a corner."""
    warm_start: bool = False
    """Start each pair from the flow of the previous pair."""
    cut_threshold: float = 0.4
    """Frames that differ more belong to two shots: 0 is identical, 1 is unrelated."""
    no_cuts: bool = False
    """Estimate flow across cuts too."""
    no_sound: bool = False
    """Leave the sound out."""
    resume: bool = False
    """Folders: skip finished frames; refused if flow.json has other settings."""
    overwrite: bool = False
    """Replace outputs that exist; in a folder, all numbered files of the format."""
    json: bool = False
    """Print a JSON object instead of a sentence."""

    @property
    def output(self) -> Path:
        """The output as a path."""
        return Path(self.target)

    @cached_property
    def into_folder(self) -> bool:
        """Whether the output is a folder."""
        return is_folder(self.target)

    @property
    def writes_numbers(self) -> bool:
        """Whether flow files are written, for which nothing is drawn."""
        return self.into_folder and holds_numbers(self.format)

    @property
    def draws_colours(self) -> bool:
        """Whether lengths are drawn, for which a scale is needed."""
        return not self.writes_numbers and self.show != "occlusion"

    @property
    def threshold(self) -> float | None:
        """The threshold of cuts; None if flow is estimated across them."""
        return None if self.no_cuts else self.cut_threshold

    @property
    def both_ways(self) -> bool:
        """Whether backward flow is needed."""
        return self.backward or self.show == "occlusion"

    @property
    def endings(self) -> tuple[str, ...]:
        """How the names of a folder's files end, the flow last."""
        ending = ending_of(self.format)
        return (f"{FOLDER_NAMES[Part.BACKWARD]}{ending}", ending) if self.backward else (ending,)

    @property
    def file_settings(self) -> dict[str, object]:
        """The options that the files of a folder depend on."""
        return {
            "show": self.show,
            "legend": self.legend,
            "start": float(parse_time(self.start)),
            "end": None if self.end is None else float(parse_time(self.end)),
            "every": self.every,
            "scale": self.scale,
            "fps": None if self.fps is None else float(parse_fps(self.fps)),
            "cut_threshold": self.threshold,
        }

    @property
    def takes_a_part(self) -> bool:
        """Whether some frames are left out."""
        return (self.start, self.end, self.every) != ("0", None, 1)

    def check(self) -> None:
        """Refuse options that are out of range.

        Raises:
            FlowError: An option is.
        """
        if self.fps is not None and not self.input.is_dir():
            raise FlowError("--fps is for folders of frames; a video keeps its own times")
        check_length("--max-flow", self.max_flow)
        if not 0 < self.cut_threshold <= 2:
            raise FlowError(
                f"--cut-threshold {self.cut_threshold:g} is out of range; give a number such as "
                "0.4, or --no-cuts"
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
    """Run the verb."""
    options = parse(VideoOptions, args, verb="video")
    options.check()
    started = time.perf_counter()
    report = run(options)
    report["seconds"] = round(time.perf_counter() - started, 2)
    print(json.dumps(report, indent=2) if options.json else sentence(report))
    if report["interrupted"]:
        kept = GOES_ON_IF_ASKED if options.into_folder else "the finished part is kept"
        raise KeyboardInterrupt(kept)
    if report["problem"]:
        sys.exit(NOT_WHOLE)


def run(options: VideoOptions) -> dict[str, object]:
    """Estimate and write the flow of a video; returns the report."""
    check_output(options)
    reader = open_input(options)
    silence = why_silent(options)
    # Before anything is estimated: a place that cannot be written to is reported at once.
    with open_output(options, reader, sound=silence is None) as video:
        estimator = options.estimator.make()
        output = video or FrameFolder(options, estimator)
        output.scale = find_scale(estimator, reader, output, options)
        tally = work_through(estimator, reader, output, options)
    if reader.problem:
        say(f"gmaflow: {reader.problem}; the readable part was used")
    return {
        **settings(estimator),
        "input": str(options.input),
        "output": str(options.output),
        "show": "flow" if options.writes_numbers else options.show,
        "frames": tally.frames,
        "already_there": tally.already_there,
        "cuts": tally.cuts,
        "max_flow": output.scale,
        "sound": silence or "kept",
        "problem": reader.problem,
        "interrupted": tally.interrupted,
    }


def open_input(options: VideoOptions) -> VideoReader:
    """Open the video or folder of frames."""
    if options.input.is_dir():
        warn_about_breaks(list_images(options.input))
    return VideoReader(
        options.input,
        start=parse_time(options.start),
        end=None if options.end is None else parse_time(options.end),
        every=options.every,
        scale=options.scale,
        fps=parse_fps(options.fps or USUAL_FPS),
    )


def find_scale(
    estimator: "FlowEstimator",
    reader: VideoReader,
    output: VideoFile | FrameFolder,
    options: VideoOptions,
) -> float | None:
    """Return the length at full colour: as given, as kept, or chosen; None if not needed."""
    if not options.draws_colours:
        return None
    scale = options.max_flow or output.scale
    if scale is not None:
        return scale
    looks = looks_at_video(reader)
    return choose_scale(estimator, looks, cut_threshold=options.threshold, quiet=options.json)


def work_through(
    estimator: "FlowEstimator",
    reader: VideoReader,
    output: VideoFile | FrameFolder,
    options: VideoOptions,
) -> Tally:
    """Read, estimate and write at the same time; an interrupt ends it early and keeps the result.

    Raises:
        ImageError: There are no two frames.
    """
    from gmaflow.inference import estimate_video

    tally = Tally()
    total = None if reader.num_frames is None else reader.num_frames - 1

    draw = partial(
        draw_step, show=options.show, max_length=output.scale or 1.0, legend=options.legend
    )

    def finish(step: "VideoStep") -> None:
        output.write(step, draw)
        tally.frames += 1
        if step.cut:
            tally.cuts.append(round(float(step.time + step.seconds), 3))

    try:
        with (
            progress_bar("video", quiet=options.json) as show_progress,
            write_behind() as later,
            closing(read_ahead(reader.passing_over(inner_frames(output.done)))) as frames,
        ):
            for step in estimate_video(
                estimator,
                count_frames(frames, output, tally, lambda number: show_progress(number, total)),
                backward=options.both_ways,
                warm_start=options.warm_start,
                cut_threshold=options.threshold,
                done=output.done,
            ):
                later(partial(finish, step))
    except KeyboardInterrupt:
        if not tally.frames + tally.already_there:
            raise
        tally.interrupted = True
    tally.frames += tally.already_there
    if not tally.frames:
        hint = " (take more with --start, --end or --every)" if options.takes_a_part else ""
        raise ImageError(
            reader.problem or f"{options.input} gives one frame; flow needs at least two{hint}"
        )
    return tally


def count_frames(
    frames: "Iterable[TimedFrame | None]",
    output: VideoFile | FrameFolder,
    tally: Tally,
    show: Callable[[int], None],
) -> "Iterator[TimedFrame]":
    """Yield the frames that were not passed over, and count finished ones."""
    for number, frame in enumerate(frames):
        show(number)
        tally.already_there += number - 1 in output.done
        if frame is not None:
            yield frame


def inner_frames(done: Iterable[int]) -> set[int]:
    """Return the frames that only finished steps need."""
    finished = set(done)
    return {number for number in finished if number == 0 or number - 1 in finished}


def sentence(report: dict[str, object]) -> str:
    """Return a report in words."""
    frames, cuts = report["frames"], report["cuts"]
    assert isinstance(frames, int)
    assert isinstance(cuts, list)
    parts = [f"{counted(frames, 'frame')} of {report['show']}{full_scale(report['max_flow'])}"]
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


def parse_fps(text: str) -> Fraction:
    """Read frames per second: a number or a fraction; 29.97 means 30000/1001, as in television.

    Raises:
        FlowError: It is not a number, or out of range.
    """
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if not Fraction(1, 1000) <= rate <= 1000:
        raise FlowError(f"--fps {text} is not a frame rate; give 0.001 to 1000")
    of_television = Fraction(1000 * round(rate * 1001 / 1000), 1001)
    is_meant = rate > 1 and rate.denominator > 1 and abs(rate - of_television) < Fraction(1, 200)
    return of_television if is_meant else rate.limit_denominator(1001)


def parse_time(text: str) -> Fraction:
    """Read a time: seconds, m:s or h:m:s.

    Raises:
        FlowError: It is not a time.
    """
    parts = text.split(":")
    try:
        numbers = [Fraction(part) for part in parts]
    except (ValueError, ZeroDivisionError):
        numbers = []
    if not 1 <= len(numbers) <= 3 or min(numbers) < 0:
        raise FlowError(
            f"{text!r} is not a time; give seconds such as 12.5, or h:m:s such as 0:01:30"
        )
    seconds = Fraction(0)
    for number in numbers:
        seconds = 60 * seconds + number
    return seconds
