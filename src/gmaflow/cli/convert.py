"""`gmaflow convert`: flow files as pictures, or in another format."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from gmaflow.cli.options import Bound, Json, Overwrite, Quiet, parse, progress_bar
from gmaflow.cli.outputs import (
    MOST_PAIRS,
    FileFormat,
    check_formats,
    ending_of,
    file_paths,
    full_scale,
    is_folder,
    refuse_existing,
    refuse_inputs,
    refuse_two_formats,
    scale_of,
    stretch_starts,
)
from gmaflow.errors import NOT_WHOLE, FlowError, FlowFileError, OutputError, counted, print_stderr
from gmaflow.io import (
    USUAL_BOUND,
    FlowArrays,
    check_bound,
    create_clip,
    is_clip,
    is_picture,
    list_flows,
    name_file,
    open_clip,
    read_flow_arrays,
    stem_of,
    write_flow,
    write_image,
)
from gmaflow.io.images import check_positive
from gmaflow.io.paths import find_clash


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """Draw flow files, or write them in another format.

    The input is a flow file (.flo .pfm .npy .npz .flo5 .exr, KITTI's .png, or one of flow_x.jpg and
    flow_y.jpg), a folder of them, or a clip (.h5, .tar). The suffix of the output picks the format:
    .png .jpg .webp for a picture with the Middlebury colour wheel, the others, .kitti.png, .f16.npz
    and flow_x.jpg for flow. A folder or a clip becomes a folder, of pictures or of the format that
    --format picks, or a clip: .h5 holds float16, .tar 8-bit JPEGs. Its pictures share one scale, so
    they can be compared. Flow that cannot be read is reported and skipped; the exit code is then 1.

    Examples:
      gmaflow convert flow.flo -o flow.png --legend
      gmaflow convert flow.flo -o flow.kitti.png
      gmaflow convert flows/ -o pictures/ --max-length 40
      gmaflow convert kitti/training/flow_occ -o flows/ --format exr
      gmaflow convert flows/ -o clip.h5
      gmaflow convert clip.h5 -o jpegs/ --format xy --bound 20
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE | FOLDER | CLIP")]
    """A flow file, a folder of them, or a clip (.h5, .tar)."""
    target: Annotated[str, tyro.conf.arg(name="output", aliases=["-o"], metavar="PATH")]
    """A file, a folder, or a clip (.h5, .tar)."""
    format: FileFormat | Literal["auto"] = "auto"
    """Folders: what to write; auto is png (pictures)."""
    legend: bool = False
    """Pictures: draw the colour wheel and its scale in a corner."""
    max_length: Annotated[float | None, tyro.conf.arg(metavar="PX")] = None
    """Length at which pictures reach full colour; by default the longest of a file, and for a
    folder one length from files spread over it."""
    bound: Bound = USUAL_BOUND
    overwrite: Overwrite = False
    quiet: Quiet = False
    json: Json = False

    @property
    def output(self) -> Path:
        return Path(self.target)

    @property
    def file_format(self) -> FileFormat:
        return "png" if self.format == "auto" else self.format

    @property
    def is_sequence(self) -> bool:
        """Whether the input holds several flows."""
        return self.input.is_dir() or is_clip(self.input)


@dataclass(frozen=True)
class Conversion:
    """A flow and its output."""

    frame: int
    read: Callable[[], FlowArrays]
    target: Path

    @property
    def draws(self) -> bool:
        return is_picture(self.target)


def main(args: list[str]) -> None:
    options = parse(ConvertOptions, args, verb="convert")
    jobs = plan(options)
    scale = options.max_length
    if scale is None and jobs[0].draws and options.is_sequence:
        numbers = stretch_starts(len(jobs), min(len(jobs), MOST_PAIRS))
        scale = scale_of(readable(jobs[number] for number in numbers))
    skipped = convert(jobs, options, scale)
    report = {
        "input": str(options.input),
        "output": str(options.output),
        "converted": len(jobs) - len(skipped),
        "skipped": skipped,
        "max_length": scale,
    }
    print(json.dumps(report, indent=2) if options.json else sentence(report))
    if skipped:
        sys.exit(NOT_WHOLE)


