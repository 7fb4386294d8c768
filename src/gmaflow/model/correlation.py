"""The correlation of every pixel of frame 1 with every pixel of frame 2, and the lookup.

Legend: b batch, c channels, h w rows and columns at 1/8, n = h * w pixels of frame 1, m cells of
frame 2 on all levels together, l levels, k = 2 * radius + 1 the lookup window's side, s = k + 1.

A lookup reads a window around the current guess. The window's offsets are whole pixels, so all its
samples share one fractional part: a lookup reads the s^2 correlations at whole positions around the
guess, then interpolates between neighbours. `StoredCorrelation` computes all correlations in
advance, `StreamedCorrelation` computes those it needs in each lookup.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gmaflow.runtime.device import has_kernels

STREAM_BYTES = {"cpu": 4 * 2**20, "other": 256 * 2**20}
"""Largest intermediate of a streamed lookup. A CPU is fastest if its caches hold it (4 MiB take a
third of the time of 64), a GPU if it keeps the GPU busy."""


@runtime_checkable
class Correlation(Protocol):
    """Correlations of two frames, to be looked up around a guess."""

    def lookup(self, coords: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b lkk h w"]:
        """Return the correlations in a window around `coords` (x, y) on every level."""
        ...


def pixel_grid(like: Float[Tensor, "b _ h w"]) -> Float[Tensor, "1 2 h w"]:
    """Return the x and y coordinate of every pixel."""
    height, width = like.shape[-2:]
    y = torch.arange(height, device=like.device, dtype=torch.float32)
    x = torch.arange(width, device=like.device, dtype=torch.float32)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"))[None]


def correlate(
    features1: Float[Tensor, "b c h w"],
    features2: Float[Tensor, "b c h w"],
    *,
    num_levels: int,
    radius: int,
    store: bool,
) -> Correlation:
    """Correlate two feature maps, the second also at 1/2, 1/4, ... of its size.

    Without Triton kernels it computes in float32, whatever the dtype of the features.
    """
    window = Window(radius, num_levels)
    fused = store and has_kernels(features1.device)
    # float16 rather than bfloat16 in half precision: correlations need the digits, and the
    # normalised features are far from the limits of float16.
    half = fused and features1.dtype != torch.float32
    dtype = torch.float16 if half else torch.float32
    with torch.autocast(features1.device.type, enabled=False):
        rows1 = (features1.to(dtype) / features1.shape[1] ** 0.5).flatten(2).transpose(1, 2)
        rows2 = pyramid_rows(features2.to(dtype), num_levels=num_levels)
        if fused:
            from gmaflow.model.correlation_kernels import FusedCorrelation

            return FusedCorrelation.build(rows1, rows2, window)
        if store:
            return StoredCorrelation(rows1 @ rows2.transpose(1, 2), window)
        return StreamedCorrelation(rows1.contiguous(), rows2.contiguous(), window)


def pyramid_rows(features: Float[Tensor, "b c h w"], *, num_levels: int) -> Float[Tensor, "b m c"]:
    """Halve the features repeatedly; return the cells of all levels, one after the other.

    RAFT pools the correlation volume. A dot product is linear, so pooling the features first gives
    the same numbers for a fraction of the memory.
    """
    level = features
    levels = [level.flatten(2)]
    for _ in range(num_levels - 1):
        if min(level.shape[-2:]) < 2:
            break  # a level without cells
        level = F.avg_pool2d(level, 2)
        levels.append(level.flatten(2))
    return torch.cat(levels, dim=2).transpose(1, 2)


@dataclass(frozen=True)
class StoredCorrelation:
    """All correlations, computed once: fastest, and as large as (h * w)^2."""

    volume: Float[Tensor, "b n m"]
    window: "Window"

    def lookup(self, coords: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b lkk h w"]:
        neighbourhood = self.window.around(coords)
        return neighbourhood.interpolate(self.volume.gather(2, neighbourhood.index))


@dataclass(frozen=True)
class StreamedCorrelation:
    """Features only; each lookup computes the correlations that it reads."""

    rows1: Float[Tensor, "b n c"]
    rows2: Float[Tensor, "b m c"]
    window: "Window"

    def lookup(self, coords: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b lkk h w"]:
        neighbourhood = self.window.around(coords)
        index = neighbourhood.index
        bytes_per_pixel = index.shape[-1] * self.rows2.shape[-1] * self.rows2.element_size()
        limit = STREAM_BYTES["cpu" if index.device.type == "cpu" else "other"]
        chunk = max(1, limit // bytes_per_pixel)
        values = self.rows1.new_zeros(index.shape)
        for item in range(len(index)):
            for start in range(0, index.shape[1], chunk):
                part = slice(start, start + chunk)
                window_features = F.embedding(index[item, part], self.rows2[item])
                values[item, part] = torch.einsum(
                    "nkc,nc->nk", window_features, self.rows1[item, part]
                )
        return neighbourhood.interpolate(values)


@dataclass(frozen=True)
class Window:
    """The cells that a lookup reads: a square around the guess, on every level."""

    radius: int
    num_levels: int

    def around(self, coords: Float[Tensor, "b 2 h w"]) -> "Neighbourhood":
        """Find the whole positions around `coords`, given at the size of the finest level."""
        level = torch.arange(self.num_levels, device=coords.device)
        heights, widths = (torch.full_like(level, side) // 2**level for side in coords.shape[-2:])
        cells = heights * widths
        level_start = cells.cumsum(0) - cells

        points = coords.flatten(2).transpose(1, 2)[:, :, None] / 2 ** level[:, None]
        corner = points.floor()
        steps = torch.arange(-self.radius, self.radius + 2, device=coords.device)
        xs, ys = corner[..., :1] + steps, corner[..., 1:] + steps
        inside_x = (xs >= 0) & (xs < widths[:, None])
        inside_y = (ys >= 0) & (ys < heights[:, None])
        column = torch.where(inside_x, xs, 0).long()
        row = torch.where(inside_y, ys, 0).long()
        # The first window axis moves x, the second y. It looks transposed, but it is RAFT's channel
        # order, and the published weights depend on it.
        index = (level_start + row.mT * widths).mT[..., None, :] + column[..., :, None]
        inside = inside_x[..., :, None] & inside_y[..., None, :]
        # Values outside are read but not used. Empty levels begin at the end of the volume.
        index = torch.where(inside, index, 0)
        size = (coords.shape[-2], coords.shape[-1])
        return Neighbourhood(index.flatten(2), inside, points - corner, size)


@dataclass(frozen=True)
class Neighbourhood:
    """The s^2 whole positions around a guess, on every level of frame 2."""

    index: Int64[Tensor, "b n lss"]
    """Cell of the pyramid; the first where `inside` is false."""
    inside: Bool[Tensor, "b n l s s"]
    fraction: Float[Tensor, "b n l 2"]
    """The fractional part (x, y) of the guess."""
    size: tuple[int, int]
    """Height and width of the 1/8 grid."""

    def interpolate(self, values: Float[Tensor, "b n lss"]) -> Float[Tensor, "b lkk h w"]:
        """Interpolate bilinearly between whole positions; zero outside the frame.

        The result is channels-last in memory, which is fast for convolutions.
        """
        grid = torch.where(self.inside, values.view(self.inside.shape), 0)
        x, y = self.fraction[..., 0, None, None], self.fraction[..., 1, None, None]
        grid = torch.lerp(grid[..., :-1, :], grid[..., 1:, :], x)
        grid = torch.lerp(grid[..., :-1], grid[..., 1:], y)
        return grid.flatten(2).unflatten(1, self.size).permute(0, 3, 1, 2)
