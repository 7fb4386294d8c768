"""Folders of images or flow files, in natural order."""

import re
from collections.abc import Callable, Sequence, Set
from itertools import pairwise
from pathlib import Path
from statistics import median_low

from gmaflow.errors import FlowError, FlowFileError, ImageError, os_reason
from gmaflow.io.flow_files import FLOW_SUFFIXES, KITTI_ENDING
from gmaflow.io.images import IMAGE_SUFFIXES
from gmaflow.io.paths import OCCLUSION_ENDING, PathLike, is_xy, xy_paths


def list_images(folder: PathLike) -> list[Path]:
    """List the images of a folder, frame2 before frame10; hidden files are left out.

    OpenEXR files count only if there are no others: next to other images they hold depth or masks.
    """
    images = _list_files(folder, IMAGE_SUFFIXES, what="images", error=ImageError)
    return [path for path in images if path.suffix.lower() != ".exr"] or images


def list_flows(folder: PathLike) -> list[Path]:
    """List the flow files of a folder, flow2 before flow10; hidden files are left out.

    A .png counts only if there are no other flow files, or if it ends in .kitti.png: next to other
    flow files it is a picture. Of a pair of JPEGs, the x file is listed; other JPEGs are not. The
    occlusion of a batch job is left out.
    """
    files = _list_files(
        folder,
        FLOW_SUFFIXES,
        what="flow files",
        error=FlowFileError,
        also=lambda path: is_xy(path) and path == xy_paths(path)[0],
    )
    flows = [path for path in files if not path.name.lower().endswith(OCCLUSION_ENDING)]
    if not flows:
        raise FlowFileError(f"{folder} holds occlusion but no flow files; give a folder of flow")
    certain = [
        path
        for path in flows
        if path.suffix.lower() != ".png" or path.name.lower().endswith(KITTI_ENDING)
    ]
    return certain or flows


def find_breaks(frames: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Find consecutive files whose names do not follow one another: other words, or a gap.

    Numbers may rise by any step, as for every tenth frame or for times, if the step is about the
    usual one. Names without a number are never a break.
    """
    counted = [_words_and_number(path.stem) for path in frames]
    steps = [
        number - before if words == same else None
        for (words, before), (same, number) in pairwise(counted)
    ]
    usual = median_low([step for step in steps if step is not None] or [0.0])
    return [
        pair
        for pair, step in zip(pairwise(frames), steps, strict=True)
        if step is None or step > 1.5 * usual
    ]


def natural_key(name: str) -> tuple[list[str | int], str]:
    """Sorting key that reads runs of digits as numbers and ignores case."""
    # Text and numbers alternate, so that two keys never compare one with the other. The name itself
    # settles the order of frame1 and frame01.
    parts = re.split(r"(\d+)", name.casefold())
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], name


def _words_and_number(stem: str) -> tuple[str, float]:
    """Split the last number of a name, which may be a time in seconds, from the rest."""
    match = re.fullmatch(r"(.*?)(\d+(?:\.\d+)?)(\D*)", stem.casefold())
    return (f"{match[1]}#{match[3]}", float(match[2])) if match else ("", 0.0)


def _list_files(
    folder: PathLike,
    suffixes: Set[str],
    *,
    what: str,
    error: type[FlowError],
    also: Callable[[Path], bool] = lambda _: False,
) -> list[Path]:
    folder = Path(folder)
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise error(f"{folder} {problem}; give a folder of {what}")
    try:
        files = [path for path in folder.iterdir() if _is_visible(path, suffixes) or also(path)]
    except OSError as err:
        raise error(f"{folder} cannot be listed: {os_reason(err)}") from err
    if not files:
        endings = ", ".join(sorted(suffixes))
        raise error(f"{folder} holds no {what}; files must end in {endings}")
    return sorted(files, key=lambda path: natural_key(path.name))


def _is_visible(path: Path, suffixes: Set[str]) -> bool:
    return path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file()
