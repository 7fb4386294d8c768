"""`gmaflow track`: where the points of one frame are in every other frame of a video."""

import csv
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gmaflow.cli.options import (
    Estimator,
    EstimatorOptions,
    Footage,
    FootageOptions,
    Ignore,
    Json,
    Reporting,
    parse,
    parse_points,
    progress_bar,
    run_and_report,
)
from gmaflow.cli.outputs import (
    describe_settings,
    is_folder,
    refuse_existing,
    refuse_inputs,
)
from gmaflow.cli.pipeline import record_of, refuse_foreign_files, start_over
from gmaflow.errors import FlowError, ImageError, OutputError, counted, os_reason, print_stderr
from gmaflow.io import (
    VIDEO_OUTPUTS,
    MaskReader,
    VideoReader,
    VideoWriter,
    ensure_can_encode,
    ensure_can_fill,
    read_ahead,
    read_mask,
    write_image,
)
from gmaflow.io.paths import TRACK_SUFFIXES

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.inference import FlowEstimator, TrackedFrame, Tracks

COLMAP = ".colmap"
MAP_FILES, COLMAP_FILES = (".exr",), ("images/*.png", "features/*.png.txt")
"""The files of a frame in a folder, and how their names end."""
LARGEST = 4e9
"""Bytes of tracks that are collected in memory; more are only written frame by frame."""
REPORTED_BYTES = 1e9
"""Memory of tracking above which it is reported."""
_BYTES = 8 + 1 + 4  # position, visible, confidence
_FRAME_BYTES = 110  # for each pixel, of up to seven frames
_FEATURE_BYTES = 220  # for each pixel and view, of their features
_DENSE_BYTES = 300  # for each pixel that is tracked, measured


@dataclass(frozen=True, kw_only=True)
class TrackOptions(Reporting):
    """Find where points of one frame are in every other frame, and when they are visible.

    The input is a video or a folder of frames. The points are a grid over the reference frame, a
    part of it (--mask), or chosen ones (--points). A point that is hidden for a while comes back. A
    cut ends all tracks.

    The output can be given more than once: .npz (arrays points, reference, positions, visible and
    confidence), .csv (a row for each point and frame), a video with trails (.mp4 .mov .mkv .webm
    .gif), in which hidden stretches are dotted. NAME.colmap becomes a folder with images, features
    and matches for COLMAP. Any other folder gets an STMap for each frame, an .exr that warps the
    frame onto the reference, for every pixel; its memory does not grow with the video.

    Examples:
      gmaflow track in.mp4 -o tracks.npz -o trails.mp4
      gmaflow track in.mp4 -o points.csv --points 120,80 --points 300.5,200 --reference 12
      gmaflow track frames/ -o trails.gif --grid 16 --mask person.png --fps 12
      gmaflow track in.mp4 -o stmaps/ --reference 40
      gmaflow track in.mp4 -o shot.colmap --grid 12 --ignore people/
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="VIDEO | FOLDER")]
    """A video, or a folder of frames in natural order."""
    targets: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(name="output", aliases=["-o"], metavar="PATH"),
    ] = ()
    """A file of tracks, a video with trails, a .colmap folder, or a folder for STMaps."""
    estimator: Estimator = field(default_factory=EstimatorOptions)
    points: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="X,Y")] = ()
    """A point of the reference frame."""
    points_file: Annotated[Path | None, tyro.conf.arg(metavar="CSV")] = None
    """A file with x and y of one point per line."""
    grid: Annotated[int | None, tyro.conf.arg(metavar="PX")] = None
    """Distance between the points of a grid; by default 24 points along the shorter side, but at
    least 8 px."""
    mask: Annotated[Path | None, tyro.conf.arg(metavar="IMAGE")] = None
    """An image of the frames' size: only its bright pixels are tracked."""
    ignore: Ignore = None
    """White pixels are not tracked, and points in them are not visible: an image, or a folder or
    video with a mask for each frame."""
    reference: int = 0
    """The frame that the points are given in, counted from 0."""
    footage: Footage = field(default_factory=FootageOptions)
    scale: float = 1.0
    """Resize frames first; positions are in pixels of the resized frames."""
    trail: int = 12
    """Videos: how many frames a trail goes back."""
    overwrite: Annotated[bool, tyro.conf.arg(aliases=["-f", "-y"])] = False
    """Replace outputs that exist; in a folder, all files of an earlier run."""
    json: Json = False

    @property
    def folder(self) -> Path | None:
        """The folder for STMaps, if there is one."""
        return next(
            (Path(t) for t in self.targets if not is_colmap(t) and is_folder(t)),
            None,
        )

    @property
    def colmap(self) -> list[Path]:
        return [Path(target) for target in self.targets if is_colmap(target)]

    @property
    def files(self) -> list[Path]:
        """The other outputs."""
        return [Path(t) for t in self.targets if not is_colmap(t) and not is_folder(t)]

    def check(self) -> None:
        """Refuse options that are out of range or contradict each other."""
        if not self.targets:
            raise OutputError("there is no output; add -o tracks.npz, or -o trails.mp4")
        self.footage.check(self.input)
        if self.reference < 0:
            raise FlowError(f"there is no frame {self.reference}; frames count from 0")
        if self.grid is not None and self.grid < 1:
            raise FlowError(f"--grid {self.grid} is too small; give 1 or more pixels")
        if self.trail < 1:
            raise FlowError(f"--trail {self.trail} is too short; give 1 or more frames")
        if (self.points or self.points_file) and (self.grid or self.mask):
            raise FlowError("--points cannot be combined with --grid or --mask; drop one of them")
        if self.folder is not None and (len(self.targets) > 1 or self.picks_points):
            raise OutputError(
                f"{self.folder}: a folder gets STMaps of every pixel; give it as the only output, "
                "without --points, --grid and --mask"
            )

    @property
    def picks_points(self) -> bool:
        """Whether the user chose what to track."""
        return bool(self.points or self.points_file or self.grid or self.mask)


