"""Backward warping: the second frame resampled at the positions that the flow points to."""

from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32, UInt8

from gmaflow.errors import FlowError
from gmaflow.io.images import check_flow, check_image, check_same_size
from gmaflow.viz.flow_colors import strips

_OUTSIDE = 128


def warp_back(
    image2: UInt8[np.ndarray, "h w 3"], flow: Float32[np.ndarray, "h w 2"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Warp the second frame back to the first; with a good flow the result looks like frame 1.

    It is grey where the flow points outside the frame or is not finite.
    """
    check_image(image2)
    check_flow(flow)
    check_same_size({"the image": image2, "the flow": flow})
    height, width = image2.shape[:2]
    if not image2.size:
        return image2.copy()

    columns = np.arange(width, dtype=np.float32)
    lines = np.arange(height, dtype=np.float32)[:, None]
    picture = np.empty_like(image2)
    for rows in strips(height, width):
        x, y = flow[rows, :, 0] + columns, flow[rows, :, 1] + lines[rows]
        inside = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
        colors = sample_bilinear(image2, np.where(inside, x, 0), np.where(inside, y, 0))
        picture[rows] = np.where(inside[..., None], np.rint(colors), _OUTSIDE)
    return picture


def sample_bilinear(
    image: UInt8[np.ndarray, "h w c"] | Float32[np.ndarray, "h w c"],
    x: Float32[np.ndarray, "*points"],
    y: Float32[np.ndarray, "*points"],
) -> Float32[np.ndarray, "*points c"]:
    """Sample an image with bilinear interpolation; NaN where a coordinate is NaN.

    0 is the centre of the first pixel. Coordinates are clamped to the image.
    """
    if not image.size:
        raise FlowError(f"an image of shape {image.shape} has no pixels to sample")
    height, width = image.shape[:2]
    left, right, along_x = _split(x, width)
    top, bottom, along_y = _split(y, height)

    pixels = image.reshape(height * width, -1)
    above = _mix(pixels, top * width + left, top * width + right, along_x)
    below = _mix(pixels, bottom * width + left, bottom * width + right, along_x)
    values: npt.NDArray[np.float32] = above + along_y[..., None] * (below - above)
    return values


def _split(
    coordinate: Float32[np.ndarray, "*points"], size: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Float32[np.ndarray, "*points"]]:
    """The two neighbours of each coordinate, and the fraction between them."""
    clipped = np.clip(coordinate, 0, size - 1)
    # For NaN any neighbours will do: the fraction stays NaN and so does the result.
    first = np.nan_to_num(clipped).astype(np.intp)
    return first, np.minimum(first + 1, size - 1), clipped - first.astype(np.float32)


def _mix(
    pixels: npt.NDArray[Any],
    first: npt.NDArray[np.intp],
    second: npt.NDArray[np.intp],
    fraction: Float32[np.ndarray, "*points"],
) -> Float32[np.ndarray, "*points c"]:
    start = pixels.take(first, axis=0).astype(np.float32)
    return start + fraction[..., None] * (pixels.take(second, axis=0) - start)
