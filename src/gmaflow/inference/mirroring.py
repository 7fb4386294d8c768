"""Flow as the average over mirrored views of a pair, whose errors partly cancel.

A network is not quite symmetric: the flow of a mirrored pair is not exactly the mirrored flow.
Where it is far off, it is usually wrong, above all upside down, where the ground is not below. So
the pair as it is leads, and another view counts less the more it differs. The views of a batch are
estimated as one larger batch, in which those of a pair follow each other.

Legend: b batch, n the batch times the views, c channels, h w rows and columns.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import FlowError

LEFT_RIGHT, UP_DOWN = -1, -2
"""The dimensions along which images are mirrored. Channel 0 of flow is x, channel 1 is y."""
FLIPS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((),),
    2: ((), (LEFT_RIGHT,)),
    4: ((), (LEFT_RIGHT,), (UP_DOWN,), (LEFT_RIGHT, UP_DOWN)),
}
"""How each view is mirrored, by their number; the first is the pair as it is."""
HALF_AT = 2.0
"""A view that differs from the pair as it is by this many pixels counts half."""


@dataclass(frozen=True)
class MirroredViews:
    """Makes the views of a batch, and averages their flow."""

    count: int = 1

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count not in FLIPS:
            raise FlowError(
                f"views is {self.count!r}; use 1, 2 (also mirrored left to right) or 4 (also "
                "upside down)"
            )

    def of_images(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "n c h w"]:
        """Return all views of padded images."""
        if self.count == 1:
            return images
        views = [images.flip(dims) if dims else images for dims in FLIPS[self.count]]
        return torch.stack(views, dim=1).flatten(0, 1)

    def of_flow(self, flow: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "n 2 h w"]:
        """Return flow as it is in each view."""
        if self.count == 1:
            return flow
        views = self.of_images(flow).unflatten(0, (-1, self.count))
        return (views * self._signs(flow)).flatten(0, 1)

    def average(self, flow: Float[Tensor, "n 2 h w"], stride: int = 1) -> Float[Tensor, "b 2 h w"]:
        """Return the mean of the flow in all views, mirrored back and weighted.

        It is at most (views - 1) px from the flow of the pair as it is.

        Args:
            flow: Flow of all views, in pixels of its grid.
            stride: How many pixels of the image a pixel of the grid is wide.
        """
        if self.count == 1:
            return flow
        views = (flow.unflatten(0, (-1, self.count)) * self._signs(flow)).unbind(dim=1)
        first = views[0]
        total, weights = first.clone(), torch.ones_like(first[:, :1])
        for dims, mirrored in zip(FLIPS[self.count][1:], views[1:], strict=True):
            view = mirrored.flip(dims)
            difference = stride * (view - first).norm(dim=1, keepdim=True)
            weight = 1 / (1 + (difference / HALF_AT) ** 2)
            total += weight * view
            weights += weight
        return total / weights

    def largest(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Return the largest number of each pair's views."""
        starts = range(0, len(numbers), self.count)
        return tuple(max(numbers[start : start + self.count]) for start in starts)

    def _signs(self, like: Tensor) -> Float[Tensor, "views 2 1 1"]:
        """Return the factors of x and y in each view: mirroring reverses motion."""
        signs = [
            (-1.0 if LEFT_RIGHT in dims else 1.0, -1.0 if UP_DOWN in dims else 1.0)
            for dims in FLIPS[self.count]
        ]
        return torch.tensor(signs, dtype=like.dtype, device=like.device)[:, :, None, None]