def plan(options: ConvertOptions) -> list[Conversion]:
    """List each flow file with its output, after all checks that are possible before the work."""
    check_positive("--max-length", options.max_length)
    check_bound(options.bound)
    check_output(options)
    clips = is_clip(options.input) or is_clip(options.output)
    jobs = plan_clip(options) if clips else plan_files(options)
    targets = [job.target for job in jobs]
    if not is_clip(targets[0]):
        check_formats(file_paths(targets[0], frozenset()).items())
    if not jobs[0].draws and (options.legend or options.max_length is not None):
        raise FlowError(
            f"--legend and --max-length are for pictures, and {targets[0].name} is a flow file; "
            "drop them, or write a .png"
        )
    sources = list_flows(options.input) if options.input.is_dir() else [options.input]
    refuse_inputs(targets, sources)
    refuse_existing(dict.fromkeys(targets), overwrite=options.overwrite)
    return jobs


def check_output(options: ConvertOptions) -> None:
    """Refuse an output that does not fit the input or --format."""
    one_file = not is_folder(options.target)
    if options.is_sequence and one_file and not is_clip(options.output):
        what = "a clip" if is_clip(options.input) else "a folder"
        raise OutputError(f"{options.input} is {what}; give a folder to write to, such as out/")
    if is_clip(options.output) and not options.is_sequence:
        raise OutputError(
            f"{options.output} holds the flow of a clip, and {options.input} is one flow file; "
            "give a folder of flow files"
        )
    if options.format != "auto" and one_file:
        refuse_two_formats(options.output)


def plan_clip(options: ConvertOptions) -> list[Conversion]:
    """List the flows of a clip, or of a folder that becomes one."""
    clip = open_clip(options.input)
    ending = ending_of(options.file_format)
    return [
        Conversion(
            frame,
            partial(clip.__getitem__, number),
            options.output
            if is_clip(options.output)
            else options.output / name_file(f"{frame:06d}", ending),
        )
        for number, frame in enumerate(clip.frames)
    ]


def plan_files(options: ConvertOptions) -> list[Conversion]:
    """List flow files that become a file each."""
    sources = list_flows(options.input) if options.input.is_dir() else [options.input]
    ending = ending_of(options.file_format)
    targets = [
        options.output / name_file(stem_of(source), ending)
        if is_folder(options.target)
        else options.output
        for source in sources
    ]
    if clash := find_clash(zip(sources, targets, strict=True)):
        one, other, target = clash
        raise OutputError(
            f"{one.name} and {other.name} would both become {target.name}; convert them from "
            "folders of their own"
        )
    return [
        Conversion(number, partial(read_flow_arrays, source), target)
        for number, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


def readable(jobs: Iterable[Conversion]) -> Iterator[FlowArrays]:
    """Read flow files; those that cannot be read are skipped here and reported later."""
    for job in jobs:
        try:
            yield job.read()
        except FlowFileError:
            continue


def convert(jobs: Sequence[Conversion], options: ConvertOptions, scale: float | None) -> list[str]:
    """Convert the files; returns the errors of files that were skipped."""
    skipped: list[str] = []
    with (
        create_clip(options.output, bound=options.bound)
        if is_clip(options.output)
        else nullcontext() as clip,
        progress_bar("files", quiet=options.quiet or options.json) as show_progress,
    ):
        for number, job in enumerate(jobs):
            show_progress(number, len(jobs))
            try:
                flow = job.read()
                if clip is None:
                    write(job.target, flow, options, scale)
                else:
                    clip.add(job.frame, flow.array, flow.valid)
            except FlowFileError as err:
                skipped.append(str(err))
                if len(skipped) == len(jobs):
                    raise
                print_stderr(f"gmaflow: skipped {err}")
    return skipped


def write(target: Path, flow: FlowArrays, options: ConvertOptions, scale: float | None) -> None:
    if not is_picture(target):
        write_flow(target, *flow, bound=options.bound)
        return
    from gmaflow.viz import flow_to_image, flow_with_legend

    draw = flow_with_legend if options.legend else flow_to_image
    write_image(target, draw(flow.array, max_length=scale, valid=flow.valid))


def sentence(report: dict[str, Any]) -> str:
    several = Path(report["input"]).is_dir() or is_clip(report["input"])
    what = "flow" if is_clip(report["output"]) else "file"
    files = f"{counted(report['converted'], what)} to " if several else ""
    return f"wrote {files}{report['output']}{full_scale(report['max_length'])}"
