"""Frames that the network has looked at once, for all the pairs they are part of.

Legend: b batch, H W rows and columns of padded images, h w those at 1/8.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import ImageError
from gmaflow.inference.images import ImageArray, ImageLike
from gmaflow.io import list_images
from gmaflow.model import EncodedFrame, FlowNetwork


@dataclass(frozen=True, eq=False)
class Frame:
    """An image and what the network found in it; goes wherever an image goes.

    In a sequence every frame but the first and the last is part of two pairs: made into a `Frame`
    by `FlowEstimator.encode` it is encoded once instead of twice.
    """

    image: ImageArray
    padded: Float[Tensor, "1 3 H W"]
    encoded: EncodedFrame | None
    """None where it is yet to be encoded, or too large for the memory but in tiles."""
    network: FlowNetwork
    """Who encoded it: to another network it says nothing."""


FrameLike: TypeAlias = "ImageLike | Frame"
Footage: TypeAlias = "Iterable[ImageLike] | str | Path"
"""Images that follow one another, or the folder that holds them."""


def both_directions(
    first: EncodedFrame, second: EncodedFrame
) -> tuple[EncodedFrame, Float[Tensor, "b c h w"]]:
    """Return a batch of two pairs, there and back, as `FlowNetwork.match` takes it."""
    ahead = (torch.cat(parts) for parts in zip(first, second, strict=True))
    return EncodedFrame(*ahead), torch.cat([second.features, first.features])


def joined(
    first: Frame, second: Frame, *, both_ways: bool
) -> tuple[Float[Tensor, "b 3 H W"], Float[Tensor, "b 3 H W"]]:
    """Return the frames' padded images as a batch of one pair, or of two, there and back."""
    if not both_ways:
        return first.padded, second.padded
    images = [first.padded, second.padded]
    return torch.cat(images), torch.cat(images[::-1])


def each_image(frames: Footage) -> Iterator[ImageLike]:
    """Return the images of a sequence one by one; of a folder those in it, in natural order.

    Raises:
        ImageError: It is a file, or a folder without images.
    """
    if not isinstance(frames, str | Path):
        yield from frames
    elif Path(frames).is_dir():
        yield from list_images(frames)
    else:
        raise ImageError(
            f"{frames} is no sequence of images; give a list of them, a folder, or for a video the "
            "frames of a gmaflow.io.VideoReader"
        )
