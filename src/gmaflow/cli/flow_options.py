"""The options of `gmaflow flow`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gmaflow.cli.formats import FileFormat, holds_numbers
from gmaflow.cli.options import Estimator, EstimatorOptions, check_length
from gmaflow.cli.outputs import Part
from gmaflow.errors import FlowError


@dataclass(frozen=True, kw_only=True)
class FlowOptions:
    """Estimate optical flow.

    Two images, or a folder whose images are consecutive frames (in natural order). The output's
    suffix picks the format: .flo .pfm .npy .npz .flo5 .exr for numbers, .kitti.png for KITTI's
    format, .png .jpg .webp for a picture. An output without suffix, or with a slash at its end, is
    a folder and gets everything: the flow, its picture, arrows over the first frame, the second
    frame warped back onto the first, a panel of all, and with --backward occlusion (in-frame,
    out-of-frame) and confidence; or of these, with --format, the flow alone or the pictures alone.

    All pictures of a folder of frames have one scale, from pairs all over it, and can be compared.
    Pairs that cannot be used are named and left out; the exit code is then 1. After Ctrl-C the same
    command with --resume goes on: what is finished is not estimated again, and the scale is kept.
    A warm start goes on from the last flow as if it had never stopped; where a pair in the middle
    is missing, it begins without one.

    Examples:
      gmaflow flow a.png b.png -o flow.png
      gmaflow flow a.png b.png -o out.flo --weights gma-sintel.pth --iters 32
      gmaflow flow a.png b.png -o out --backward --attention 120,80
      gmaflow flow frames/ -o flow/ --warm-start --resume
      gmaflow flow frames/ -o flow/ --format npz
    """

    inputs: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE1 IMAGE2 | FOLDER")
    ]
    """Two images, or one folder of frames."""
    target: Annotated[str, tyro.conf.arg(name="output", aliases=["-o"], metavar="PATH")]
    """A file, or a folder for everything."""
    estimator: Estimator = field(default_factory=EstimatorOptions)
    format: FileFormat | Literal["all"] = "all"
    """Folders: the flow alone, in this format, or png for the pictures alone."""
    backward: bool = False
    """Also estimate backward flow, and from both occlusion and confidence: as pictures, and in an
    .npz as arrays. In a folder it is called by the second frame of its pair, whose motion it is."""
    warm_start: bool = False
    """Folders: begin each pair with the flow of the pair before."""
    attention: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="X,Y")
    ] = ()
    """Show what the pixel at x,y borrows motion from; may be given several times."""
    truth: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """One pair: the true flow, to tell and draw the error."""
    max_length: Annotated[float | None, tyro.conf.arg(metavar="PX")] = None
    """Length at which pictures reach full colour; by default the longest of a pair, and for a
    folder of frames one length from pairs all over it."""
    resume: bool = False
    """Folders: skip pairs that are finished; refused where flow.json tells of other settings."""
    overwrite: bool = False
    """Replace outputs that exist."""
    json: bool = False
    """Print a JSON object instead of a sentence."""

    @property
    def output(self) -> Path:
        """Where the flow goes."""
        return Path(self.target)

    @property
    def extras(self) -> frozenset[Part]:
        """What is wanted beside the usual."""
        parts = {Part.BACKWARD, Part.OCCLUSION, Part.CONFIDENCE} if self.backward else set()
        if self.attention:
            parts.add(Part.ATTENTION)
        if self.truth is not None:
            parts.add(Part.ERROR)
        return frozenset(parts)

    @property
    def only(self) -> FileFormat | None:
        """The one format that is wanted in a folder; None for everything."""
        return None if self.format == "all" else self.format

    @property
    def draws(self) -> bool:
        """Whether pictures are wanted, and a scale for them."""
        return self.only is None or not holds_numbers(self.only)

    def check(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            FlowError: Something is.
        """
        check_length("--max-length", self.max_length)
        if self.attention and not self.draws:
            raise FlowError(
                f"--attention is drawn, and --format {self.format} is for numbers alone; drop one "
                "of them"
            )

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """The points of --attention.

        Raises:
            FlowError: One of them is no point.
        """
        points = []
        for text in self.attention:
            try:
                x, y = map(float, text.split(","))
            except ValueError:
                raise FlowError(
                    f"--attention {text!r} is no point; give x,y such as 120,80"
                ) from None
            points.append((x, y))
        return tuple(points)
