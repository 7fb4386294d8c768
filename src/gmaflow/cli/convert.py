"""`gmaflow convert`: flow files as pictures, or in another format."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gmaflow.cli.options import Json, Overwrite, Quiet, check_length, parse, progress_bar
from gmaflow.cli.outputs import (
    MOST_PAIRS,
    FileFormat,
    check_formats,
    ending_of,
    file_paths,
    find_clash,
    full_scale,
    is_folder,
    refuse_existing,
    refuse_inputs,
    refuse_two_formats,
    scale_of,
    spread,
)
from gmaflow.errors import NOT_WHOLE, FlowError, FlowFileError, OutputError, counted, say
from gmaflow.io import (
    KITTI_ENDING,
    FlowArrays,
    is_picture,
    list_flows,
    read_flow_arrays,
    write_flow,
    write_image,
)

Conversion = tuple[Path, Path]
"""A flow file and its output."""


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """Draw flow files, or write them in another format.

    The input is a flow file (.flo .pfm .npy .npz .flo5 .exr, or KITTI's .png), or a folder of them.
    The suffix of the output picks the format: .png .jpg .webp for a picture with the Middlebury
    colour wheel, the others and .kitti.png for flow. A folder becomes a folder, of pictures or of
    the format that --format picks. Its pictures share one scale, so they can be compared. Files
    that cannot be read are reported and skipped; the exit code is then 1.

    Examples:
      gmaflow convert flow.flo -o flow.png --legend
      gmaflow convert flow.flo -o flow.kitti.png
      gmaflow convert flows/ -o pictures/ --max-length 40
      gmaflow convert kitti/training/flow_occ -o flows/ --format exr
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE | FOLDER")]
    """A flow file, or a folder of them."""
    target: Annotated[str, tyro.conf.arg(name="output", aliases=["-o"], metavar="PATH")]
    """A file, or a folder."""
    format: FileFormat | Literal["auto"] = "auto"
    """Folders: what to write; auto is png (pictures)."""
    legend: bool = False
    """Pictures: draw the colour wheel and its scale in a corner."""
    max_length: Annotated[float | None, tyro.conf.arg(metavar="PX")] = None
    """Length at which pictures reach full colour; by default the longest of a file, and for a
    folder one length from files spread over it."""
    overwrite: Overwrite = False
    quiet: Quiet = False
    json: Json = False

    @property
    def output(self) -> Path:
        """The output as a path."""
        return Path(self.target)


def main(args: list[str]) -> None:
    """Run the verb."""
    options = parse(ConvertOptions, args, verb="convert")
    jobs = plan(options)
    scale = options.max_length
    if scale is None and options.input.is_dir() and is_picture(jobs[0][1]):
        some = spread(len(jobs), min(len(jobs), MOST_PAIRS))
        scale = scale_of(readable(jobs[number][0] for number in some))
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
    """List each flow file with its output, after everything that can be checked before the work."""
    check_length("--max-length", options.max_length)
    into_folder = is_folder(options.target)
    if options.input.is_dir() and not into_folder:
        raise OutputError(f"{options.input} is a folder; give a folder to write to, such as out/")
    if options.format != "auto" and not into_folder:
        refuse_two_formats(options.output)
    sources = list_flows(options.input) if options.input.is_dir() else [options.input]
    ending = ending_of("png" if options.format == "auto" else options.format)
    targets = [
        options.output / f"{stem_of(source)}{ending}" if into_folder else options.output
        for source in sources
    ]
    if clash := find_clash(zip(sources, targets, strict=True)):
        one, other, target = clash
        raise OutputError(
            f"{one.name} and {other.name} would both become {target.name}; convert them from "
            "folders of their own"
        )
    check_formats(file_paths(targets[0], frozenset()).items())
    if not is_picture(targets[0]) and (options.legend or options.max_length is not None):
        raise FlowError(
            f"--legend and --max-length are for pictures, and {targets[0].name} is a flow file; "
            "drop them, or write a .png"
        )
    refuse_inputs(targets, sources)
    refuse_existing(targets, overwrite=options.overwrite)
    return list(zip(sources, targets, strict=True))


def stem_of(path: Path) -> str:
    """Return the name of a flow file without the ending of its format."""
    kitti = path.name.lower().endswith(KITTI_ENDING)
    return path.name[: -len(KITTI_ENDING)] if kitti else path.stem


def readable(sources: Iterable[Path]) -> Iterator[FlowArrays]:
    """Read flow files; those that cannot be read are skipped here and reported later."""
    for source in sources:
        try:
            yield read_flow_arrays(source)
        except FlowFileError:
            continue


def convert(jobs: Sequence[Conversion], options: ConvertOptions, scale: float | None) -> list[str]:
    """Convert the files; returns the errors of files that were skipped."""
    skipped: list[str] = []
    with progress_bar("files", quiet=options.quiet or options.json) as show_progress:
        for number, (source, target) in enumerate(jobs):
            show_progress(number, len(jobs))
            try:
                write(target, read_flow_arrays(source), legend=options.legend, scale=scale)
            except FlowFileError as err:
                skipped.append(str(err))
                if len(skipped) == len(jobs):
                    raise
                say(f"gmaflow: skipped {err}")
    return skipped


def write(target: Path, flow: FlowArrays, *, legend: bool, scale: float | None) -> None:
    """Write a flow as a picture or a flow file."""
    if not is_picture(target):
        write_flow(target, *flow)
        return
    from gmaflow.viz import flow_to_image, flow_with_legend

    draw = flow_with_legend if legend else flow_to_image
    write_image(target, draw(flow.array, max_length=scale, valid=flow.valid))


def sentence(report: dict[str, object]) -> str:
    """Return a report in words."""
    converted = report["converted"]
    assert isinstance(converted, int)
    files = f"{counted(converted, 'file')} to " if Path(str(report["input"])).is_dir() else ""
    return f"wrote {files}{report['output']}{full_scale(report['max_length'])}"