def main(args: list[str]) -> None:
    """Run the verb."""
    options = parse(TrackOptions, args, verb="track")
    options.check()
    run_and_report(run, options, sentence)


def run(options: TrackOptions) -> dict[str, object]:
    """Track, and write the outputs; returns the report."""
    check_outputs(options)
    reader = options.footage.open(options.input, scale=options.scale)
    masks = None if options.ignore is None else MaskReader(options.ignore, clip=reader)
    size = frame_size(reader, options.reference)
    points = None if options.folder else choose_points(options, size, masks)
    refuse_large_tracks(reader, points)
    estimator = options.estimator.make()
    report_memory(size, points, estimator.views)
    ignore = None if masks is None else partial(masks.mask, size=size, may_be_whole=True)
    tracked = track_frames(options, estimator, reader, points, ignore)
    if options.folder:
        count, cuts = write_maps(options, options.folder, tracked)
        report: dict[str, object] = {"points": "every pixel", "visible": None}
    else:
        tracks, cuts = collect(tracked)
        count = len(tracks.visible)
        report = {"points": tracks.visible.shape[1], "visible": float(tracks.visible.mean())}
        for path in options.files:
            if path.suffix.lower() in TRACK_SUFFIXES:
                tracks.save(path)
            else:
                write_video(options, path, reader, tracks)
        for folder in options.colmap:
            write_colmap(options, folder, reader, tracks)
    if reader.problem:
        print_stderr(f"gmaflow: {reader.problem}; the readable part was used")
    return {
        **estimator.settings.as_json(),
        "input": str(options.input),
        "outputs": list(options.targets),
        **report,
        "reference": options.reference,
        "frames": count,
        "cuts": cuts,
        "problem": reader.problem,
    }


def check_outputs(options: TrackOptions) -> None:
    """Refuse outputs that cannot be written, before any work is done for them."""
    for path in options.files:
        if path.suffix.lower() not in (*TRACK_SUFFIXES, *VIDEO_OUTPUTS):
            names = ", ".join([*TRACK_SUFFIXES, COLMAP, *sorted(VIDEO_OUTPUTS)])
            raise OutputError(f"{path}: tracks are not written as {path.suffix}; use {names}")
    refuse_inputs(options.files, [options.input])
    refuse_existing(options.files, overwrite=options.overwrite)
    if options.folder is not None:
        ensure_can_encode("map.exr")
    folders: dict[Path, tuple[str, ...]] = dict.fromkeys(options.colmap, COLMAP_FILES)
    if options.folder is not None:
        folders[options.folder] = MAP_FILES
    for folder, endings in folders.items():
        places = {folder, *((folder / ending).parent for ending in endings)}
        refuse_inputs(sorted(places), [options.input])
        ensure_can_fill(folder)
        if folder.is_dir() and any(folder.iterdir()) and not options.overwrite:
            raise OutputError(f"{folder} is not empty; add --overwrite to write into it")
        record_of(folder).check_start(resume=False, overwrite=True, among_others=True)
        refuse_foreign_files(folder, endings, verb="track")


