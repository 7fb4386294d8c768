"""What one step learns from.

Legend: b batch, h w rows and columns.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Batch(NamedTuple):
    """Pairs with their truth."""

    image1: Float[Tensor, "b 3 h w"]
    """First frames, RGB in 0..1."""
    image2: Float[Tensor, "b 3 h w"]
    flow: Float[Tensor, "b 2 h w"]
    """The truth in pixels, anything where it is not valid."""
    valid: Bool[Tensor, "b h w"]
    """Where the truth is known."""
    occluded: Bool[Tensor, "b h w"]
    """Pixels of the first frame that are known not to be visible in the second."""

    @classmethod
    def blank(cls, pairs: int, size: tuple[int, int], device: torch.device) -> "Batch":
        """Return grey frames that do not move, for work whose result is nothing."""
        image = torch.full((pairs, 3, *size), 0.5, device=device)
        flow = torch.zeros(pairs, 2, *size, device=device)
        valid = torch.ones(pairs, *size, dtype=torch.bool, device=device)
        return cls(image, image.clone(), flow, valid, ~valid)

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; pinned memory is copied while others work."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @classmethod
    def join(cls, parts: Sequence["Batch"]) -> "Batch":
        """Return several batches as one."""
        return cls(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def split(self, parts: int) -> list["Batch"]:
        """Return the batch in equal parts, one after another."""
        chunks = (tensor.chunk(parts) for tensor in self)
        return [Batch(*part) for part in zip(*chunks, strict=True)]
