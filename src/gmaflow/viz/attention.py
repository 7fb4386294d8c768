"""Where the network looks for the motion of a point: the paper's figure of attention maps."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from gmaflow.errors import FlowError
from gmaflow.io.sizes import check_same_size
from gmaflow.viz._checks import check_image
from gmaflow.viz._draw import blend, mark_point
from gmaflow.viz._ramp import EMBER, colorize
from gmaflow.viz.color import flow_to_image
from gmaflow.viz.panels import panel

# None of them occurs in the ramp of the maps.
_MARKERS = ((90, 255, 150), (80, 220, 255), (255, 255, 255), (255, 150, 255), (190, 255, 60))


def attention_overlay(
    image: UInt8[np.ndarray, "h w 3"],
    attention: Float32[np.ndarray, "h8 w8"],
    query: tuple[float, float],
) -> UInt8[np.ndarray, "h w 3"]:
    """Lay the attention of one point over the darkened image; brighter means more.

    Args:
        image: the first frame.
        attention: weights of one query, 0 or more, on a coarser grid that spans the image. Only
            their ratios matter.
        query: the point that attends, x and y in pixels of the image.

    Returns:
        The picture, with a ring at the query.
    """
    return _overlay(image, attention, query, _MARKERS[0])


def attention_panel(
    image: UInt8[np.ndarray, "h w 3"],
    maps: Sequence[Float32[np.ndarray, "h8 w8"]],
    queries: Sequence[tuple[float, float]],
    *,
    flow: Float32[np.ndarray, "h w 2"] | None = None,
    max_length: float | None = None,
) -> UInt8[np.ndarray, "_ _ 3"]:
    """The frame with its query points, the attention map of each, and the flow if given.

    Args:
        image: the first frame.
        maps: one map for each query.
        queries: points, x and y in pixels of the image.
        flow: motion in pixels, for a last picture.
        max_length: the length of flow drawn in full colour; by default the longest.

    Returns:
        The pictures in a row, with captions.
    """
    check_same_size({"the image": image, "the flow": flow})
    frame, overlays = attention_pictures(image, maps, queries)
    pictures = [frame, *overlays]
    captions = ["Frame", *(f"Attention map {i + 1}" for i in range(len(maps)))]
    if flow is not None:
        pictures.append(flow_to_image(flow, max_length=max_length))
        captions.append("Flow")
    return panel(pictures, captions, columns=len(pictures))


def attention_pictures(
    image: UInt8[np.ndarray, "h w 3"],
    maps: Sequence[Float32[np.ndarray, "h8 w8"]],
    queries: Sequence[tuple[float, float]],
) -> tuple[UInt8[np.ndarray, "h w 3"], list[UInt8[np.ndarray, "h w 3"]]]:
    """The frame with its query points, and the attention map of each, one picture for each.

    Args:
        image: the first frame.
        maps: one map for each query.
        queries: points, x and y in pixels of the image; each has a ring of its own colour, in the
            frame and in its map.
    """
    if len(maps) != len(queries) or not queries:
        raise FlowError(
            f"got {len(maps)} attention maps for {len(queries)} query points; "
            "give one map for each of at least one point"
        )
    frame, overlays = image, []
    for i, (attention, query) in enumerate(zip(maps, queries, strict=True)):
        color = _MARKERS[i % len(_MARKERS)]
        overlays.append(_overlay(image, attention, query, color))
        frame = mark_point(frame, query, color=color)
    return frame, overlays


def _overlay(
    image: UInt8[np.ndarray, "h w 3"],
    attention: Float32[np.ndarray, "h8 w8"],
    query: tuple[float, float],
    color: tuple[int, int, int],
) -> UInt8[np.ndarray, "h w 3"]:
    check_image(image)
    _check_query(image, query)
    if attention.ndim != 2 or not attention.size:
        raise FlowError(
            f"got an attention map of shape {attention.shape}; give (rows, columns) for one query"
        )
    strength = _stretch(attention, image.shape[:2])
    # In grey and dark the image still tells where we are, and the only colours are the map's.
    gray = (image @ np.array([0.299, 0.587, 0.114], np.float32))[..., None]
    ground = np.broadcast_to(gray * np.float32(0.45), image.shape)
    picture = blend(ground, colorize(strength, EMBER), 0.2 + 0.7 * strength[..., None])
    return mark_point(picture, query, color=color)


def _stretch(
    attention: Float32[np.ndarray, "h8 w8"], size: tuple[int, ...]
) -> Float32[np.ndarray, "h w"]:
    """The map at image size, with 1 for its largest weight."""
    clean = np.maximum(np.nan_to_num(attention, nan=0, posinf=0, neginf=0), 0)
    smooth = Image.fromarray(clean / (clean.max() or 1)).resize(
        (size[1], size[0]), Image.Resampling.BICUBIC
    )
    # Attention is spread over thousands of cells, most of them faint; the root lets them be seen.
    return np.sqrt(np.clip(np.asarray(smooth), 0, 1))


def _check_query(image: UInt8[np.ndarray, "h w 3"], query: tuple[float, float]) -> None:
    height, width = image.shape[:2]
    x, y = query
    if not (0 <= x <= width - 1 and 0 <= y <= height - 1):
        raise FlowError(
            f"the query point ({x:g}, {y:g}) is not in the image; "
            f"give x from 0 to {width - 1} and y from 0 to {height - 1}"
        )