def choose_points(
    options: TrackOptions, size: tuple[int, int], masks: MaskReader | None
) -> "np.ndarray":
    """Return the points to track, as chosen or on a grid outside of ignored pixels."""
    import numpy as np

    from gmaflow.inference import default_spacing, grid_points
    from gmaflow.io.images import check_same_size

    if options.points or options.points_file:
        chosen = [*parse_points("--points", options.points), *read_points(options.points_file)]
        return np.array(chosen, np.float32)
    height, width = size
    mask = np.ones((height, width), bool)
    if options.mask is not None:
        mask = read_mask(options.mask)
        check_same_size(
            {f"the mask {options.mask}": mask, "the frames": size},
            remedy="give a mask of the frames' size",
        )
    if masks is not None:
        mask &= ~masks.mask(options.reference, size)
    spacing = options.grid or default_spacing(height, width)
    points = grid_points(height, width, spacing, mask=mask)
    if not len(points):
        what = f"{options.mask} selects" if options.mask else f"{options.ignore} leaves"
        if options.mask and options.ignore:
            what = f"{options.mask} without {options.ignore} selects"
        raise FlowError(
            f"{what} no point of a grid of {spacing} px; make the selected area larger, or --grid "
            "smaller"
        )
    return points


def read_points(path: Path | None) -> list[tuple[float, float]]:
    """Read a file with x and y of a point in each line; a first line of names is left out."""
    if path is None:
        return []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, row) for row in reader if row]
    except FileNotFoundError:
        raise FlowError(f"{path} does not exist; give a file with x,y in each line") from None
    except OSError as err:
        raise FlowError(
            f"{path} cannot be read ({os_reason(err)}); give a file with x,y in each line"
        ) from None
    except (UnicodeDecodeError, csv.Error) as err:
        raise FlowError(f"{path} cannot be read as CSV ({err})") from None
    if rows and [name.strip().lower() for name in rows[0][1][:2]] == ["x", "y"]:
        del rows[0]
    if not rows:
        raise FlowError(f"{path} has no points; write x,y such as 120,80 into each line")
    return [
        point
        for line, row in rows
        for point in parse_points(f"{path}, line {line}:", [",".join(row)])
    ]


def frame_size(reader: VideoReader, number: int) -> tuple[int, int]:
    """The height and width of a frame as it is read.

    Raises:
        ImageError: There is no such frame.
    """
    from gmaflow.inference.tracking import no_such_frame

    count = 0
    with closing(reader.passing_over(range(number))) as frames:
        for frame in frames:
            if frame is not None:
                return frame.image.shape[:2]
            count += 1
    raise ImageError(reader.problem) if reader.problem else no_such_frame(number, count)


def refuse_large_tracks(reader: VideoReader, points: "np.ndarray | None") -> None:
    """Refuse tracks that are too large to collect."""
    frames = reader.num_frames
    if points is None or frames is None:
        return
    size = len(points) * frames * _BYTES
    if size > LARGEST:
        raise FlowError(
            f"tracks of {counted(len(points), 'point')} through {counted(frames, 'frame')} take "
            f"{size / 1e9:.0f} GB of memory; give a larger --grid, or a folder, which gets one "
            "file after the other"
        )


def report_memory(size: tuple[int, int], points: "np.ndarray | None", views: int) -> None:
    """Report the memory of large frames."""
    height, width = size
    each = _FRAME_BYTES + _FEATURE_BYTES * views + (_DENSE_BYTES if points is None else 0)
    needed = height * width * each
    if needed > REPORTED_BYTES:
        what = f"every pixel of {height}x{width}" if points is None else f"{height}x{width}"
        print_stderr(
            f"gmaflow: tracking {what} keeps up to {needed / 1e9:.1f} GB, in addition to the "
            "memory of the network (which --max-memory limits)"
        )


def track_frames(
    options: TrackOptions,
    estimator: "FlowEstimator",
    reader: VideoReader,
    points: "np.ndarray | None",
    ignore: "Callable[[int], np.ndarray] | None",
) -> "Iterator[TrackedFrame]":
    """Track through the frames of the reader, and show progress."""
    with (
        progress_bar("frames", quiet=options.quiet) as show_progress,
        closing(read_ahead(reader)) as frames,
    ):
        tracked = estimator.track(
            (frame.image for frame in frames),
            points,
            reference=options.reference,
            cut_threshold=options.footage.threshold,
            ignore=ignore,
        )
        try:
            for done, frame in enumerate(tracked, 1):
                show_progress(done, reader.num_frames)
                yield frame
        except ImageError as err:
            if reader.problem is None and str(options.input) in str(err):
                raise
            # A problem is why there are too few frames.
            raise ImageError(reader.problem or f"{options.input}: {err}") from None


