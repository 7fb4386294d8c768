"""Sizes as people write them."""

from gmaflow.errors import FlowError
from gmaflow.model import MIN_SIDE

MAX_SIDE = 16384
"""No camera's frames are larger, and images to try a size with must be made."""


def read_size(text: str) -> tuple[int, int]:
    """Read a height and width.

    Raises:
        FlowError: It is none.
    """
    parts = text.split("x")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise FlowError(f"{text!r} is no size; give height x width such as 440x1024")
    height, width = int(parts[0]), int(parts[1])
    if min(height, width) < MIN_SIDE:
        raise FlowError(f"{text} is too small; give at least {MIN_SIDE}x{MIN_SIDE}")
    if max(height, width) > MAX_SIDE:
        raise FlowError(f"{text} is too large; give at most {MAX_SIDE}x{MAX_SIDE}")
    return height, width
