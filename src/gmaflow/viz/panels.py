"""Pictures side by side, with captions."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from gmaflow.errors import FlowError
from gmaflow.viz._checks import check_image
from gmaflow.viz._draw import INK, WHITE, font, shorten


def panel(
    pictures: Sequence[UInt8[np.ndarray, "_ _ 3"]],
    captions: Sequence[str] | None = None,
    *,
    columns: int | None = None,
    background: tuple[int, int, int] = WHITE,
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Lay pictures out in a grid.

    All cells are as high as the highest picture and as wide as the widest; a smaller picture is
    scaled to fit its cell and keeps its shape.

    Args:
        pictures: one or more, row by row.
        captions: one for each picture, written above it and cut with an ellipsis if too long.
        columns: by default up to four pictures stand in one row, and more in a square.
        background: colour of the gutters and of what a picture leaves empty in its cell.

    Returns:
        The whole.
    """
    _check(pictures, captions, columns)
    columns = columns or (
        len(pictures) if len(pictures) <= 4 else math.isqrt(len(pictures) - 1) + 1
    )
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    height, width = (max(picture.shape[axis] for picture in pictures) for axis in (0, 1))
    gutter, size = _proportions(height, width)
    line = round(1.6 * size) if captions is not None else 0

    whole = Image.new(
        "RGB",
        (columns * (width + gutter) + gutter, rows * (height + line + gutter) + gutter),
        background,
    )
    draw = ImageDraw.Draw(whole)
    ink = INK if sum(background) > 3 * 128 else WHITE
    for i, picture in enumerate(pictures):
        row, column = divmod(i, columns)
        left = gutter + column * (width + gutter)
        top = gutter + row * (height + line + gutter)
        if captions is not None:
            text = shorten(captions[i], width=width, size=size)
            draw.text((left + width / 2, top + line / 2), text, ink, font(size), anchor="mm")
        if picture.size:
            fitted = _fit(picture, height, width)
            x = left + (width - fitted.width) // 2
            y = top + line + (height - fitted.height) // 2
            whole.paste(fitted, (x, y))
    return np.array(whole)


def _proportions(height: int, width: int) -> tuple[int, int]:
    """Gutter and font size that suit cells of this size, in pixels."""
    side = math.sqrt(height * width)
    return max(4, round(side / 60)), int(np.clip(side / 24, 11, 40))


def _fit(picture: UInt8[np.ndarray, "h w 3"], height: int, width: int) -> Image.Image:
    scale = min(height / picture.shape[0], width / picture.shape[1])
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    image = Image.fromarray(picture)
    # Without this a picture of the right size would still be resampled.
    return image if image.size == size else image.resize(size, Image.Resampling.LANCZOS)


def _check(
    pictures: Sequence[UInt8[np.ndarray, "_ _ 3"]],
    captions: Sequence[str] | None,
    columns: int | None,
) -> None:
    if not pictures:
        raise FlowError("got no pictures for the panel; give at least one")
    for picture in pictures:
        check_image(picture)
    if captions is not None and len(captions) != len(pictures):
        raise FlowError(
            f"got {len(captions)} captions for {len(pictures)} pictures; give one for each, or none"
        )
    if columns is not None and columns < 1:
        raise FlowError(f"got {columns} columns; give 1 or more, or leave it out")
