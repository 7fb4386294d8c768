"""How alike every pixel of frame 1 is to every pixel of frame 2, and the lookup around a guess.

Legend: b batch, c channels, h w rows and columns at 1/8, n = h * w pixels of frame 1,
m pixels of one level of frame 2, k = 2 * radius + 1 the lookup window's side, l levels.

The window's offsets are whole pixels, so all its samples share one fractional part: a lookup reads
the (k + 1)^2 correlations at whole positions around the guess, then blends neighbours once. Where
those correlations come from is the only difference between the two classes: `StoredCorrelation`
computed all of them before, `StreamedCorrelation` computes those it needs each time.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

STREAM_BYTES = {"cpu": 4 * 2**20, "other": 256 * 2**20}
"""Largest intermediate of a streamed lookup. A CPU is fastest on what its caches hold (4 MiB take
a third of the time of 64), a GPU on what keeps all of it busy."""


@runtime_checkable
class Correlation(Protocol):
    """What the refinement needs of a correlation: its values around a guess."""

    def lookup(self, coords: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b lkk h w"]:
        """Return the correlations in a window around `coords` (x, y) on every level."""
        ...


def correlate(
    features1: Float[Tensor, "b c h w"],
    features2: Float[Tensor, "b c h w"],
    *,
    num_levels: int,
    radius: int,
    store: bool,
) -> Correlation:
    """Correlate two feature maps, the second also at 1/2, 1/4, ... of its size.

    Always in float32: the volume is what small displacements are read from, and half precision
    costs accuracy there.
    """
    with torch.autocast(features1.device.type, enabled=False):
        scaled = features1.float() / features1.shape[1] ** 0.5
        pyramid = feature_pyramid(features2.float(), num_levels=num_levels)
        if store:
            return StoredCorrelation.build(scaled, pyramid, radius=radius)
        return StreamedCorrelation(scaled, pyramid, radius)


def feature_pyramid(
    features: Float[Tensor, "b c h w"], *, num_levels: int
) -> tuple[Float[Tensor, "b c _ _"], ...]:
    """Halve the features again and again; a level that shrinks to nothing stays, empty.

    RAFT pools the correlation volume. A dot product is linear, so pooling the features first gives
    the same numbers for a fraction of the memory.
    """
    levels = [features]
    for _ in range(num_levels - 1):
        last = levels[-1]
        if min(last.shape[-2:]) >= 2:
            levels.append(F.avg_pool2d(last, 2))
        else:
            levels.append(last[..., :0, :0])
    return tuple(levels)


@dataclass(frozen=True)
class StoredCorrelation:
    """All correlations, computed once: fastest, and as large as (h * w)^2."""

    volumes: tuple[Float[Tensor, "b n _"], ...]
    """One level each; the rows are frame 1's pixels, the columns frame 2's."""
    sizes: tuple[tuple[int, int], ...]
    """Height and width of each level."""
    radius: int

    @classmethod
    def build(
        cls,
        features1: Float[Tensor, "b c h w"],
        pyramid2: tuple[Float[Tensor, "b c _ _"], ...],
        *,
        radius: int,
    ) -> "StoredCorrelation":
        """Take all dot products between frame 1 and each level of frame 2."""
        rows = features1.flatten(2).transpose(1, 2)
        volumes = tuple(rows @ level.flatten(2) for level in pyramid2)
        sizes = tuple((level.shape[-2], level.shape[-1]) for level in pyramid2)
        return cls(volumes, sizes, radius)

    def lookup(self, coords: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b lkk h w"]:
        """Return the correlations in a window around `coords` (x, y) on every level."""
        windows = []
        for level, (volume, size) in enumerate(zip(self.volumes, self.sizes, strict=True)):
            around = Neighbourhood.at(coords, level=level, size=size, radius=self.radius)
            if volume.shape[-1] == 0:
                windows.append(around.empty())
            else:
                windows.append(around.blend(volume.gather(2, around.index)))
        return windows_to_map(windows, coords)


@dataclass(frozen=True)
class StreamedCorrelation:
    """Features only; the correlations that a lookup reads are computed when it reads them."""

    features1: Float[Tensor, "b c h w"]
    pyramid2: tuple[Float[Tensor, "b c _ _"], ...]
    radius: int

    def lookup(self, coords: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b lkk h w"]:
        """Return the correlations in a window around `coords` (x, y) on every level."""
        windows = []
        for level, features2 in enumerate(self.pyramid2):
            size = (features2.shape[-2], features2.shape[-1])
            around = Neighbourhood.at(coords, level=level, size=size, radius=self.radius)
            if 0 in size:
                windows.append(around.empty())
            else:
                windows.append(around.blend(self._correlations(features2, around.index)))
        return windows_to_map(windows, coords)

    def _correlations(
        self, features2: Float[Tensor, "b c v u"], index: Int64[Tensor, "b n kk1"]
    ) -> Float[Tensor, "b n kk1"]:
        """Dot products of each pixel of frame 1 with its indexed pixels of frame 2."""
        rows1 = self.features1.flatten(2).transpose(1, 2)
        rows2 = features2.flatten(2).transpose(1, 2).contiguous()
        bytes_per_pixel = index.shape[-1] * rows2.shape[-1] * rows2.element_size()
        limit = STREAM_BYTES["cpu" if index.device.type == "cpu" else "other"]
        chunk = max(1, limit // bytes_per_pixel)
        found = index.new_zeros(index.shape, dtype=rows1.dtype)
        for item in range(len(rows2)):
            for start in range(0, index.shape[1], chunk):
                part = slice(start, start + chunk)
                seen = F.embedding(index[item, part], rows2[item])
                found[item, part] = torch.einsum("nkc,nc->nk", seen, rows1[item, part])
        return found


@dataclass(frozen=True)
class Neighbourhood:
    """The (k + 1)^2 whole positions around a guess, on one level of frame 2."""

    index: Int64[Tensor, "b n kk1"]
    """Flat position in the level; somewhere harmless where `inside` is false."""
    inside: Bool[Tensor, "b n kk1"]
    fraction: Float[Tensor, "b n 2"]
    """How far (x, y) the guess lies beyond the whole position."""
    side: int
    """k + 1."""

    @classmethod
    def at(
        cls,
        coords: Float[Tensor, "b 2 h w"],
        *,
        level: int,
        size: tuple[int, int],
        radius: int,
    ) -> "Neighbourhood":
        """Find the positions around full-size `coords` on a level of the given size."""
        height, width = size
        points = coords.flatten(2).transpose(1, 2) / 2**level
        corner = points.floor()
        steps = torch.arange(-radius, radius + 2, device=coords.device, dtype=coords.dtype)
        xs = corner[..., :1] + steps
        ys = corner[..., 1:] + steps
        # The first window axis moves x, the second y. It reads transposed, but it is RAFT's channel
        # order and the published weights depend on it.
        inside_x = (xs >= 0) & (xs < width)
        inside_y = (ys >= 0) & (ys < height)
        inside = inside_x[..., :, None] & inside_y[..., None, :]
        # A flow that is not a number is inside nothing, and must not become a wild index.
        column = xs.clamp(0, max(width - 1, 0)).nan_to_num(0).long()
        row = ys.clamp(0, max(height - 1, 0)).nan_to_num(0).long()
        index = row[..., None, :] * width + column[..., :, None]
        return cls(index.flatten(2), inside.flatten(2), points - corner, len(steps))

    def blend(self, values: Float[Tensor, "b n kk1"]) -> Float[Tensor, "b n kk"]:
        """Interpolate bilinearly between whole positions; outside the frame all is zero."""
        grid = torch.where(self.inside, values, 0).unflatten(2, (self.side, self.side))
        x, y = self.fraction[..., 0, None, None], self.fraction[..., 1, None, None]
        grid = torch.lerp(grid[..., :-1, :], grid[..., 1:, :], x)
        grid = torch.lerp(grid[..., :-1], grid[..., 1:], y)
        return grid.flatten(2)

    def empty(self) -> Float[Tensor, "b n kk"]:
        """Return the window on a level without pixels: all of it lies outside."""
        batch, pixels, _ = self.index.shape
        return self.fraction.new_zeros(batch, pixels, (self.side - 1) ** 2)


def windows_to_map(
    windows: list[Float[Tensor, "b n kk"]], coords: Float[Tensor, "b 2 h w"]
) -> Float[Tensor, "b lkk h w"]:
    """Line the levels' windows up as channels; in memory they come last, as convolutions like."""
    height, width = coords.shape[-2:]
    return torch.cat(windows, dim=2).unflatten(1, (height, width)).permute(0, 3, 1, 2)
