"""The options of `gmaflow video`."""

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gmaflow.cli.formats import FileFormat, ending_of
from gmaflow.cli.options import Estimator, EstimatorOptions, check_length
from gmaflow.cli.outputs import FOLDER_NAMES, Part
from gmaflow.errors import FlowError

Show = Literal["flow", "side-by-side", "arrows", "occlusion"]


@dataclass(frozen=True, kw_only=True)
class VideoOptions:
    """Estimate the flow of a video.

    A video (.mp4 .mov .webm .gif and more), or a folder of frames, in; a video out: .mp4 .mov .mkv
    .webm .gif. An output without suffix, or with a slash at its end, is a folder and gets a file
    for each frame.

    What is shown is colours, arrows, or occlusion, for which flow is estimated both ways.
    Every frame but the last is shown with its motion to the next one, at its own time, so that
    speed and sound stay as they are. Before a cut there is no next frame: the flow is black, as
    unknown flow always is, arrows and occlusion are left out, and no flow file is written.
    Ctrl-C ends the video where it is; what was done can be played. So can what comes of a video
    that is damaged or changes its size; the exit code is then 1.

    Into a folder the same command with --resume goes on: what is finished is not estimated again,
    and the scale of the colours is kept. A warm start goes on from the last flow as if it had never
    stopped; where a frame in the middle is missing, it begins without one.

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
    """A video, or a folder for a file for each frame."""
    estimator: Estimator = field(default_factory=EstimatorOptions)
    show: Show = "flow"
    """Colours, alone or beside the source; arrows; or what is hidden (orange) or leaves (blue)."""
    format: FileFormat = "flo"
    """Folders: flow as numbers, or png for pictures of what --show says."""
    backward: bool = False
    """Folders of flow files: also write the flow of each frame back to the one before, under the
    number of the frame whose motion it is."""
    start: Annotated[str, tyro.conf.arg(metavar="TIME")] = "0"
    """Where to begin: seconds, m:s or h:m:s."""
    end: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = None
    """Where to end."""
    every: int = 1
    """Take every so many frames; the speed stays, the motions get longer."""
    scale: float = 1.0
    """Make frames smaller first: 0.5 is much faster, and the flow is in pixels twice as large."""
    fps: Annotated[str | None, tyro.conf.arg(metavar="NUMBER")] = None
    """Folders of frames: how many are shown a second, such as 12, 29.97 or 30000/1001; 25 by
    default."""
    max_flow: Annotated[float | None, tyro.conf.arg(metavar="PX", aliases=["--max-length"])] = None
    """Length at which colours are full, all along; by default from pairs all over the video."""
    legend: bool = False
    """Colours and arrows: lay the colour wheel and its scale into a corner."""
    warm_start: bool = False
    """Begin each pair with the flow of the pair before."""
    cut_threshold: float = 0.4
    """How unlike two frames are that belong to two shots: 0 alike, 1 nothing in common."""
    no_cuts: bool = False
    """Estimate across cuts too."""
    no_sound: bool = False
    """Leave the sound out."""
    resume: bool = False
    """Folders: skip frames that are finished; refused where flow.json tells of other settings."""
    overwrite: bool = False
    """Replace outputs that exist; in a folder all numbered files of the format."""
    json: bool = False
    """Print a JSON object instead of a sentence."""

    @property
    def output(self) -> Path:
        """Where the flow goes."""
        return Path(self.target)

    @property
    def threshold(self) -> float | None:
        """What `estimate_video` takes as its threshold of cuts."""
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
        """What the files of a folder depend on, beside the estimator."""
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
        """Refuse what cannot be meant.

        Raises:
            FlowError: Something is.
        """
        if self.fps is not None and not self.input.is_dir():
            raise FlowError("--fps is for folders of frames; a video keeps its own times")
        check_length("--max-flow", self.max_flow)
        if not 0 < self.cut_threshold <= 2:
            raise FlowError(
                f"--cut-threshold {self.cut_threshold:g} is out of range; give 0.4 or so, or "
                "--no-cuts to find none"
            )


def parse_fps(text: str) -> Fraction:
    """Read frames a second: a number or a fraction; 29.97 and its like are what television means.

    Raises:
        FlowError: It is none.
    """
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if not Fraction(1, 1000) <= rate <= 1000:
        raise FlowError(f"--fps {text} makes no sense; give 0.001 to 1000")
    of_television = Fraction(1000 * round(rate * 1001 / 1000), 1001)
    is_meant = rate > 1 and rate.denominator > 1 and abs(rate - of_television) < Fraction(1, 200)
    return of_television if is_meant else rate.limit_denominator(1001)


def parse_time(text: str) -> Fraction:
    """Read a time: seconds, m:s or h:m:s.

    Raises:
        FlowError: It is none.
    """
    parts = text.split(":")
    try:
        numbers = [Fraction(part) for part in parts]
    except (ValueError, ZeroDivisionError):
        numbers = []
    if not 1 <= len(numbers) <= 3 or min(numbers) < 0:
        raise FlowError(f"{text!r} is no time; give seconds such as 12.5, or h:m:s such as 0:01:30")
    seconds = Fraction(0)
    for number in numbers:
        seconds = 60 * seconds + number
    return seconds
