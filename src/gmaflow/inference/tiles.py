"""Large images in overlapping tiles, blended without visible seams.

Legend: b batch, H W rows and columns of the padded images, h w those of the 1/8 grid, t length of a
tile along an axis.
"""

import math
from collections.abc import Callable, Iterator
from itertools import product
from types import EllipsisType

import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.model import STRIDE, Prediction
from gmaflow.runtime.device import release_freed_memory

OVERLAP = 128
"""Minimum overlap of neighbouring tiles in pixels. A match is found only inside a tile, so this is
about how far objects may move near a seam."""

MIN_TILE = 3 * OVERLAP
"""A smaller tile would be mostly overlap."""


Estimate = Callable[[Tensor, Tensor, Tensor | None], Prediction]
"""From two batches of images and an initial flow (or none) to their flow."""


def tile_sizes(height: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield heights and widths of tiles that cover an image, the fewest tiles first."""
    rows, columns = most_tiles(height), most_tiles(width)
    grids = [(i, j) for i in range(1, rows + 1) for j in range(1, columns + 1) if i * j > 1]

    def longest_side(grid: tuple[int, int]) -> int:
        return max(tile_side(height, grid[0]), tile_side(width, grid[1]))

    # For the same number of tiles, square ones first: they overlap less.
    for grid in sorted(grids, key=lambda grid: (grid[0] * grid[1], longest_side(grid))):
        yield tile_side(height, grid[0]), tile_side(width, grid[1])


def most_tiles(length: int) -> int:
    """Return how many tiles fit along an axis."""
    return max(1, math.ceil((length - OVERLAP) / (MIN_TILE - OVERLAP)))


def tile_side(length: int, count: int) -> int:
    """Return the length of `count` tiles that cover an axis, a multiple of 8."""
    side = math.ceil((length + (count - 1) * OVERLAP) / count / STRIDE) * STRIDE
    return min(side, length)


def tile_starts(length: int, tile: int) -> list[int]:
    """Return where tiles begin along an axis: evenly spaced, on cells of the 1/8 grid."""
    if tile >= length:
        return [0]
    count = math.ceil((length - OVERLAP) / (tile - OVERLAP))
    last = length - tile
    return [round(last * i / (count - 1) / STRIDE) * STRIDE for i in range(count)]


def blend_weights(length: int, tile: int, starts: list[int]) -> list[Float[Tensor, " t"]]:
    """Return each tile's weights along an axis; they fade towards neighbours and sum to 1."""
    weights = torch.zeros(len(starts), length, dtype=torch.float32, device="cpu")
    for i, start in enumerate(starts):
        inside = torch.arange(tile, dtype=weights.dtype, device=weights.device) + 0.5
        fade = torch.ones_like(inside)
        if i > 0:
            fade = torch.minimum(fade, inside / (starts[i - 1] + tile - start))
        if i < len(starts) - 1:
            fade = torch.minimum(fade, (tile - inside) / (start + tile - starts[i + 1]))
        weights[i, start : start + tile] = fade
    weights = weights / weights.sum(dim=0)
    return [weights[i, start : start + tile] for i, start in enumerate(starts)]


def count_parts(shape: tuple[int, ...], *, pairs: int, tile: tuple[int, int]) -> int:
    """Return how many parts `estimate_in_parts` cuts a batch into."""
    batch, _, height, width = shape
    tiles = len(tile_starts(height, tile[0])) * len(tile_starts(width, tile[1]))
    return math.ceil(batch / pairs) * tiles


def estimate_in_parts(
    estimate: Estimate,
    image1: Float[Tensor, "b 3 H W"],
    image2: Float[Tensor, "b 3 H W"],
    start: Float[Tensor, "b 2 h w"] | None,
    *,
    pairs: int,
    tile: tuple[int, int],
) -> Prediction:
    """Estimate a batch a few pairs at a time, in tiles if the images are larger than a tile."""
    if pairs < len(image1):
        firsts, seconds = image1.split(pairs), image2.split(pairs)
        guesses = [None] * len(firsts) if start is None else start.split(pairs)
        parts = [
            estimate_in_parts(estimate, *part, pairs=pairs, tile=tile)
            for part in zip(firsts, seconds, guesses, strict=True)
        ]
        flow, low = (
            torch.cat(maps) for maps in zip(*((x.flow, x.low) for x in parts), strict=True)
        )
        return Prediction([flow], low, iterations=sum((part.iterations for part in parts), ()))
    if tile == tuple(image1.shape[-2:]):
        return estimate(image1, image2, start)
    return estimate_in_tiles(estimate, image1, image2, start, tile)


def estimate_in_tiles(
    estimate: Estimate,
    image1: Float[Tensor, "b 3 H W"],
    image2: Float[Tensor, "b 3 H W"],
    start: Float[Tensor, "b 2 h w"] | None,
    tile: tuple[int, int],
) -> Prediction:
    """Estimate tile by tile, and blend where tiles overlap."""
    fine, coarse = Canvas(image1, tile), Canvas(image1, tile, stride=STRIDE)
    iterations: list[tuple[int, ...]] = []
    for row, column in fine.tiles():
        window, cells = fine.window(row, column), coarse.window(row, column)
        guess = None if start is None else start[cells]
        if image1.device.type == "cpu":
            release_freed_memory()  # or the last tile's memory may stay resident
        prediction = estimate(image1[window], image2[window], guess)
        fine.add(row, column, prediction.flow)
        coarse.add(row, column, prediction.low)
        iterations.append(prediction.iterations)
    # A pair counts the iterations of its slowest tile.
    return Prediction(
        [fine.flow], coarse.flow, iterations=tuple(map(max, zip(*iterations, strict=True)))
    )


class Canvas:
    """A flow that tiles are blended into.

    A cell of the flow covers `stride` pixels of the images along each axis; a tile is in pixels.
    """

    def __init__(
        self, images: Float[Tensor, "b 3 H W"], tile: tuple[int, int], *, stride: int = 1
    ) -> None:
        batch, _, height, width = images.shape
        self.tile = tile[0] // stride, tile[1] // stride
        self.tops, self.lefts = (
            [start // stride for start in tile_starts(length, side)]
            for length, side in zip((height, width), tile, strict=True)
        )
        self.flow = images.new_zeros(batch, 2, height // stride, width // stride)
        self.row_weights, self.column_weights = (
            [weights.to(images.device) for weights in blend_weights(length, side, starts)]
            for length, side, starts in zip(
                self.flow.shape[-2:], self.tile, (self.tops, self.lefts), strict=True
            )
        )

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Yield the row and column of all tiles."""
        return product(range(len(self.tops)), range(len(self.lefts)))

    def window(self, row: int, column: int) -> tuple[EllipsisType, slice, slice]:
        """Return the index of a tile in the flow."""
        top, left = self.tops[row], self.lefts[column]
        return ..., slice(top, top + self.tile[0]), slice(left, left + self.tile[1])

    def add(self, row: int, column: int, flow: Float[Tensor, "b 2 _ _"]) -> None:
        """Add the flow of a tile, weighted at each position."""
        weights = self.row_weights[row][:, None] * self.column_weights[column]
        self.flow[self.window(row, column)] += weights * flow
