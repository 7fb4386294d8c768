"""Inputs of the network: images loaded, checked, padded to multiples of 8, and encoded.

Legend: b batch, c channels, H W rows and columns of padded images.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, UInt8
from numpy.typing import ArrayLike
from torch import Tensor

from gmaflow.errors import FlowError, ImageError, check_known
from gmaflow.io import TimedFrame, image_to_array, list_images, read_image
from gmaflow.io.images import check_same_size
from gmaflow.model import MIN_SIDE, STRIDE, EncodedFrame, FlowNetwork
from gmaflow.model.network import check_batches, check_minmax

if TYPE_CHECKING:
    import PIL.Image

ImageLike: TypeAlias = "str | Path | np.ndarray | PIL.Image.Image"
"""A path, an array `H x W x 3` (uint8, uint16, or float in 0..1; grey too) or a PIL image."""

ImageArray: TypeAlias = UInt8[np.ndarray, "_ _ 3"] | Float32[np.ndarray, "_ _ 3"]
"""An image that was checked; floats are in 0..1."""

Frames: TypeAlias = "Iterable[ImageLike] | Iterable[TimedFrame] | str | Path"
"""Consecutive images, the folder that holds them, or the frames of a `VideoReader`."""

PaddingKind = Literal["sintel", "kitti"]
"""The two published ways to pad, named after the data they were published for."""

ROUNDING = 1e-4
"""How far float images may overshoot 0..1; resizing and colour conversion can do that."""


@dataclass(frozen=True, eq=False)
class Frame:
    """An image and its features; can be used in place of an image.

    In a sequence every frame except the first and the last is part of two pairs. As a `Frame`, made
    by `FlowEstimator.encode`, it is encoded once instead of twice.
    """

    image: ImageArray
    padded: Float[Tensor, "1 3 H W"]
    encoded: EncodedFrame | None
    """None if it is not encoded yet, or so large that it must be estimated in tiles."""
    network: FlowNetwork
    """The network that encoded it; no other network can use it."""


FrameLike: TypeAlias = "ImageLike | Frame"


def load_image(image: ImageLike, *, name: str = "the image") -> ImageArray:
    """Return an image as an array `H x W x 3`, uint8 or float32 in 0..1.

    An array that this function returned is returned as it is.

    Raises:
        ImageError: The image cannot be read, or flow cannot be estimated on it.
    """
    if isinstance(image, str | Path):
        array, name = read_image(image), str(image)
    elif isinstance(image, np.ndarray):
        array = check_array(image, name)
    elif hasattr(image, "getbands"):
        array = image_to_array(image, name=name)
    elif isinstance(image, Tensor):
        raise ImageError(f"{name} is a tensor; for tensors use `FlowEstimator.batch`")
    else:
        raise ImageError(
            f"{name} is of type {type(image).__name__}; use a path, a numpy array or a PIL image"
        )
    height, width = array.shape[:2]
    if min(height, width) < MIN_SIDE:
        raise ImageError(
            f"{name} is {height}x{width}; flow needs at least {MIN_SIDE} pixels in height and width"
        )
    return array


def check_array(array: np.ndarray, name: str) -> ImageArray:
    """Return an array of any accepted kind as `H x W x 3`, uint8 or float32 in 0..1."""
    array = np.asarray(array)  # a matrix always has two dimensions
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4):
        raise ImageError(
            f"{name} has shape {array.shape}; use height x width x 3 (or height x width for grey)"
        )
    if array.dtype == np.uint8:
        pass
    elif array.dtype.newbyteorder("=") == np.uint16:
        array = array.astype(np.float32) / 65535
    elif np.issubdtype(array.dtype, np.floating):
        array = check_floats(array, name)
    else:
        raise ImageError(f"{name} is {array.dtype}; use uint8, uint16, or float in 0..1")
    rgb = np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array[..., :3]
    return np.ascontiguousarray(rgb)  # torch takes no views with negative strides (BGR to RGB)


def check_floats(array: np.ndarray, name: str) -> np.ndarray:
    """Return a float image as float32 in 0..1; refuse values far outside, NaN and infinity."""
    low, high = float(array.min(initial=0)), float(array.max(initial=0))
    if math.isnan(low) or math.isnan(high):
        raise ImageError(f"{name} contains NaN; replace those pixels first")
    if math.isinf(low) or math.isinf(high):
        raise ImageError(f"{name} contains infinite values; replace those pixels first")
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise ImageError(
            f"{name} is a float image with values from {low:g} to {high:g}; scale it to 0..1, or "
            "use uint8"
        )
    if array.dtype == np.float32 and low >= 0 and high <= 1:
        return array
    return array.astype(np.float32).clip(0, 1)


def to_tensor(array: ImageArray, device: torch.device) -> Float[Tensor, "1 3 h w"]:
    """Return a loaded image as a batch of one on the device, in 0..1."""
    if device.type == "cuda" and array.dtype == np.uint8:
        return to_tensors(array[None], device)
    tensor = torch.tensor(array, device=device).permute(2, 0, 1)[None].float()
    return tensor.div_(255) if array.dtype == np.uint8 else tensor


def to_tensors(
    arrays: UInt8[np.ndarray, "b h w 3"], device: torch.device
) -> Float[Tensor, "b 3 h w"]:
    """Return images of one size as a batch on the device, in 0..1; transferred as bytes."""
    images = torch.from_numpy(arrays) if arrays.flags.writeable else torch.tensor(arrays)
    if device.type == "cuda":
        images = images.pin_memory().to(device, non_blocking=True)
    return images.to(device).permute(0, 3, 1, 2).float().div_(255)


def check_tensors(image1: Tensor, image2: Tensor) -> None:
    """Refuse batches of images on which flow cannot be estimated."""
    check_pairs(image1, image2)
    check_values(image1, image2)


def check_pairs(image1: Tensor, image2: Tensor) -> None:
    """Refuse batches of images by their shapes and types."""
    check_batches(image1, image2)
    if min(image1.shape[-2:]) < MIN_SIDE:
        raise ImageError(f"flow needs at least {MIN_SIDE} pixels in height and width")
    if len(image1) == 0:
        raise ImageError("the batches are empty; use at least one pair")
    if image1.is_meta or torch.strided != image1.layout or torch.strided != image2.layout:
        raise ImageError("a batch of images is a dense tensor with values; convert it first")


def check_values(image1: Tensor, image2: Tensor) -> None:
    """Refuse images by their values."""
    # One transfer from the device: each one synchronizes.
    minmax = torch.stack([*torch.aminmax(image1), *torch.aminmax(image2)]).tolist()
    check_minmax(minmax, ROUNDING)


def check_pair(first: ImageArray, second: ImageArray) -> None:
    """Refuse images of two sizes."""
    check_same_size({"the first image": first, "the second": second}, error=ImageError)


def each_image(frames: Frames) -> Iterator[ImageLike]:
    """Return the images of a sequence one by one; those of a folder in natural order."""
    if isinstance(frames, Iterable) and not isinstance(frames, str):
        yield from map(image_of, frames)
    elif not isinstance(frames, str | Path):
        raise ImageError(
            f"the frames are of type {type(frames).__name__}; use a list of images or a folder"
        )
    elif Path(frames).is_dir():
        yield from list_images(frames)
    else:
        raise ImageError(
            f"{frames} is not a sequence of images; use a list of them, a folder, or for a video "
            "gmaflow.io.VideoReader(path)"
        )


def image_of(frame: "ImageLike | TimedFrame") -> ImageLike:
    """Return the image of a frame of a video; other images as they are."""
    return frame.image if isinstance(frame, TimedFrame) else frame


@dataclass(frozen=True)
class Padding:
    """How many rows and columns are added on each side."""

    left: int
    right: int
    top: int
    bottom: int

    @classmethod
    def to_stride(cls, height: int, width: int) -> "Padding":
        """Pad to multiples of 8, as published for Sintel."""
        return cls.of_kind("sintel", height, width)

    @classmethod
    def of_kind(cls, kind: PaddingKind, height: int, width: int) -> "Padding":
        """Pad to multiples of 8 on both sides; as published for KITTI, rows at the bottom only.

        Raises:
            FlowError: The kind is unknown, or a side is not a whole number above 0.
        """
        as_padding_kind(kind)
        for side in (height, width):
            # torch.export passes a dynamic side as a SymInt.
            if not isinstance(side, torch.SymInt) and (not isinstance(side, Integral) or side < 1):
                raise ImageError(
                    f"{height!r}x{width!r} cannot be padded; give a height and a width"
                )
        rows, columns = -height % STRIDE, -width % STRIDE
        top = 0 if kind == "kitti" else rows // 2
        return cls(columns // 2, columns - columns // 2, top, rows - top)

    def pad(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b c _ _"]:
        """Repeat the border outwards; images that fit are returned as they are."""
        _check_padded(images)
        sides = (self.left, self.right, self.top, self.bottom)
        return F.pad(images, sides, mode="replicate") if any(sides) else images

    def crop(self, padded: Float[Tensor, "b c _ _"]) -> Float[Tensor, "b c H W"]:
        """Undo `pad`; images without padding are returned unchanged."""
        _check_padded(padded)
        if not any((self.left, self.right, self.top, self.bottom)):
            return padded
        height, width = self.size_before(*padded.shape[-2:])
        return padded[..., self.top : self.top + height, self.left : self.left + width]

    def size_before(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width of an image that has this size after padding."""
        return height - self.top - self.bottom, width - self.left - self.right


