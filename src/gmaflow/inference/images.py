"""Whatever people call an image, to tensors in 0..1."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from gmaflow.errors import ImageError
from gmaflow.io import image_to_array, read_image
from gmaflow.io.sizes import check_same_size
from gmaflow.model import MIN_SIDE

if TYPE_CHECKING:
    import PIL.Image

ImageLike: TypeAlias = "str | Path | np.ndarray | PIL.Image.Image"
"""A path, an array `H x W x 3` (uint8, uint16, or float in 0..1; grey too) or a PIL image."""

ImageArray: TypeAlias = UInt8[np.ndarray, "_ _ 3"] | Float32[np.ndarray, "_ _ 3"]
"""An image that was checked; floats are in 0..1."""

ROUNDING = 1e-4
"""How far float images may overshoot 0..1, as resizing and colour conversion leave them."""


def load_image(image: ImageLike, *, name: str = "the image") -> ImageArray:
    """Return an image as an array `H x W x 3`, uint8 or float32 in 0..1.

    Raises:
        ImageError: It cannot be read, or is no image that flow can be estimated on.
    """
    if isinstance(image, str | Path):
        array, name = read_image(image), str(image)
    elif isinstance(image, np.ndarray):
        array = check_array(image, name)
    elif hasattr(image, "getbands"):
        array = image_to_array(image, name=name)
    else:
        raise ImageError(
            f"{name} is a {type(image).__name__}; give a path, a numpy array or a PIL image"
        )
    height, width = array.shape[:2]
    if min(height, width) < MIN_SIDE:
        raise ImageError(
            f"{name} is {height}x{width}; flow needs at least {MIN_SIDE} pixels in height and width"
        )
    return array


def check_array(array: np.ndarray, name: str) -> ImageArray:
    """Return an array of any accepted kind as `H x W x 3`, uint8 or float32 in 0..1."""
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4):
        raise ImageError(
            f"{name} has shape {array.shape}; give height x width x 3 (or grey, height x width)"
        )
    if array.dtype == np.uint8:
        pass
    elif array.dtype == np.uint16:
        array = array.astype(np.float32) / 65535
    elif np.issubdtype(array.dtype, np.floating):
        array = check_floats(array, name)
    else:
        raise ImageError(f"{name} is {array.dtype}; give uint8, uint16, or float in 0..1")
    rgb = np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array[..., :3]
    return np.ascontiguousarray(rgb)  # views run backwards (BGR to RGB) are beyond torch


def check_floats(array: np.ndarray, name: str) -> np.ndarray:
    """Refuse float images that are not finite or not in 0..1."""
    if not np.isfinite(array).all():
        raise ImageError(f"{name} has pixels that are NaN or infinite; replace them first")
    low, high = float(array.min(initial=0)), float(array.max(initial=0))
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise ImageError(
            f"{name} is a float image with values from {low:g} to {high:g}; scale it to 0..1, or "
            "give uint8"
        )
    return array.astype(np.float32).clip(0, 1)


def to_tensor(array: ImageArray, device: torch.device) -> Float[Tensor, "1 3 h w"]:
    """Return a loaded image as a batch of one on the device, in 0..1."""
    tensor = torch.tensor(array, device=device).permute(2, 0, 1)[None].float()
    return tensor.div_(255) if array.dtype == np.uint8 else tensor


def check_tensors(image1: Tensor, image2: Tensor) -> None:
    """Refuse batches of images that no flow can be estimated on.

    Raises:
        ImageError: They are not what they should be; it says what is wanted.
    """
    for image in (image1, image2):
        if not isinstance(image, Tensor) or image.ndim != 4 or image.shape[1] != 3:
            what = tuple(image.shape) if hasattr(image, "shape") else type(image).__name__
            raise ImageError(f"a batch of images is a tensor [b, 3, height, width], not {what}")
        if not image.is_floating_point():
            raise ImageError(
                f"a batch of images is float in 0..1, not {image.dtype}: divide by 255"
            )
    if image1.shape != image2.shape:
        raise ImageError(
            f"the two batches differ in shape: {tuple(image1.shape)} and {tuple(image2.shape)}"
        )
    if image1.device != image2.device:
        raise ImageError(
            f"the two batches are on {image1.device} and {image2.device}; put both on one device"
        )
    if min(image1.shape[-2:]) < MIN_SIDE:
        raise ImageError(f"flow needs at least {MIN_SIDE} pixels in height and width")
    if len(image1) == 0:
        raise ImageError("the batches are empty; give at least one pair")
    # One question to the device: each answer would be waited for.
    ends = torch.stack([*torch.aminmax(image1), *torch.aminmax(image2)]).tolist()
    low, high = min(ends), max(ends)
    # Written so that NaN, which is neither below nor above, is refused too.
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise ImageError(f"the images hold values from {low:g} to {high:g}; scale them to 0..1")


def check_pair(first: ImageArray, second: ImageArray) -> None:
    """Refuse images of two sizes."""
    check_same_size({"the first image": first, "the second": second}, error=ImageError)
