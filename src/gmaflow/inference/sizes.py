"""Sizes as people write them."""

import re

from gmaflow.errors import FlowError
from gmaflow.model import MIN_SIDE

MAX_SIDE = 16384
"""No camera's frames are larger, and images to try a size with must be made."""


def read_size(text: str, *, smallest: int = MIN_SIDE, largest: int = MAX_SIDE) -> tuple[int, int]:
    """Read a height and width, both within limits.

    Raises:
        FlowError: It is none.
    """
    found = re.fullmatch(r"(\d{1,9})[x×](\d{1,9})", text.strip().lower())  # noqa: RUF001
    if found is None:
        raise FlowError(f"{text!r} is no size; give height x width such as 440x1024")
    height, width = int(found[1]), int(found[2])
    if min(height, width) < smallest:
        raise FlowError(f"{text} is too small; give at least {smallest}x{smallest}")
    if max(height, width) > largest:
        raise FlowError(f"{text} is too large; give at most {largest}x{largest}")
    return height, width
