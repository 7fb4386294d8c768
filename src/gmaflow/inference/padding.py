"""Any size to multiples of 8 and back."""

from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import check_known
from gmaflow.model import STRIDE

PaddingKind = Literal["sintel", "kitti"]
"""The two published ways, named after the data they were published for."""


@dataclass(frozen=True)
class Padding:
    """How many rows and columns were added on each side."""

    left: int
    right: int
    top: int
    bottom: int

    @classmethod
    def to_stride(cls, height: int, width: int) -> "Padding":
        """Split what is missing to multiples of 8 over both sides, as published for Sintel."""
        rows, columns = -height % STRIDE, -width % STRIDE
        return cls(columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)

    @classmethod
    def to_stride_below(cls, height: int, width: int) -> "Padding":
        """Split the columns, but put all rows at the bottom, as published for KITTI."""
        rows, columns = -height % STRIDE, -width % STRIDE
        return cls(columns // 2, columns - columns // 2, 0, rows)

    @classmethod
    def of_kind(cls, kind: PaddingKind, height: int, width: int) -> "Padding":
        """Pad as published for Sintel or for KITTI."""
        make = cls.to_stride_below if kind == "kitti" else cls.to_stride
        return make(height, width)

    def pad(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b c _ _"]:
        """Repeat the border outwards; where nothing is missing these are the images themselves."""
        sides = (self.left, self.right, self.top, self.bottom)
        return F.pad(images, sides, mode="replicate") if any(sides) else images

    def crop(self, padded: Float[Tensor, "b c _ _"]) -> Float[Tensor, "b c H W"]:
        """Undo `pad`."""
        height, width = padded.shape[-2:]
        return padded[..., self.top : height - self.bottom, self.left : width - self.right]


def as_padding_kind(text: str) -> PaddingKind:
    """Return a text as a kind of padding.

    Raises:
        FlowError: It is none.
    """
    check_known("padding", text, get_args(PaddingKind))
    return cast("PaddingKind", text)
