"""The one type of training data: images, flow and masks as tensors.

Legend: h w rows and columns; *b an optional batch dimension.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt8
from torch import Tensor

Pixels = UInt8[np.ndarray, "h w 3"] | Float32[np.ndarray, "h w 3"]


class Batch(NamedTuple):
    """Image pairs with ground truth. A single pair has no batch dimension."""

    image1: Float[Tensor, "*b 3 h w"]
    """First frames, RGB in 0..1."""
    image2: Float[Tensor, "*b 3 h w"]
    flow: Float[Tensor, "*b 2 h w"]
    """True flow in pixels; undefined where not valid."""
    valid: Bool[Tensor, "*b h w"]
    """Where the flow is known."""
    occluded: Bool[Tensor, "*b h w"]
    """Pixels of the first frame known to be invisible in the second."""

    @classmethod
    def from_arrays(
        cls,
        images: tuple[Pixels, Pixels],
        flow: Float32[np.ndarray, "h w 2"],
        valid: Bool[np.ndarray, "h w"],
        occluded: Bool[np.ndarray, "h w"],
    ) -> "Batch":
        """Convert one pair; images hold values in 0..255."""
        image1, image2 = (
            torch.from_numpy(image.transpose(2, 0, 1) / np.float32(255)) for image in images
        )
        return cls(
            image1,
            image2,
            torch.from_numpy(flow.transpose(2, 0, 1).copy()),
            torch.from_numpy(valid),
            torch.from_numpy(occluded),
        )

    def to(self, device: torch.device) -> "Batch":
        """Copy to a device; copies from pinned memory are asynchronous."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @classmethod
    def join(cls, parts: Sequence["Batch"]) -> "Batch":
        return cls(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def split(self, parts: int) -> list["Batch"]:
        chunks = (tensor.chunk(parts) for tensor in self)
        return [Batch(*part) for part in zip(*chunks, strict=True)]
