"""`gmaflow score`: how much moves in each video, one row for each."""

import csv
import io
import json
import sys
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gmaflow.cli.options import (
    Estimator,
    EstimatorOptions,
    Footage,
    FootageOptions,
    Ignore,
    Overwrite,
    Progress,
    parse,
    progress_bar,
)
from gmaflow.cli.outputs import refuse_existing, refuse_inputs
from gmaflow.errors import NOT_WHOLE, FlowError, OutputError, counted, print_stderr
from gmaflow.io import MaskReader, VideoReader, read_ahead
from gmaflow.io.images import MIN_SIDE
from gmaflow.io.paths import write_text

if TYPE_CHECKING:
    from gmaflow.inference import FlowEstimator

Row = dict[str, str | int | float]


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """Score the motion of videos, one row for each.

    Lengths are in pixels between two consecutive frames, over all pixels of all pairs: mean,
    median, 95th percentile (p95) and the share that moves less than half a pixel (still). camera is
    the mean length of the camera's motion, residual that of what is left without it, moving the
    share of the frame that moves by itself. No flow is estimated across cuts.

    A video that cannot be read is reported and left out; the exit code is then 1.

    Examples:
      gmaflow score in.mp4
      gmaflow score clips/*.mp4 --side 256 -o scores.csv
      gmaflow score clips/*.mp4 --side 256 --every 5 -o scores.jsonl
      gmaflow score in.mp4 --ignore logo.png --json
    """

    inputs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="VIDEO | FOLDER ...", help_behavior_hint=""),
    ]
    """Videos, or folders of frames."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """Write the rows to a .csv or .jsonl file; by default they are printed."""
    estimator: Estimator = field(default_factory=EstimatorOptions)
    side: Annotated[int | None, tyro.conf.arg(metavar="PX")] = None
    """Shrink frames first so that the shorter side has this many pixels; smaller frames keep their
    size. Lengths are in pixels of the small frames. Makes videos of different sizes comparable, and
    is much faster."""
    footage: Footage = field(default_factory=FootageOptions)
    ignore: Ignore = None
    """Pixels that do not count, white in a mask: an image for all frames, or a folder or video with
    a mask for each frame."""
    overwrite: Overwrite = False
    """Replace the output if it exists."""
    json: bool = False
    """Print JSON objects, one a line, instead of CSV."""

    def check(self) -> None:
        """Refuse options that are out of range, and outputs that cannot be written."""
        self.footage.check_threshold()
        if self.side is not None and self.side < MIN_SIDE:
            raise FlowError(f"--side {self.side} is too small; give at least {MIN_SIDE}")
        if not self.inputs:
            raise FlowError("there is nothing to score; give videos or folders of frames")
        if self.output is not None:
            if self.output.suffix.lower() not in (".csv", ".jsonl"):
                raise OutputError(f"{self.output}: rows are written as .csv or .jsonl")
            refuse_inputs([self.output], self.inputs)
            refuse_existing([self.output], overwrite=self.overwrite)

    @property
    def as_json(self) -> bool:
        return self.json if self.output is None else self.output.suffix.lower() == ".jsonl"

    def open(self, path: Path) -> VideoReader:
        reader = self.footage.open(path)
        if self.side is not None:
            shorter = min(reader.info.height, reader.info.width)
            reader.scale = min(1.0, self.side / shorter)
        return reader


def main(args: list[str]) -> None:
    options = parse(ScoreOptions, args, verb="score")
    options.check()
    estimator = options.estimator.make()
    rows: list[Row] = []
    refused: list[FlowError] = []
    interrupted = problem = False
    try:
        with progress_bar("score", quiet=options.estimator.quiet) as progress:
            for path in options.inputs:
                try:
                    reader = options.open(path)
                    rows.append(score(estimator, reader, options, progress))
                except FlowError as err:
                    refused.append(err)
                    if len(options.inputs) > 1:
                        print_stderr(f"gmaflow: {err}")
                    continue
                if reader.problem:
                    problem = True
                    print_stderr(f"gmaflow: {reader.problem}; the readable part was used")
    except KeyboardInterrupt:
        interrupted = True
    if interrupted and not rows:
        raise KeyboardInterrupt
    if not rows and refused:
        raise refused[0] if len(refused) == 1 else FlowError("none of the videos can be scored")
    write(rows, options)
    if interrupted:
        raise KeyboardInterrupt(f"{counted(len(rows), 'row')} of {len(options.inputs)} written")
    if refused or problem:
        sys.exit(NOT_WHOLE)


def score(
    estimator: "FlowEstimator", reader: VideoReader, options: ScoreOptions, progress: Progress
) -> Row:
    """Score a video in one pass."""
    from gmaflow.inference import MotionScorer, estimate_video

    masks = None if options.ignore is None else MaskReader(options.ignore, clip=reader)
    scorer = MotionScorer()
    total = reader.num_frames and reader.num_frames - 1
    try:
        with closing(read_ahead(reader)) as frames:
            for step in estimate_video(estimator, frames, cut_threshold=options.footage.threshold):
                ignore = masks.mask(step.number, step.image.shape) if masks else None
                scorer.add(step.flow, ignore=ignore)
                progress(step.number + 1, total, f"score {reader.path.name}")
        scores = scorer.result()
    except FlowError as err:
        if str(reader.path) in str(err):
            raise
        if reader.problem:  # it is why there are too few frames
            raise FlowError(reader.problem) from None
        # With several inputs, the message must name the one that failed.
        raise FlowError(f"{reader.path}: {err}") from None
    rate = round(float(reader.info.fps / options.footage.every), 3)
    numbers = {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in asdict(scores).items()
    }
    return {"input": str(reader.path), "fps": rate, **numbers}


def write(rows: list[Row], options: ScoreOptions) -> None:
    """Print the rows, or write them to the output."""
    if options.as_json:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text = buffer.getvalue()
    if options.output is None:
        print(text, end="")
        return
    write_text(options.output, text)
    if not options.estimator.quiet:
        print(f"wrote {options.output}: the motion of {counted(len(rows), 'video')}")
