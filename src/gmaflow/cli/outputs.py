"""What is written for a pair: formats, names and pictures."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from gmaflow.errors import OutputError, counted
from gmaflow.io import (
    CLIP_SUFFIXES,
    FLOW_ENDINGS,
    FLOW_SUFFIXES,
    KITTI_ENDING,
    PICTURE_SUFFIXES,
    USUAL_BOUND,
    VIDEO_OUTPUTS,
    FlowArrays,
    ensure_can_encode,
    ensure_can_write,
    files_of,
    is_picture,
    name_file,
    stem_of,
    write_image,
)
from gmaflow.io.paths import is_xy

if TYPE_CHECKING:
    import numpy as np

    from gmaflow.inference import BidirectionalFlow, Flow

FileFormat = Literal["flo", "pfm", "npy", "npz", "npz16", "flo5", "exr", "kitti", "xy", "png"]
"""Formats of a folder of results: flow files, or png for pictures."""

FORMATS = FLOW_SUFFIXES | PICTURE_SUFFIXES | VIDEO_OUTPUTS | CLIP_SUFFIXES

MOST_PAIRS = 8
"""Maximum number of pairs from which a scale is chosen."""
SHORTEST = 1.0
"""Pixels: if nothing moves, noise is not scaled up to full colour."""
QUANTILE, HEADROOM = 0.99, 1.25
"""Room above the few sampled pairs: motions beyond the scale are darker and would flicker."""

OutputFile: TypeAlias = "tuple[OutputKind, Path]"
"""What a file shows, and where it is written."""


def holds_numbers(file_format: FileFormat) -> bool:
    """Whether a format holds the flow itself, not a picture of it."""
    return file_format != "png"


def ending_of(file_format: FileFormat) -> str:
    """Return how the names of files in a format end."""
    return FLOW_ENDINGS.get(file_format, f".{file_format}")


class OutputKind(StrEnum):
    """A file about a pair."""

    FLOW = "flow"
    PICTURE = "picture"
    ARROWS = "arrows"
    WARPED = "warped"
    PANEL = "panel"
    BACKWARD = "backward"
    OCCLUSION = "occlusion"
    CONFIDENCE = "confidence"
    ATTENTION = "attention"
    ERROR = "error"


EXTRAS = {
    OutputKind.BACKWARD,
    OutputKind.OCCLUSION,
    OutputKind.CONFIDENCE,
    OutputKind.ATTENTION,
    OutputKind.ERROR,
}
"""Written only if asked for."""
NUMBERS = {OutputKind.FLOW, OutputKind.BACKWARD}
"""Flow files; all others are pictures."""

# After the stem, in a folder; the flow itself comes last. The stem is that of the frame whose
# pixels the file is about: the first, or for backward flow the second.
FOLDER_NAMES = {
    OutputKind.PICTURE: ".png",
    OutputKind.ARROWS: "-arrows.png",
    OutputKind.WARPED: "-warped.png",
    OutputKind.PANEL: "-panel.png",
    OutputKind.BACKWARD: "-backward",
    OutputKind.OCCLUSION: "-occlusion.png",
    OutputKind.CONFIDENCE: "-confidence.png",
    OutputKind.ATTENTION: "-attention.png",
    OutputKind.ERROR: "-error.png",
    OutputKind.FLOW: "",
}


@dataclass(frozen=True, eq=False)
class PairOutput:
    """Everything that was estimated for a pair."""

    image1: "np.ndarray"
    image2: "np.ndarray"
    flow: "Flow"
    both: "BidirectionalFlow | None" = None
    attention: "np.ndarray | None" = None
    points: tuple[tuple[float, float], ...] = ()
    truth: "Flow | None" = None
    max_length: float | None = None
    """The length that pictures show at full saturation, and arrows at full length; if None, the
    longest of this flow."""
    bound: float = USUAL_BOUND
    """The longest motion that 8-bit flow keeps."""


def describe_settings(report: Mapping[str, object]) -> str:
    """Describe the settings of a report, and how long it took."""
    iters = report["iters"]
    iterations = counted(iters, "iteration") if isinstance(iters, int) else f"{iters} iterations"
    where = "{device}, {precision}, {seconds} s in all".format(**report)
    return f"{report['model']}, {iterations}, {where}"


def full_scale(length: object) -> str:
    """Return the scale of a report's pictures in words; empty if there is none."""
    return f", full scale at {length:.3g} px" if isinstance(length, float) else ""