def collect(tracked: "Iterator[TrackedFrame]") -> "tuple[Tracks, list[int]]":
    """Collect the tracks; also return the frames at which cuts end them."""
    from gmaflow.inference import Tracks

    frames = list(tracked)
    return Tracks.collect(frames), find_cuts([(frame.number, frame.cut) for frame in frames])


def write_maps(
    options: TrackOptions, folder: Path, tracked: "Iterator[TrackedFrame]"
) -> tuple[int, list[int]]:
    """Write an STMap for each frame; beyond a cut there is none."""
    from gmaflow.inference import st_map
    from gmaflow.io import atomic_write
    from gmaflow.io.exr import write_exr_map

    frames = []
    # A single frame is an error: then nothing has been written.
    first = list(islice(tracked, 2))
    start_over(folder, MAP_FILES, verb="track", source=options.input)
    for frame in chain(first, tracked):
        frames.append((frame.number, frame.cut))
        if not frame.cut:
            with atomic_write(folder / f"{frame.number:06d}.exr") as file:
                write_exr_map(file, st_map(frame))
    return len(frames), find_cuts(frames)


def find_cuts(frames: list[tuple[int, bool]]) -> list[int]:
    """Return the first frames beyond a cut, from the reference's point of view."""
    beyond = dict(frames)
    inside = [number for number, cut in frames if not cut]
    return [number for number in (min(inside) - 1, max(inside) + 1) if beyond.get(number)]


def write_video(options: TrackOptions, path: Path, reader: VideoReader, tracks: "Tracks") -> None:
    """Draw trails over the frames, which are read again."""
    from gmaflow.viz import draw_trails, position_colors

    colors = None
    with (
        progress_bar("drawing", quiet=options.quiet) as show_progress,
        VideoWriter(
            path,
            fps=reader.info.fps / options.footage.every,
            time_base=reader.info.time_base,
            pixel_aspect=reader.info.pixel_aspect,
        ) as video,
        closing(read_ahead(reader)) as frames,
    ):
        last, begin = None, Fraction(0)
        for frame in frames:
            if frame.number >= len(tracks.visible):
                break
            if last is not None:
                video.write(last, time=begin, seconds=frame.time - reader.start - begin)
            height, width = frame.image.shape[:2]
            if colors is None:
                colors = position_colors(tracks.points, height=height, width=width)
            part = slice(max(0, frame.number - options.trail), frame.number + 1)
            last = draw_trails(frame.image, tracks.positions[part], tracks.visible[part], colors)
            begin = frame.time - reader.start if frame.number else Fraction(0)
            show_progress(frame.number, len(tracks.visible))
        if last is not None:
            video.write(last, time=begin, seconds=options.footage.every / reader.info.fps)


def is_colmap(target: str) -> bool:
    """Whether an output is a folder for COLMAP."""
    return Path(target).suffix.lower() == COLMAP


def write_colmap(
    options: TrackOptions, folder: Path, reader: VideoReader, tracks: "Tracks"
) -> None:
    """Write the frames, which are read again, and the tracks as features and matches."""
    names = [f"{number:06d}.png" for number in range(len(tracks.visible))]
    start_over(folder, COLMAP_FILES, verb="track", source=options.input)
    with (
        progress_bar("images", quiet=options.quiet) as show_progress,
        closing(read_ahead(reader)) as frames,
    ):
        for name, frame in zip(names, frames, strict=False):
            write_image(folder / "images" / name, frame.image)
            show_progress(frame.number + 1, len(names))
    tracks.save_colmap(folder, names)


def sentence(report: dict[str, object]) -> str:
    points, outputs, cuts = report["points"], report["outputs"], report["cuts"]
    assert isinstance(outputs, list)
    assert isinstance(cuts, list)
    frames = report["frames"]
    assert isinstance(frames, int)
    what = counted(points, "point") if isinstance(points, int) else str(points)
    parts = [f"{what} of frame {report['reference']} through {counted(frames, 'frame')}"]
    share = report["visible"]
    if isinstance(share, float) and not math.isnan(share):
        parts.append(f"{share:.0%} visible")
    if cuts:
        where = " and ".join(map(str, cuts))
        what = "a cut ends" if len(cuts) == 1 else "cuts end"
        parts.append(f"{what} the tracks at frame {where}")
    return f"wrote {', '.join(outputs)}: {', '.join(parts)} ({describe_settings(report)})"