def _check_padded(images: object) -> None:
    if not isinstance(images, Tensor) or images.ndim not in (3, 4):
        what = tuple(images.shape) if hasattr(images, "shape") else type(images).__name__
        raise ImageError(f"the images are {what}; use a tensor [b, channels, height, width]")


def as_padding_kind(text: str) -> PaddingKind:
    """Return `text` as a kind of padding, or raise a `FlowError`."""
    check_known("padding", text, get_args(PaddingKind))
    return cast("PaddingKind", text)


def as_points(
    points: ArrayLike | Sequence[tuple[float, float]], height: int, width: int
) -> Float32[np.ndarray, "k 2"]:
    """Return points (x, y) of an image as an array.

    Raises:
        FlowError: They are not points, or one lies outside the image.
    """
    try:
        array = np.asarray(points, dtype=np.float32)
    except (ValueError, TypeError) as err:
        raise FlowError(f"the points are not numbers ({err}); give x and y of each point") from None
    if array.size == 0:
        return array.reshape(0, 2)
    if array.ndim != 2 or array.shape[1] != 2:
        raise FlowError(f"the points have the shape {array.shape}; give x and y of each point")
    inside = ((array >= -0.5) & (array < (width - 0.5, height - 0.5))).all(axis=1)
    if not inside.all():
        x, y = array[~inside][0]
        raise FlowError(
            f"the point {x:g},{y:g} lies outside the frame of {height}x{width}; x runs from 0 to "
            f"{width - 1}, y from 0 to {height - 1}"
        )
    return array
