"""Scale, stretch, flips and crop as one step: where each pixel of the crop comes from.

Legend: h w rows and columns of the source, i j of the crop.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, UInt8


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A crop of a resized, then flipped image.

    Sizes and corners are (height, width) and (top, left).

    Attributes:
        source: the size of the image.
        resized: the size to which it is brought.
        crop: the size of the crop.
        corner: the crop's place in the resized and flipped image.
        flipped: whether it is turned upside down, and whether left and right change places.
    """

    source: tuple[int, int]
    resized: tuple[int, int]
    crop: tuple[int, int]
    corner: tuple[int, int]
    flipped: tuple[bool, bool] = (False, False)

    @property
    def stretch(self) -> Float32[np.ndarray, "2"]:
        """What flow is multiplied by, x first: the scale, negative where flipped."""
        signs = [-1 if flip else 1 for flip in self.flipped]
        y, x = (
            sign * new / old
            for sign, new, old in zip(signs, self.resized, self.source, strict=True)
        )
        return np.array([x, y], np.float32)

    def to_source(self, axis: int) -> Float64[np.ndarray, " n"]:
        """Return, for each row (axis 0) or column (1) of the crop, where it lies in the source."""
        place = self.corner[axis] + np.arange(self.crop[axis], dtype=np.float64)
        if self.flipped[axis]:
            place = self.resized[axis] - 1 - place
        # Pixels are squares: it is their outer borders that are stretched onto each other.
        return (place + 0.5) * (self.source[axis] / self.resized[axis]) - 0.5

    def to_crop(self, axis: int, place: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Return the nearest row or column of the crop for each of the source, inside or not."""
        new = (place + 0.5) * (self.resized[axis] / self.source[axis]) - 0.5
        if self.flipped[axis]:
            new = self.resized[axis] - 1 - new
        # Rounded half up: numpy's way, to the even neighbour, would leave some rows bare.
        return np.floor(new - self.corner[axis] + 0.5).astype(np.int64)


def place_image(
    image: UInt8[np.ndarray, "h w 3"], placement: Placement
) -> Float32[np.ndarray, "i j 3"]:
    """Sample an image linearly; values stay in 0..255."""
    return _sample(image, placement)


def place_dense(
    flow: Float32[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"],
    occluded: Bool[np.ndarray, "h w"],
    placement: Placement,
) -> tuple[Float32[np.ndarray, "i j 2"], Bool[np.ndarray, "i j"], Bool[np.ndarray, "i j"]]:
    """Sample a dense truth linearly; it stays known where all pixels that have a share are."""
    rows, columns = (np.rint(placement.to_source(axis)).astype(np.int64) for axis in (0, 1))
    rows = rows.clip(0, valid.shape[0] - 1)
    columns = columns.clip(0, valid.shape[1] - 1)
    placed = _sample(flow, placement) * placement.stretch
    known = np.ones(placement.crop, bool)
    if not valid.all():
        known = _sample(valid[..., None].astype(np.float32), placement)[..., 0] > 1 - 1e-4
    placed[~known] = 0
    return placed, known, occluded[np.ix_(rows, columns)] & known


def place_sparse(
    flow: Float32[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"],
    occluded: Bool[np.ndarray, "h w"],
    placement: Placement,
) -> tuple[Float32[np.ndarray, "i j 2"], Bool[np.ndarray, "i j"], Bool[np.ndarray, "i j"]]:
    """Carry each known value to the pixel nearest to its new place: none is mixed or made up."""
    rows, columns = np.nonzero(valid)
    values, hidden = flow[rows, columns], occluded[rows, columns]
    rows, columns = placement.to_crop(0, rows), placement.to_crop(1, columns)
    height, width = placement.crop
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    target = rows[inside], columns[inside]
    placed = np.zeros((height, width, 2), np.float32)
    known, covered = np.zeros((height, width), bool), np.zeros((height, width), bool)
    placed[target] = values[inside] * placement.stretch
    known[target] = True
    covered[target] = hidden[inside]
    return placed, known, covered


def _sample(
    array: UInt8[np.ndarray, "h w c"] | Float32[np.ndarray, "h w c"], placement: Placement
) -> Float32[np.ndarray, "i j c"]:
    """Read the source between its pixels, first along rows, then along columns."""
    top, bottom, down = _neighbours(placement.to_source(0), array.shape[0])
    left, right, along = _neighbours(placement.to_source(1), array.shape[1])
    first, last = min(left.min(), right.min()), max(left.max(), right.max()) + 1
    array = array[:, first:last]  # the crop alone is worth the work
    down, along = down[:, None, None], along[:, None]
    rows = array[top].astype(np.float32)
    if down.any():
        rows += down * (array[bottom] - rows)
    placed = rows[:, left - first]
    if along.any():
        placed += along * (rows[:, right - first] - placed)
    return placed


def _neighbours(
    place: Float64[np.ndarray, " n"], size: int
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"], Float32[np.ndarray, " n"]]:
    """The two pixels around each place, and how far it lies from the first to the second."""
    place = place.clip(0, size - 1)
    first = np.floor(place).astype(np.int64)
    return first, np.minimum(first + 1, size - 1), (place - first).astype(np.float32)
