"""Folders of pictures or flow, in the order in which people count."""

import re
from collections.abc import Sequence, Set
from itertools import pairwise
from pathlib import Path
from statistics import median_low

from gmaflow.errors import FlowError, FlowFileError, ImageError
from gmaflow.io.flow_files import FLOW_SUFFIXES
from gmaflow.io.images import IMAGE_SUFFIXES
from gmaflow.io.paths import PathLike

KITTI_ENDING = ".kitti.png"
"""Ending that tells KITTI's 16-bit flow from a picture."""


def list_images(folder: PathLike) -> list[Path]:
    """List the pictures of a folder, frame2 before frame10; hidden files are left out.

    OpenEXR files count where there is nothing else: beside other pictures they hold depth or masks.

    Raises:
        ImageError: there is no such folder, or no picture in it.
    """
    images = _list_files(folder, IMAGE_SUFFIXES, what="images", error=ImageError)
    return [path for path in images if path.suffix.lower() != ".exr"] or images


def list_flows(folder: PathLike) -> list[Path]:
    """List the flow files of a folder, flow2 before flow10; hidden files are left out.

    A .png counts where there is nothing else, or if it is called .kitti.png: beside other files it
    is a picture.

    Raises:
        FlowFileError: there is no such folder, or no flow in it.
    """
    flows = _list_files(folder, FLOW_SUFFIXES, what="flow files", error=FlowFileError)
    sure = [
        path
        for path in flows
        if path.suffix.lower() != ".png" or path.name.lower().endswith(KITTI_ENDING)
    ]
    return sure or flows


def find_breaks(frames: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Find neighbours whose names do not follow one another: other words, or numbers left out.

    Numbers may go up by any step, as those of every tenth frame or times do, as long as it is about
    the usual one. Names without a number tell nothing.
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
    """Part the last number of a name, which may be a time in seconds, from what is around it."""
    found = re.fullmatch(r"(.*?)(\d+(?:\.\d+)?)(\D*)", stem.casefold())
    return (f"{found[1]}#{found[3]}", float(found[2])) if found else ("", 0.0)


def _list_files(
    folder: PathLike, suffixes: Set[str], *, what: str, error: type[FlowError]
) -> list[Path]:
    folder = Path(folder)
    if not folder.is_dir():
        raise error(f"{folder} is not a folder; give a folder of {what}")
    try:
        files = [path for path in folder.iterdir() if _is_visible(path, suffixes)]
    except OSError as err:
        raise error(f"{folder} cannot be listed: {err.strerror}") from err
    if not files:
        known = ", ".join(sorted(suffixes))
        raise error(f"{folder} holds no {what}; files ending in {known} are looked for")
    return sorted(files, key=lambda path: natural_key(path.name))


def _is_visible(path: Path, suffixes: Set[str]) -> bool:
    return path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file()
