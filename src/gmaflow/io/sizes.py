"""Sizes: reading them from text, comparing them, and limits on what is decoded."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from gmaflow.errors import FlowError, FlowFileError, ImageTooLargeError

Sized = npt.NDArray[Any] | tuple[int, ...] | None
"""An array, or its shape; None is ignored."""

MIN_SIDE, MAX_SIDE = 16, 16384
"""The network takes no smaller images, and no camera takes larger ones."""
MAX_PIXELS = 2**28
"""Of a flow file: 16,384 squared, 2 GiB of flow."""
MAX_DEFLATE_RATIO = 1032
"""Deflate packs at most that many bytes into one; a header that claims more is wrong."""
SAFE_UNPACKED, SAFE_RATIO = 2**28, 64
"""Files may unpack to this many bytes, and to more only if compressed no further than real data. A
megabyte of deflated zeros would otherwise take gigabytes."""
TOO_LARGE = (
    "{name} has more pixels than is safe to decode; shrink it, "
    "or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it"
)


def read_size(text: str, *, smallest: int = MIN_SIDE, largest: int = MAX_SIDE) -> tuple[int, int]:
    """Read a height and width such as 440x1024, both within limits.

    Raises:
        FlowError: The text is not a size, or a side is out of range.
    """
    found = re.fullmatch(r"(\d{1,9})[x×](\d{1,9})", text.strip().lower())  # noqa: RUF001
    if found is None:
        raise FlowError(f"{text!r} is not a size; give height x width such as 440x1024")
    height, width = int(found[1]), int(found[2])
    if min(height, width) < smallest:
        raise FlowError(f"{text} is too small; give at least {smallest}x{smallest}")
    if max(height, width) > largest:
        raise FlowError(f"{text} is too large; give at most {largest}x{largest}")
    return height, width


def shape_text(shape: tuple[int, ...]) -> str:
    """Write a shape, such as 440x1024."""
    return "x".join(map(str, shape)) or "a single number"


def check_same_size(
    things: Mapping[str, Sized],
    *,
    error: type[FlowError] = FlowError,
    remedy: str = "crop or resize one of them so that they match",
) -> None:
    """Refuse arrays that differ in height or width.

    Args:
        things: Arrays or shapes by name; height and width come first.
        error: The class of error to raise.
        remedy: What to do about it, for the message.

    Raises:
        FlowError: Two of them differ in size.
    """
    sizes = {
        name: (thing if isinstance(thing, tuple) else thing.shape)[:2]
        for name, thing in things.items()
        if thing is not None
    }
    (first, size), *others = sizes.items()
    for name, other in others:
        if other != size:
            raise error(
                f"{first} and {name} differ in size: {shape_text(size)} and {shape_text(other)} "
                f"(height x width); {remedy}"
            )


def check_pixels(width: int, height: int, name: str, max_pixels: int | None) -> None:
    """Refuse images of more than `max_pixels`, or more than Pillow considers safe.

    Raises:
        ImageTooLargeError: The image is larger.
    """
    from PIL import Image

    if max_pixels is not None and width * height > max_pixels:
        raise ImageTooLargeError(
            f"{name} has {width} x {height} pixels, more than the {max_pixels:,} that are allowed; "
            "shrink it"
        )
    # Between once and twice its own limit Pillow only warns.
    if Image.MAX_IMAGE_PIXELS is not None and width * height > Image.MAX_IMAGE_PIXELS:
        raise ImageTooLargeError(TOO_LARGE.format(name=name))


def check_header_size(path: Path, height: int, width: int) -> None:
    """Refuse a size that no flow file has, before memory is allocated for it."""
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise FlowFileError(
            f"{path}: its header gives a size of {height} x {width}; "
            "the file is damaged or not a flow file"
        )


def check_length(path: Path, claimed: int, actual: int) -> None:
    """Refuse a flow file whose length is not what its header claims."""
    if claimed != actual:
        raise FlowFileError(
            f"{path}: its header asks for {claimed} bytes of flow but it has {actual}; "
            "the file is truncated or damaged"
        )


def check_ratio(path: Path, unpacked: int, packed: int) -> None:
    """Refuse a flow file that claims more data than its compressed bytes can hold."""
    if unpacked > MAX_DEFLATE_RATIO * packed + 1024:
        raise FlowFileError(
            f"{path}: its header asks for {unpacked} bytes, more than {packed} compressed bytes "
            "can hold; the file is truncated or damaged"
        )
    if is_bomb(unpacked, packed):
        raise FlowFileError(
            f"{path}: its {packed} bytes unpack to {unpacked}, more than is safe; if you trust it, "
            "save it without compression"
        )


def is_bomb(unpacked: int, packed: int) -> bool:
    """Return whether a file would take much memory, and is small for what it holds."""
    return unpacked > max(SAFE_UNPACKED, SAFE_RATIO * packed)
