"""Uploads to frames: known by content, within limits, at the size that is worked on."""

from io import IOBase

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from gmaflow.example import load_example
from gmaflow.inference.images import check_same_size, load_image
from gmaflow.io import decode_image
from gmaflow.serving.jobs import Footage, Size
from gmaflow.serving.limits import Limits
from gmaflow.serving.results import ResultFolder

ImageArray = UInt8[np.ndarray, "_ _ 3"]


def take_example(folder: ResultFolder) -> Footage:
    """Return the built-in pair."""
    example = load_example()
    folder.save_frame(0, example.image1)
    folder.save_frame(1, example.image2)
    folder.save_truth(example.flow.array)
    size = size_of(example.image1)
    return Footage("pair", folder, 2, size, size, truth=True)


def take_pair(image1: IOBase, image2: IOBase, folder: ResultFolder, limits: Limits) -> Footage:
    """Decode two images.

    Raises:
        ImageTooLargeError: One has too many pixels.
        ImageError: One is no image, or the two do not go together.
    """
    frames = [
        load_image(decode_image(file, name=name, max_pixels=limits.pixels), name=name)
        for name, file in (("image1", image1), ("image2", image2))
    ]
    check_same_size(*frames)
    original = size_of(frames[0])
    size = working_size(original, limits.work_pixels)
    for number, frame in enumerate(frames):
        folder.save_frame(number, resize(frame, size))
    return Footage("pair", folder, 2, size, original, scaling_note(original, size))


def take_clip(file: IOBase, folder: ResultFolder, limits: Limits) -> Footage:
    """Decode a clip."""
    raise NotImplementedError


def working_size(original: Size, pixels: int) -> Size:
    """Return the largest size of the same shape that has no more pixels."""
    scale = min(1.0, (pixels / (original.width * original.height)) ** 0.5)
    return Size(max(16, int(original.width * scale)), max(16, int(original.height * scale)))


def resize(image: ImageArray, size: Size) -> ImageArray:
    """Scale an image down."""
    if size == size_of(image):
        return image
    return np.array(
        Image.fromarray(image).resize((size.width, size.height), Image.Resampling.LANCZOS)
    )


def size_of(image: ImageArray) -> Size:
    """Return the size of an image."""
    return Size(image.shape[1], image.shape[0])


def scaling_note(original: Size, size: Size) -> tuple[str, ...]:
    """Say that frames were scaled, where they were."""
    if size == original:
        return ()
    return (f"scaled down from {original} to {size} pixels, which is what flow is in",)