def is_folder(output: str) -> bool:
    """Whether an output is a folder: it is one, ends in a slash, or has no suffix."""
    path = Path(output)
    if path.is_dir():
        return True
    if not output.endswith(("/", os.sep)):
        if path.name.lower() in FORMATS | {KITTI_ENDING}:
            raise OutputError(f"{path} is only a suffix; give a name such as flow{path.name}")
        if path.suffix:
            return False
    if path.exists():
        raise OutputError(f"{path} is a file without a known suffix; give a suffix, or a folder")
    return True


def folder_endings(
    extras: frozenset[OutputKind], only: FileFormat | None = None
) -> dict[OutputKind, str]:
    """Return the parts that are written for a pair in a folder, and how their names end.

    With `only`, it is flow in this format or only pictures; else everything, the flow as .flo.
    """
    flow_ending = ending_of(only if only is not None and holds_numbers(only) else "flo")
    endings = {
        **FOLDER_NAMES,
        OutputKind.FLOW: flow_ending,
        OutputKind.BACKWARD: backward_ending(flow_ending),
    }
    return {
        part: ending
        for part, ending in endings.items()
        if (part in extras or part not in EXTRAS)
        and (only is None or holds_numbers(only) == (part in NUMBERS))
    }


def backward_ending(ending: str) -> str:
    """Return how the names of backward flow end, from how those of forward flow end."""
    mark = FOLDER_NAMES[OutputKind.BACKWARD]
    return ending.replace("*", f"*{mark}") if "*" in ending else f"{mark}{ending}"


def folder_paths(
    folder: Path, stems: tuple[str, str], endings: Mapping[OutputKind, str]
) -> dict[OutputKind, Path]:
    """Return the paths of a pair's files in a folder; `stems` are the names of its two frames."""
    return {
        part: folder / name_file(stems[is_about_second(ending)], ending)
        for part, ending in endings.items()
    }


def is_about_second(ending: str) -> bool:
    """Whether a file with this ending is about the pixels of a pair's second frame."""
    return FOLDER_NAMES[OutputKind.BACKWARD] in ending


def file_paths(output: Path, extras: frozenset[OutputKind]) -> dict[OutputKind, Path]:
    """Return the paths for a single output file: the file, and next to it the extras."""
    suffix = output.suffix.lower()
    if suffix not in FLOW_SUFFIXES | PICTURE_SUFFIXES:
        formats = ", ".join(sorted(FLOW_SUFFIXES - {".png"}))
        raise OutputError(
            f"{output}: {suffix} is not a flow format; use {formats}, .png for a picture, "
            f"{KITTI_ENDING} for KITTI's format, or a folder for everything"
        )
    numbers = not is_picture(output)
    stem = stem_of(output)
    everything = folder_paths(output.parent, (stem, stem), folder_endings(extras))
    paths = {part: path for part, path in everything.items() if part in EXTRAS}
    if numbers and OutputKind.BACKWARD in paths:
        paths[OutputKind.BACKWARD] = backward_path(output)
    paths[OutputKind.FLOW if numbers else OutputKind.PICTURE] = output
    return paths


def backward_path(output: Path) -> Path:
    """Return the path of backward flow next to a file of forward flow, in the same format."""
    mark, stem = FOLDER_NAMES[OutputKind.BACKWARD], stem_of(output)
    if not is_xy(output):
        return output.with_name(f"{stem}{mark}{output.name[len(stem) :]}")
    if not output.stem.endswith(("flow_x", "flow_y")):  # flow_x_12.jpg
        return output.with_stem(f"{output.stem}{mark}")
    start = output.stem[: -len("flow_x")]  # 12.flow_x.jpg, or flow_x.jpg
    name = start.rstrip("._-")
    end = f"{start[len(name) :] or '.'}{output.name[len(start) :]}"
    return output.with_name(f"{name or stem}{mark}{end}")


