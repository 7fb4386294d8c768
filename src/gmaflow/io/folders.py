"""Folders of pictures, in the order in which people count."""

import re
from pathlib import Path

from gmaflow.errors import ImageError
from gmaflow.io.images import IMAGE_SUFFIXES
from gmaflow.io.paths import PathLike


def list_images(folder: PathLike) -> list[Path]:
    """List the pictures of a folder, frame2 before frame10; hidden files are left out.

    Raises:
        ImageError: there is no such folder, or no picture in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ImageError(f"{folder} is not a folder; give a folder of images")
    try:
        images = [path for path in folder.iterdir() if _is_image(path)]
    except OSError as err:
        raise ImageError(f"{folder} cannot be listed: {err.strerror}") from err
    if not images:
        known = ", ".join(sorted(IMAGE_SUFFIXES))
        raise ImageError(f"{folder} holds no images; files ending in {known} are looked for")
    return sorted(images, key=lambda path: natural_key(path.name))


def natural_key(name: str) -> tuple[list[str | int], str]:
    """Sorting key that reads runs of digits as numbers and ignores case."""
    # Text and numbers alternate, so that two keys never compare one with the other. The name itself
    # settles the order of frame1 and frame01.
    parts = re.split(r"(\d+)", name.casefold())
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], name


def _is_image(path: Path) -> bool:
    return (
        path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
