"""`gmaflow flow`: the flow of a pair of images, or of a folder of frames."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gmaflow.cli.flow_folder import run_sequence
from gmaflow.cli.options import (
    Bound,
    Estimator,
    EstimatorOptions,
    Json,
    Overwrite,
    Report,
    Reporting,
    check_length,
    parse,
    parse_points,
    progress_bar,
    run_and_report,
)
from gmaflow.cli.outputs import (
    FileFormat,
    PairOutput,
    Part,
    PartFile,
    check_formats,
    file_paths,
    folder_paths,
    full_scale,
    holds_numbers,
    how_estimated,
    is_folder,
    refuse_existing,
    refuse_inputs,
    refuse_two_formats,
    write_parts,
)
from gmaflow.errors import NOT_WHOLE, FlowError, ImageError, say
from gmaflow.io import USUAL_BOUND
from gmaflow.io.images import check_same_size

if TYPE_CHECKING:
    from gmaflow.inference import Flow
    from gmaflow.inference.engine import Refinement


@dataclass(frozen=True, kw_only=True)
class FlowOptions(Reporting):
    """Estimate optical flow.

    The input is two images, or consecutive frames: more images, or a folder of them (in natural
    order). The suffix of the output picks the format: .flo .pfm .npy .npz .flo5 .exr for flow,
    .kitti.png for KITTI's format, .f16.npz for float16, flow_x.jpg for 8 bits (with flow_y.jpg),
    .png .jpg .webp for a picture. An output without suffix, or with a slash at its end, is a folder
    and gets everything: the flow, its picture, arrows over the first frame, the second frame warped
    back onto the first, a panel of all, and with --backward occlusion (in-frame, out-of-frame) and
    confidence. With --format it gets only the flow, or only the pictures. The flow of a sequence
    also fits into one small file: .h5 (float16) or .tar (8 bits).

    All pictures of a sequence share one scale, so they can be compared. Pairs that cannot be used
    are reported and skipped; the exit code is then 1. After Ctrl-C, the same command with --resume
    continues: finished pairs are not estimated again, and the scale is kept. A warm start continues
    from the last flow and gives the same files; if a pair in the middle is missing, it is estimated
    without a warm start.

    Examples:
      gmaflow flow a.png b.png -o flow.png
      gmaflow flow a.png b.png -o out.flo -o out.png --weights gma-sintel.pth --iters 32
      gmaflow flow a.png b.png -o out --backward --attention 120,80
      gmaflow flow frames/ -o flow/ --resume
      gmaflow flow frames/*.png -o flow/ --format npz
      gmaflow flow frames/ -o clip.h5
    """

    inputs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="IMAGE1 IMAGE2 ... | FOLDER", help_behavior_hint=""),
    ]
    """Two images, more images, or one folder of frames."""
    targets: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(name="output", aliases=["-o"], metavar="PATH"),
    ]
    """A file, or a folder for everything; for one pair, it can be given several times."""
    estimator: Estimator = field(default_factory=EstimatorOptions)
    format: FileFormat | Literal["all"] = "all"
    """Folders: write only the flow, in this format, or only the pictures (png)."""
    backward: bool = False
    """Also estimate backward flow, occlusion and confidence: as pictures, and in an .npz as arrays.
    In a folder, backward flow is named after the second frame of its pair."""
    warm_start: bool = False
    """Folders: start each pair from the flow of the previous pair; with the shipped weights that is
    less accurate."""
    attention: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="X,Y")
    ] = ()
    """Show which pixels the pixel at x,y aggregates motion from."""
    truth: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """One pair: the true flow, to report and draw the error."""
    max_length: Annotated[float | None, tyro.conf.arg(metavar="PX")] = None
    """Length at which pictures reach full colour; by default the longest of a pair, and for a
    folder of frames one length from pairs spread over it."""
    bound: Bound = USUAL_BOUND
    resume: bool = False
    """Folders: skip finished pairs; refused if flow.json has other settings."""
    overwrite: Overwrite = False
    json: Json = False

    @property
    def extras(self) -> frozenset[Part]:
        """The extra parts that were asked for."""
        parts = {Part.BACKWARD, Part.OCCLUSION, Part.CONFIDENCE} if self.backward else set()
        if self.attention:
            parts.add(Part.ATTENTION)
        if self.truth is not None:
            parts.add(Part.ERROR)
        return frozenset(parts)

    @property
    def only(self) -> FileFormat | None:
        """The only format to write to a folder; None for everything."""
        return None if self.format == "all" else self.format

    @property
    def draws(self) -> bool:
        """Whether pictures are written to a folder."""
        return self.only is None or not holds_numbers(self.only)

    def check(self) -> None:
        """Refuse options that contradict each other, or are out of range."""
        check_length("--max-length", self.max_length)
        check_length("--bound", self.bound)
        if not self.targets:
            raise FlowError("there is no output; add -o PATH")
        if self.points and not self.draws:
            raise FlowError(
                f"--attention is drawn, and --format {self.format} writes only flow; drop one of "
                "them"
            )

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        return parse_points("--attention", self.attention)


def expand_globs(inputs: Iterable[Path]) -> tuple[Path, ...]:
    """Replace patterns such as frames/*.png, which some shells leave as they are, by files."""
    found: list[Path] = []
    for path in inputs:
        matches = [] if path.exists() else glob(str(path))  # noqa: PTH207 (Path.glob needs a folder)
        found += map(Path, matches) if matches else [path]
    return tuple(found)


def main(args: list[str]) -> None:
    options = parse(FlowOptions, args, verb="flow")
    options.check()
    options = replace(options, inputs=expand_globs(options.inputs))
    run = run_pair if len(options.inputs) == 2 else run_sequence
    report = run_and_report(run, options, sentence)
    if report.get("skipped"):
        sys.exit(NOT_WHOLE)


def run_pair(options: FlowOptions) -> Report:
    files = check_pair(options)

    from gmaflow.inference import load_image

    image1, image2 = (load_image(path) for path in options.inputs)
    check_same_size(
        dict(zip(map(str, options.inputs), (image1, image2), strict=True)), error=ImageError
    )
    truth = None if options.truth is None else load_truth(options.truth, image1.shape)
    estimator = options.estimator.make()
    points = options.points
    attention = estimator.attention(image1, points) if points else None
    both = None
    with progress_bar("iterations", quiet=options.quiet) as show_progress:

        def watch(refinement: "Refinement") -> None:
            show_progress(refinement.number, refinement.total)

        if options.backward:
            both = estimator.bidirectional(image1, image2, watch=watch)
        flow = both.forward if both else estimator(image1, image2, watch=watch)
    error = None if truth is None else flow.mean_error(truth)
    result = PairOutput(
        image1,
        image2,
        flow,
        both,
        attention,
        points,
        truth,
        max_length=options.max_length,
        bound=options.bound,
    )
    write_parts(result, files)
    return {
        **estimator.settings.as_json(),
        "iters": flow.iterations,  # `auto` as a number
        "inputs": [str(path) for path in options.inputs],
        "outputs": name_outputs(files),
        "statistics": asdict(flow.statistics()),
        "mean_error": error,
    }


def name_outputs(files: list[PartFile]) -> dict[str, str]:
    """Return the files of a report by what they show; a second flow file is called flow-2."""
    named: dict[str, str] = {}
    for part, path in files:
        same = sum(other is part for other, _ in files[: files.index((part, path))])
        named[f"{part}-{same + 1}" if same else part.value] = str(path)
    return named


def check_pair(options: FlowOptions) -> list[PartFile]:
    """List the files of a pair, after everything that can be checked before the work."""
    if options.warm_start or options.resume:
        raise FlowError("--warm-start and --resume are for sequences, not for one pair")
    for path in options.inputs:
        if path.is_dir():
            raise ImageError(f"{path} is a folder; give two images, or only one folder")
    files: dict[PartFile, None] = {}  # each once, in order
    for target in options.targets:
        if is_folder(target):
            paths = folder_paths(Path(target), ("flow", "flow"), options.extras, options.only)
        elif options.only is not None:
            refuse_two_formats(Path(target))
        else:
            paths = file_paths(Path(target), options.extras)
        files |= dict.fromkeys(paths.items())
    check_formats(files)
    sources = options.inputs if options.truth is None else (*options.inputs, options.truth)
    refuse_inputs((path for _, path in files), sources)
    refuse_existing((path for _, path in files), overwrite=options.overwrite)
    return list(files)


def load_truth(path: Path, shape: tuple[int, ...]) -> "Flow":
    """Read the true flow of a pair of images."""
    from gmaflow.inference import read_flow

    truth = read_flow(path)
    if truth.array.shape[:2] != shape[:2]:
        raise FlowError(f"{path} differs in size from the images; give the truth of this pair")
    if truth.valid is not None and not truth.valid.any():
        raise FlowError(f"{path} has no valid pixels; give another truth, or none")
    return truth


def sentence(report: Report) -> str:
    written = ", ".join(report["outputs"].values())
    how = how_estimated(report)
    if statistics := report.get("statistics"):
        lengths = "mean {mean_length:.2f} px, longest {max_length:.2f} px".format(**statistics)
        error = report.get("mean_error")
        shown = "" if error is None else f", mean error {error:.2f} px"
        return f"wrote {written}: {lengths}{shown} ({how})"
    if report["skipped"]:
        say(f"gmaflow: {len(report['skipped'])} of {report['pairs']} pairs were skipped")
    there = f", {report['already_there']} already there" if report["already_there"] else ""
    return (
        f"wrote {report['estimated']} of {report['pairs']} pairs to {written}{there}"
        f"{full_scale(report['max_length'])} ({how})"
    )
