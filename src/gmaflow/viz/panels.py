"""Pictures side by side, with captions: any pictures, those of a pair, or those of attention."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image, ImageDraw

from gmaflow.errors import FlowError, counted
from gmaflow.io.images import check_image, check_same_size
from gmaflow.viz.flow_colors import (
    INK,
    WHITE,
    flow_to_image,
    flow_with_legend,
    font,
    text_width,
)
from gmaflow.viz.maps import attention_pictures, confidence_map, occlusion_overlay
from gmaflow.viz.warp import warp_back

Occlusion = tuple[Bool[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]
"""Pixels occluded inside the second frame, and pixels that left it."""


def panel(
    pictures: Sequence[UInt8[np.ndarray, "_ _ 3"]],
    captions: Sequence[str] | None = None,
    *,
    columns: int | None = None,
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Arrange pictures in a grid.

    All cells are as high as the highest picture and as wide as the widest. Smaller pictures are
    scaled to fit and keep their aspect ratio.

    Args:
        pictures: one or more, row by row.
        captions: one for each picture, written above it and cut with an ellipsis if too long.
        columns: by default up to four pictures form one row, and more form a square.
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
        WHITE,
    )
    draw = ImageDraw.Draw(whole)
    for i, picture in enumerate(pictures):
        row, column = divmod(i, columns)
        left = gutter + column * (width + gutter)
        top = gutter + row * (height + line + gutter)
        if captions is not None:
            text = shorten(captions[i], width=width, size=size)
            draw.text((left + width / 2, top + line / 2), text, INK, font(size), anchor="mm")
        if picture.size:
            fitted = _fit(picture, height, width)
            x = left + (width - fitted.width) // 2
            y = top + line + (height - fitted.height) // 2
            whole.paste(fitted, (x, y))
    return np.array(whole)


def pair_panel(
    image1: UInt8[np.ndarray, "h w 3"],
    image2: UInt8[np.ndarray, "h w 3"],
    flow: Float32[np.ndarray, "h w 2"],
    *,
    occlusion: Occlusion | None = None,
    confidence: Float32[np.ndarray, "h w"] | None = None,
    error: UInt8[np.ndarray, "h w 3"] | None = None,
    error_caption: str = "error",
    max_length: float | None = None,
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Show a pair: its frames, flow and warped frame, and the optional pictures that are given.

    Args:
        image1: the first frame.
        image2: the second frame.
        flow: motion from the first to the second, in pixels.
        occlusion: two masks.
        confidence: confidence in the flow, from 0 to 1.
        error: an `error_map` of the flow.
        error_caption: its caption, such as "error, mean 0.49 px".
        max_length: the length at full colour; by default the largest.
    """
    pictures = {
        "frame 1": image1,
        "frame 2": image2,
        "flow": flow_with_legend(flow, max_length=max_length),
        "frame 2 warped back": warp_back(image2, flow),
    }
    if occlusion is not None:
        pictures["hidden (orange), out of frame (blue)"] = occlusion_overlay(image1, *occlusion)
    if confidence is not None:
        pictures["confidence"] = confidence_map(confidence)
    if error is not None:
        pictures[error_caption] = error
    return panel(list(pictures.values()), list(pictures), columns=2)


def attention_panel(
    image: UInt8[np.ndarray, "h w 3"],
    maps: Sequence[Float32[np.ndarray, "h8 w8"]],
    queries: Sequence[tuple[float, float]],
    *,
    flow: Float32[np.ndarray, "h w 2"] | None = None,
    max_length: float | None = None,
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Show the frame with its query points, the attention map of each, and the flow if given.

    The pictures are in a row, with captions, as in the paper's figure of attention maps.
    """
    check_same_size({"the image": image, "the flow": flow})
    frame, overlays = attention_pictures(image, maps, queries)
    pictures = [frame, *overlays]
    captions = ["Frame", *(f"Attention map {i + 1}" for i in range(len(maps)))]
    if flow is not None:
        pictures.append(flow_to_image(flow, max_length=max_length))
        captions.append("Flow")
    return panel(pictures, captions, columns=len(pictures))


def shorten(text: str, *, width: int, size: int) -> str:
    """Cut a line at the end, with an ellipsis, until it is at most `width` pixels wide."""
    # Hinting leaves a space of small letters only two or three pixels.
    line = ("  " if size <= 16 else " ").join(text.split())
    if text_width(line, size) <= width:
        return line
    for end in range(len(line) - 1, 0, -1):
        cut = line[:end].rstrip() + "…"
        if text_width(cut, size) <= width:
            return cut
    return ""


def _proportions(height: int, width: int) -> tuple[int, int]:
    """Gutter and font size that suit cells of this size, in pixels."""
    side = math.sqrt(height * width)
    return max(4, round(side / 60)), int(np.clip(side / 24, 11, 40))


def _fit(picture: UInt8[np.ndarray, "h w 3"], height: int, width: int) -> Image.Image:
    scale = min(height / picture.shape[0], width / picture.shape[1])
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    image = Image.fromarray(picture)
    # Otherwise a picture of the right size would still be resampled.
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
            f"got {counted(len(captions), 'caption')} for {counted(len(pictures), 'picture')}; "
            "give one for each, or none"
        )
    if columns is not None and columns < 1:
        raise FlowError(f"got {columns} columns; give 1 or more, or omit it")
