"""`gmaflow flow`: the flow of a pair of images, or of a folder of frames."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gmaflow.cli.options import (
    CONTINUES_WITH_RESUME,
    PART_IS_KEPT,
    Bound,
    Estimator,
    EstimatorOptions,
    Json,
    Overwrite,
    Report,
    Reporting,
    parse,
    parse_points,
    progress_bar,
    run_and_report,
)
from gmaflow.cli.outputs import (
    FORMATS,
    FileFormat,
    OutputFile,
    OutputKind,
    PairOutput,
    check_formats,
    describe_settings,
    file_paths,
    folder_endings,
    folder_paths,
    full_scale,
    holds_numbers,
    is_folder,
    refuse_existing,
    refuse_inputs,
    refuse_two_formats,
    write_parts,
)
from gmaflow.cli.pipeline import (
    ClipFile,
    FrameNames,
    ImageFiles,
    Pair,
    PairFolder,
    choose_scale,
    estimate_frames,
    make_settings,
    record_of,
    refuse_other_verb,
    warn_about_breaks,
)
from gmaflow.errors import FlowError, ImageError, OutputError, print_stderr
from gmaflow.io import USUAL_BOUND, check_bound, create_clip, is_clip, list_images
from gmaflow.io.folders import natural_key
from gmaflow.io.images import check_positive, check_same_size
from gmaflow.io.paths import find_clash, require_file

if TYPE_CHECKING:
    from gmaflow.inference import Flow, FlowEstimator
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
    def extras(self) -> frozenset[OutputKind]:
        """The extra parts that were asked for."""
        parts = (
            {OutputKind.BACKWARD, OutputKind.OCCLUSION, OutputKind.CONFIDENCE}
            if self.backward
            else set()
        )
        if self.attention:
            parts.add(OutputKind.ATTENTION)
        if self.truth is not None:
            parts.add(OutputKind.ERROR)
        return frozenset(parts)

    @property
    def only(self) -> FileFormat | None:
        """The only format to write to a folder; None for everything."""
        return None if self.format == "all" else self.format

    @property
    def draws(self) -> bool:
        """Whether pictures are written to a folder."""
        return self.only is None or not holds_numbers(self.only)

    @property
    def endings(self) -> dict[OutputKind, str]:
        """The files of a pair in a folder, and how their names end."""
        return folder_endings(self.extras, self.only)

    @property
    def into_clip(self) -> bool:
        """Whether the flow of a sequence goes into one file."""
        return len(self.targets) == 1 and is_clip(self.targets[0])

    def check(self) -> None:
        """Refuse options that contradict each other, or are out of range."""
        check_positive("--max-length", self.max_length)
        check_bound(self.bound)
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
    """Replace patterns such as frames/*.png, which some shells leave as they are, by files.

    They come in natural order, which also says which of two is the first of a pair.
    """
    paths: list[Path] = []
    for path in inputs:
        matches = [] if path.exists() else glob(str(path))  # noqa: PTH207 (Path.glob needs a folder)
        found = sorted(map(Path, matches), key=lambda match: natural_key(str(match)))
        paths += found or [path]
    return tuple(paths)


def main(args: list[str]) -> None:
    options = parse(FlowOptions, args, verb="flow")
    options.check()
    options = replace(options, inputs=expand_globs(options.inputs))
    run = run_pair if len(options.inputs) == 2 else run_sequence
    on_interrupt = PART_IS_KEPT if options.into_clip else CONTINUES_WITH_RESUME
    run_and_report(run, options, sentence, on_interrupt=on_interrupt)


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


def name_outputs(files: list[OutputFile]) -> dict[str, str]:
    """Return the files of a report by what they show; a second flow file is called flow-2."""
    named: dict[str, str] = {}
    for part, path in files:
        same = sum(other is part for other, _ in files[: files.index((part, path))])
        named[f"{part}-{same + 1}" if same else part.value] = str(path)
    return named


def check_pair(options: FlowOptions) -> list[OutputFile]:
    """List the files of a pair, after all checks that are possible before the work."""
    if options.warm_start or options.resume:
        raise FlowError("--warm-start and --resume are for sequences, not for one pair")
    for path in options.inputs:
        if path.is_dir():
            raise ImageError(f"{path} is a folder; give two images, or only one folder")
    files: dict[OutputFile, None] = {}  # each once, in order
    for target in options.targets:
        if is_folder(target):
            paths = folder_paths(Path(target), ("flow", "flow"), options.endings)
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


# --- Consecutive frames ---------------------------------------------------------------------------


def run_sequence(options: FlowOptions) -> Report:
    """Estimate and write the flow between consecutive frames."""
    frames = list_frames(options.inputs)
    (check_clip if options.into_clip else check_folder)(options, frames)
    warn_about_breaks(frames)
    source, target = ImageFiles(frames), Path(options.targets[0])
    # Opened before anything is estimated, to report at once if it cannot be written.
    opened = create_clip(target, bound=options.bound) if options.into_clip else nullcontext()
    with opened as clip:
        estimator = options.estimator.make()
        output = ClipFile(clip) if clip else open_folder(options, estimator, frames)
        if output.scale is None and options.draws and clip is None:
            output.scale = choose_scale(estimator, source, quiet=options.quiet)
        tally = estimate_frames(
            estimator,
            source,
            output,
            quiet=options.quiet,
            backward=options.backward,
            warm_start=options.warm_start,
            points=options.points,
            skip_unusable=True,
        )
        if not tally.finished:
            raise ImageError(f"no pair can be used; the first: {tally.skipped[0]}")
    return {
        **estimator.settings.as_json(),
        "inputs": [str(path) for path in options.inputs],
        "pairs": len(frames) - 1,
        "estimated": tally.written,
        "already_there": tally.already_there,
        "skipped": tally.skipped,
        "interrupted": tally.interrupted,
        "outputs": {"clip" if clip else "folder": str(target)},
        "max_length": output.scale,
    }


def list_frames(inputs: Sequence[Path]) -> list[Path]:
    """List the frames in natural order: the images of a folder, or those that were given."""
    if not inputs:
        raise FlowError("there is no input; give two images, or a folder of frames")
    first, *more = inputs
    if not more and first.is_file():
        raise ImageError(
            f"{first} is one file; give two images, or a folder of frames; "
            "for a video, use gmaflow video"
        )
    if more:
        frames = sorted(inputs, key=lambda path: natural_key(path.name))
        for path in frames:
            require_file(path, ImageError, "images, or only one folder")
        if twice := [one for one, other in pairwise(frames) if one == other]:
            raise ImageError(f"{twice[0]} is given twice; give each frame once")
        return frames
    frames = list_images(first)
    if len(frames) < 2:
        raise ImageError(f"{first} holds {len(frames)} image; flow needs at least two frames")
    return frames


def check_clip(options: FlowOptions, frames: list[Path]) -> None:
    """Refuse a clip that cannot be written, or contradicts the options."""
    output = Path(options.targets[0])
    if options.resume or options.extras or options.only is not None:
        raise OutputError(
            f"{output} holds only forward flow, and cannot be resumed; drop --resume, --format, "
            "--backward, --attention and --truth, or give a folder"
        )
    refuse_inputs([output], frames)
    refuse_existing([output], overwrite=options.overwrite)


def check_folder(options: FlowOptions, frames: list[Path]) -> None:
    """Refuse a folder that cannot be written, or contradicts the options."""
    if options.truth is not None:
        raise FlowError("--truth is for one pair; gmaflow evaluate measures many")
    if len(options.targets) > 1:
        raise OutputError("several outputs are for one pair; give one folder for a sequence")
    folder = Path(options.targets[0])
    is_file = folder.is_file() or folder.suffix.lower() in FORMATS
    if not is_folder(options.targets[0]) and is_file:
        raise OutputError(f"{folder}: the flow of a sequence needs a folder; drop the suffix")
    if folder.resolve() in {frame.parent.resolve() for frame in frames}:
        raise OutputError(f"{folder} holds the frames; choose another folder for the flow")
    written = {
        (first, second): folder_paths(folder, (first.stem, second.stem), options.endings)
        for first, second in pairwise(frames)
    }
    refuse_clashes(written)
    record = record_of(folder)
    record.check_start(resume=options.resume, overwrite=options.overwrite, among_others=True)
    if options.overwrite:
        refuse_other_verb(folder, verb="flow")
    resumes = options.resume and record.exists()
    for paths in written.values():
        refuse_inputs(paths.values(), frames)
        if not resumes:
            refuse_existing(paths.values(), overwrite=options.overwrite)
    check_formats(written[frames[0], frames[1]].items())


def refuse_clashes(written: Mapping[tuple[Path, Path], Mapping[OutputKind, Path]]) -> None:
    """Refuse two frames (a.png and a.jpg) that would be written to the same name."""
    files = (
        (second if part is OutputKind.BACKWARD else first, path)
        for (first, second), paths in written.items()
        for part, path in paths.items()
    )
    if clash := find_clash(files):
        one, other, path = clash
        raise ImageError(
            f"{one.name} and {other.name} would both be written to {path.name}; rename one of "
            "them, or give one kind of image"
        )


def open_folder(options: FlowOptions, estimator: "FlowEstimator", frames: list[Path]) -> PairFolder:
    source = frames if len(options.inputs) > 1 else options.inputs[0]
    settings = make_settings(
        estimator,
        verb="flow",
        source=source,
        endings=options.endings.values(),
        warm_start=options.warm_start,
        attention=list(options.attention),
        # Earlier versions did not record it.
        **({"bound": options.bound} if options.only == "xy" else {}),
    )

    def write_files(pair: Pair, paths: Mapping[OutputKind, Path], scale: float | None) -> None:
        assert pair.flow is not None  # there are no cuts
        result = PairOutput(
            pair.first.image,
            pair.second.image,
            pair.flow,
            pair.both,
            pair.attention,
            options.points,
            max_length=scale,
            bound=options.bound,
        )
        write_parts(result, paths.items())

    return PairFolder(
        Path(options.targets[0]),
        settings,
        source=source,
        endings=options.endings,
        names=FrameNames([frame.stem for frame in frames]),
        write_files=write_files,
        resume=options.resume,
        scale=options.max_length if options.draws else None,
    )


def sentence(report: Report) -> str:
    written = ", ".join(report["outputs"].values())
    settings = describe_settings(report)
    if statistics := report.get("statistics"):
        lengths = "mean {mean_length:.2f} px, longest {max_length:.2f} px".format(**statistics)
        error = report.get("mean_error")
        error_text = "" if error is None else f", mean error {error:.2f} px"
        return f"wrote {written}: {lengths}{error_text} ({settings})"
    if report["skipped"]:
        print_stderr(f"gmaflow: {len(report['skipped'])} of {report['pairs']} pairs were skipped")
    earlier = f", {report['already_there']} already there" if report["already_there"] else ""
    return (
        f"wrote {report['estimated']} of {report['pairs']} pairs to {written}{earlier}"
        f"{full_scale(report['max_length'])} ({settings})"
    )
