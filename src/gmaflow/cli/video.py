"""`gmaflow video`: the flow of a video, as a video or as files."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from gmaflow.cli.options import parse
from gmaflow.cli.outputs import is_folder
from gmaflow.cli.pairs import full_scale, how_estimated, settings, tell_of_breaks
from gmaflow.cli.progress import GOES_ON_IF_ASKED, progress_bar
from gmaflow.cli.scale import choose_scale, looks_at_video
from gmaflow.cli.video_options import VideoOptions, parse_fps, parse_time
from gmaflow.cli.video_outputs import (
    FrameFolder,
    VideoFile,
    check_output,
    open_output,
    why_silent,
    writes_numbers,
)
from gmaflow.cli.video_pictures import draw_step
from gmaflow.errors import NOT_WHOLE, ImageError, counted, say
from gmaflow.io import VideoReader, list_images, read_ahead, write_behind

if TYPE_CHECKING:
    from gmaflow.inference import FlowEstimator, VideoStep
    from gmaflow.io import TimedFrame

USUAL_FPS = "25"


@dataclass
class Tally:
    """What was done so far."""

    frames: int = 0
    already_there: int = 0
    """How many of them were there before."""
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
        goes_on = is_folder(options.target)
        raise KeyboardInterrupt(GOES_ON_IF_ASKED if goes_on else "what was done is there")
    if report["problem"]:
        sys.exit(NOT_WHOLE)


def run(options: VideoOptions) -> dict[str, object]:
    """Estimate and write the flow of a video; returns what there is to say about it."""
    check_output(options)
    reader = open_input(options)
    silence = why_silent(options)
    # Before anything is estimated: a place that cannot be written to is told at once.
    with open_output(options, reader, sound=silence is None) as video:
        estimator = options.estimator.make()
        output = video or FrameFolder(options, estimator)
        output.scale = find_scale(estimator, reader, output, options)
        tally = work_through(estimator, reader, output, options)
    if reader.problem:
        say(f"gmaflow: {reader.problem}; what could be read was used")
    return {
        **settings(estimator),
        "input": str(options.input),
        "output": str(options.output),
        "show": "flow" if writes_numbers(options) else options.show,
        "frames": tally.frames,
        "already_there": tally.already_there,
        "cuts": tally.cuts,
        "max_flow": output.scale,
        "sound": silence or "kept",
        "problem": reader.problem,
        "interrupted": tally.interrupted,
    }


def open_input(options: VideoOptions) -> VideoReader:
    """Look at the video."""
    if options.input.is_dir():
        tell_of_breaks(list_images(options.input))
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
    """Return the length at full colour: as asked for, as kept, or chosen; None if not needed."""
    if writes_numbers(options) or options.show == "occlusion":
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
    """Read, estimate and write at the same time; an interrupt ends it early and well.

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
    """Give the frames that were not passed over; of those that were, tell how many are done."""
    for number, frame in enumerate(frames):
        show(number)
        tally.already_there += number - 1 in output.done
        if frame is not None:
            yield frame


def inner_frames(done: Iterable[int]) -> set[int]:
    """Return the frames that are part of no step but finished ones."""
    finished = set(done)
    return {number for number in finished if number == 0 or number - 1 in finished}


def sentence(report: dict[str, object]) -> str:
    """Return a report as a person would say it."""
    frames, cuts = report["frames"], report["cuts"]
    assert isinstance(frames, int)
    assert isinstance(cuts, list)
    parts = [f"{counted(frames, 'frame')} of {report['show']}{full_scale(report['max_flow'])}"]
    if report["already_there"]:
        parts.append(f"{report['already_there']} were there already")
    if cuts:
        where = ", ".join(f"{cut:g}" for cut in cuts[:5]) + (" ..." if len(cuts) > 5 else "")
        parts.append(f"{counted(len(cuts), 'cut')} (at {where} s)")
    if report["sound"] != "none in the source":
        parts.append("sound {sound}".format(**report))
    if report["interrupted"]:
        parts.append("interrupted there")
    how = how_estimated(report)
    return f"wrote {report['output']}: {', '.join(parts)} ({how})"