def refuse_two_formats(output: Path) -> NoReturn:
    """Refuse --format for a single file."""
    raise OutputError(
        f"{output}: the suffix picks the format, and --format is for folders; drop one of them"
    )


def refuse_inputs(paths: Iterable[Path], inputs: Iterable[Path]) -> None:
    sources = {file.resolve() for path in inputs for file in files_of(path)}
    for path in paths:
        if any(file.resolve() in sources for file in files_of(path)):
            raise OutputError(f"{path} is an input; choose another output")


def check_formats(files: "Iterable[OutputFile]") -> None:
    """Check before the work whether the flow formats can be written."""
    for part, path in files:
        if part in NUMBERS:
            ensure_can_encode(path)


def refuse_existing(paths: Iterable[Path], *, overwrite: bool) -> None:
    """Refuse outputs that exist, unless they may be overwritten."""
    for path in paths:
        for file in files_of(path):
            ensure_can_write(file, overwrite)


def write_parts(result: PairOutput, files: "Iterable[OutputFile]") -> None:
    """Write the files of a pair, in their order: the flow comes last."""
    for part, path in files:
        if part is OutputKind.FLOW:  # an .npz also holds occlusion and confidence
            if result.both is not None and path.suffix.lower() == ".npz":
                result.both.save(path)
            else:
                result.flow.save(path, bound=result.bound)
        elif part is OutputKind.BACKWARD:
            if result.both is not None:
                result.both.backward.save(path, bound=result.bound)
        else:
            write_image(path, draw(result, part))


def draw(result: PairOutput, part: OutputKind) -> "np.ndarray":
    from gmaflow import viz

    both = result.both
    match part:
        case OutputKind.WARPED:
            picture = result.flow.warp(result.image2)
        case OutputKind.OCCLUSION if both is not None:
            picture = viz.occlusion_overlay(result.image1, both.occluded_in, both.occluded_out)
        case OutputKind.CONFIDENCE if both is not None:
            picture = viz.confidence_map(both.confidence)
        case OutputKind.ATTENTION if result.attention is not None:
            maps, points = list(result.attention), result.points
            picture = viz.attention_panel(
                result.image1,
                maps,
                points,
                flow=result.flow.array,
                max_length=result.max_length,
            )
        case OutputKind.ERROR if result.truth is not None:
            picture = viz.error_map(result.flow.array, result.truth.array, valid=result.truth.valid)
        case OutputKind.ARROWS:
            picture = viz.flow_arrows(
                result.image1, result.flow.array, max_length=result.max_length
            )
        case OutputKind.PANEL:
            picture = draw_panel(result)
        case OutputKind.PICTURE:
            picture = result.flow.picture(max_length=result.max_length)
        case _:
            raise AssertionError(f"{part} was not estimated")
    return picture


def draw_panel(result: PairOutput) -> "np.ndarray":
    """Draw the pictures of a pair side by side, with captions."""
    from gmaflow.viz import pair_panel

    both, error, caption = result.both, None, ""
    if result.truth is not None:
        error = draw(result, OutputKind.ERROR)
        caption = f"error, mean {result.flow.mean_error(result.truth):.2f} px"
    return pair_panel(
        result.image1,
        result.image2,
        result.flow.array,
        occlusion=None if both is None else (both.occluded_in, both.occluded_out),
        confidence=None if both is None else both.confidence,
        error=error,
        error_caption=caption,
        max_length=result.max_length,
    )


def scale_of(flows: "Iterable[FlowArrays]") -> float:
    """Return a length in pixels that nearly all motions of some flows stay below."""
    import numpy as np

    longest = SHORTEST
    for flow in flows:
        if flow.valid.any():
            lengths = np.linalg.norm(flow.array[flow.valid], axis=1)
            longest = max(longest, HEADROOM * float(np.quantile(lengths, QUANTILE)))
    return longest


def stretch_starts(total: int, count: int) -> list[int]:
    """Return where `count` equal stretches of `total` items begin."""
    return [total * number // count for number in range(count)]
