"""The published augmentation of image pairs and their ground truth.

Colour, then erased boxes, then scale, flips and crop. Scale, flips and crop are one step, a
`Placement`: it says which point of the source each pixel of the crop comes from.

Legend: h w rows and columns of the source, i j of the crop.
"""

from dataclasses import dataclass, replace
from math import pi

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, UInt8

from gmaflow.data.pairs import Batch, FlowSample
from gmaflow.errors import DatasetError
from gmaflow.geometry import leaves_frame

ColorChange = list[tuple[str, float]]
"""Changes in order, each with its amount: a factor, or for hue a fraction of a turn."""

_MAX_BOXES = 2
_MIN_BOX, _MAX_BOX = 50, 99


@dataclass(frozen=True, kw_only=True)
class ColorJitter:
    """Ranges of random colour changes: factors from 1 - x to 1 + x, hues from -x to x turns."""

    brightness: float
    contrast: float
    saturation: float
    hue: float


# The published code uses 3.14 for pi, which makes no visible difference.
DENSE_JITTER = ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.5 / pi)
SPARSE_JITTER = ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3, hue=0.3 / pi)


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Ranges and probabilities. Scales are powers of two: 1 doubles the size."""

    crop: tuple[int, int]
    """Height and width of the result."""
    min_scale: float
    """Smallest scale; increased where the crop would not fit."""
    max_scale: float
    """Largest scale."""
    jitter: ColorJitter = DENSE_JITTER
    """Ranges of colour changes."""
    asymmetric: float = 0.2
    """Probability that the frames' colours change independently."""
    erase: float = 0.5
    """Probability that boxes of the second frame are erased."""
    resize: float = 0.8
    """Probability of resizing."""
    stretch: float = 0.8
    """Probability, when resizing, that the axes scale differently."""
    max_stretch: float = 0.2
    """Largest difference, as a power of two."""
    flip_x: float = 0.5
    """Probability of a horizontal flip."""
    flip_y: float = 0.1
    """Probability of a vertical flip."""
    room: int = 8
    """A resized image is at least this many pixels larger than the crop."""
    margin: tuple[int, int] = (0, 0)
    """How far (y, x) the crop's corner is drawn outside the image before it is clamped, so that the
    borders are seen more often. y counts at the bottom only."""
    sparse: bool = False
    """Move known values one by one instead of interpolating."""

    def __post_init__(self) -> None:
        if min(self.crop) < 1 or self.min_scale > self.max_scale:
            raise DatasetError(
                f"invalid augmentation: crop {self.crop[0]}x{self.crop[1]}, scales "
                f"{self.min_scale} to {self.max_scale}; give a positive size and rising scales"
            )


def dense_augmentation(
    crop: tuple[int, int], scales: tuple[float, float], *, flip: bool = True
) -> Augmentation:
    """Return the published augmentation for dense ground truth."""
    dense = Augmentation(crop=crop, min_scale=scales[0], max_scale=scales[1])
    return dense if flip else replace(dense, flip_x=0.0, flip_y=0.0)


def sparse_augmentation(
    crop: tuple[int, int], scales: tuple[float, float], *, flip: bool = True
) -> Augmentation:
    """Return the published augmentation for sparse ground truth."""
    return replace(
        dense_augmentation(crop, scales, flip=flip),
        jitter=SPARSE_JITTER,
        asymmetric=0.0,
        stretch=0.0,
        flip_y=0.0,
        room=1,
        margin=(20, 50),
        sparse=True,
    )


def augment(sample: FlowSample, augmentation: Augmentation, rng: np.random.Generator) -> Batch:
    """Augment a pair; the result has no batch dimension."""
    if sample.flow is None or sample.valid is None or sample.occluded is None:
        raise DatasetError("cannot train on a pair without flow; remove it from the data set")
    image1, image2 = jitter_pair(
        sample.image1, sample.image2, augmentation.jitter, rng, asymmetric=augmentation.asymmetric
    )
    if rng.random() < augmentation.erase:
        image2 = erase_boxes(image2, rng)
    height, width = sample.valid.shape
    placement = draw_placement((height, width), augmentation, rng)
    place = place_sparse if augmentation.sparse else place_dense
    flow, valid, occluded = place(sample.flow, sample.valid, sample.occluded, placement)
    return Batch.from_arrays(
        (sample_linear(image1, placement), sample_linear(image2, placement)),
        flow,
        valid,
        # The crop is the new frame: pixels that leave it are occluded too.
        occluded | (leaves_frame(flow) & valid),
    )


# Colour


def jitter_pair(
    image1: UInt8[np.ndarray, "h w 3"],
    image2: UInt8[np.ndarray, "h w 3"],
    jitter: ColorJitter,
    rng: np.random.Generator,
    *,
    asymmetric: float,
) -> tuple[UInt8[np.ndarray, "h w 3"], UInt8[np.ndarray, "h w 3"]]:
    """Change the colours of a pair: independently with the probability `asymmetric`.

    Otherwise they change like a single image, and also share the mean grey of the contrast.
    """
    if rng.random() < asymmetric:
        return (
            change_color(image1, draw_change(jitter, rng)),
            change_color(image2, draw_change(jitter, rng)),
        )
    both = change_color(np.concatenate([image1, image2]), draw_change(jitter, rng))
    return both[: len(image1)], both[len(image1) :]


def draw_change(jitter: ColorJitter, rng: np.random.Generator) -> ColorChange:
    """Draw random colour changes, in random order."""

    def factor(width: float) -> float:
        return float(rng.uniform(max(0.0, 1 - width), 1 + width))

    steps = (
        ("brightness", factor(jitter.brightness)),
        ("contrast", factor(jitter.contrast)),
        ("saturation", factor(jitter.saturation)),
        ("hue", float(rng.uniform(-jitter.hue, jitter.hue))),
    )
    return [steps[i] for i in rng.permutation(len(steps))]


def change_color(
    image: UInt8[np.ndarray, "h w 3"], change: ColorChange
) -> UInt8[np.ndarray, "h w 3"]:
    """Apply colour changes to an image, in order."""
    from PIL import Image, ImageEnhance

    enhancers = {
        "brightness": ImageEnhance.Brightness,
        "contrast": ImageEnhance.Contrast,
        "saturation": ImageEnhance.Color,
    }
    picture = Image.fromarray(image)
    for step, amount in change:
        if step == "hue":
            hue, saturation, value = picture.convert("HSV").split()
            shift = round(amount * 256) % 256
            hue = hue.point([(level + shift) % 256 for level in range(256)])
            picture = Image.merge("HSV", (hue, saturation, value)).convert("RGB")
        else:
            picture = enhancers[step](picture).enhance(amount)
    return np.array(picture)


# Erased boxes


def erase_boxes(
    image2: UInt8[np.ndarray, "h w 3"], rng: np.random.Generator
) -> UInt8[np.ndarray, "h w 3"]:
    """Return a copy with one or two boxes filled with the mean colour.

    The network must infer their motion from the surroundings.
    """
    height, width = image2.shape[:2]
    erased = image2.copy()
    color = image2.reshape(-1, 3).mean(axis=0).round().astype(np.uint8)
    for _ in range(rng.integers(1, _MAX_BOXES + 1)):
        top, left = rng.integers(0, height), rng.integers(0, width)
        tall, wide = rng.integers(_MIN_BOX, _MAX_BOX + 1, 2)
        erased[top : top + tall, left : left + wide] = color
    return erased


# Scale, flips and crop


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A crop of a resized, then flipped image.

    Sizes and corners are (height, width) and (top, left).
    """

    source: tuple[int, int]
    """The size of the image."""
    resized: tuple[int, int]
    """Its size after resizing."""
    crop: tuple[int, int]
    """The size of the crop."""
    corner: tuple[int, int]
    """The crop's corner in the resized and flipped image."""
    flipped: tuple[bool, bool] = (False, False)
    """Whether the image is flipped vertically, and horizontally."""

    @property
    def stretch(self) -> Float32[np.ndarray, "2"]:
        """The factors of flow in x and y: the scale, negative where flipped."""
        signs = [-1 if flip else 1 for flip in self.flipped]
        y, x = (
            sign * new / old
            for sign, new, old in zip(signs, self.resized, self.source, strict=True)
        )
        return np.array([x, y], np.float32)

    def to_source(self, axis: int) -> Float64[np.ndarray, " n"]:
        """Return the source coordinate of each row (axis 0) or column (1) of the crop."""
        place = self.corner[axis] + np.arange(self.crop[axis], dtype=np.float64)
        if self.flipped[axis]:
            place = self.resized[axis] - 1 - place
        # Pixels are squares: resizing maps the outer borders onto each other.
        return (place + 0.5) * (self.source[axis] / self.resized[axis]) - 0.5

    def to_crop(self, axis: int, place: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Return the nearest row or column of the crop, inside or not, for each of the source."""
        new = (place + 0.5) * (self.resized[axis] / self.source[axis]) - 0.5
        if self.flipped[axis]:
            new = self.resized[axis] - 1 - new
        # Rounded half up: numpy's rounding to even would leave some rows empty.
        return np.floor(new - self.corner[axis] + 0.5).astype(np.int64)


def draw_placement(
    size: tuple[int, int], augmentation: Augmentation, rng: np.random.Generator
) -> Placement:
    """Draw scale, flips and crop for an image of `size`."""
    scale_y, scale_x = _draw_scales(size, augmentation, rng)
    crop = augmentation.crop
    resized = (max(crop[0], round(size[0] * scale_y)), max(crop[1], round(size[1] * scale_x)))
    flipped = (bool(rng.random() < augmentation.flip_y), bool(rng.random() < augmentation.flip_x))
    spare_y, spare_x = resized[0] - crop[0], resized[1] - crop[1]
    margin_y, margin_x = augmentation.margin
    top = int(rng.integers(0, spare_y + margin_y + 1))
    left = int(rng.integers(-margin_x, spare_x + margin_x + 1))
    corner = (min(top, spare_y), min(max(left, 0), spare_x))
    return Placement(source=size, resized=resized, crop=crop, corner=corner, flipped=flipped)


def _draw_scales(
    size: tuple[int, int], augmentation: Augmentation, rng: np.random.Generator
) -> tuple[float, float]:
    crop, room = augmentation.crop, augmentation.room
    if rng.random() >= augmentation.resize:
        # An image smaller than the crop must be enlarged in any case.
        needed = max(1.0, crop[0] / size[0], crop[1] / size[1])
        return needed, needed
    smallest = max((crop[0] + room) / size[0], (crop[1] + room) / size[1])
    scale = 2 ** rng.uniform(augmentation.min_scale, augmentation.max_scale)
    scale_y = scale_x = scale
    if rng.random() < augmentation.stretch:
        most = augmentation.max_stretch
        scale_x *= 2 ** rng.uniform(-most, most)
        scale_y *= 2 ** rng.uniform(-most, most)
    return max(scale_y, smallest), max(scale_x, smallest)


def place_dense(
    flow: Float32[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"],
    occluded: Bool[np.ndarray, "h w"],
    placement: Placement,
) -> tuple[Float32[np.ndarray, "i j 2"], Bool[np.ndarray, "i j"], Bool[np.ndarray, "i j"]]:
    """Interpolate dense flow linearly; a pixel is valid if all contributing pixels are."""
    rows, columns = (np.rint(placement.to_source(axis)).astype(np.int64) for axis in (0, 1))
    rows = rows.clip(0, valid.shape[0] - 1)
    columns = columns.clip(0, valid.shape[1] - 1)
    placed = sample_linear(flow, placement) * placement.stretch
    mask = np.ones(placement.crop, bool)
    if not valid.all():
        mask = sample_linear(valid[..., None].astype(np.float32), placement)[..., 0] > 1 - 1e-4
    placed[~mask] = 0
    return placed, mask, occluded[np.ix_(rows, columns)] & mask


def place_sparse(
    flow: Float32[np.ndarray, "h w 2"],
    valid: Bool[np.ndarray, "h w"],
    occluded: Bool[np.ndarray, "h w"],
    placement: Placement,
) -> tuple[Float32[np.ndarray, "i j 2"], Bool[np.ndarray, "i j"], Bool[np.ndarray, "i j"]]:
    """Move each known value to the nearest pixel, without interpolation."""
    rows, columns = np.nonzero(valid)
    values, hidden = flow[rows, columns], occluded[rows, columns]
    rows, columns = placement.to_crop(0, rows), placement.to_crop(1, columns)
    height, width = placement.crop
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    target = rows[inside], columns[inside]
    placed = np.zeros((height, width, 2), np.float32)
    mask, covered = np.zeros((height, width), bool), np.zeros((height, width), bool)
    placed[target] = values[inside] * placement.stretch
    mask[target] = True
    covered[target] = hidden[inside]
    return placed, mask, covered


def sample_linear(
    array: UInt8[np.ndarray, "h w c"] | Float32[np.ndarray, "h w c"], placement: Placement
) -> Float32[np.ndarray, "i j c"]:
    """Interpolate an image or flow linearly at the pixels of the crop."""
    top, bottom, down = _neighbours(placement.to_source(0), array.shape[0])
    left, right, along = _neighbours(placement.to_source(1), array.shape[1])
    first, last = min(left.min(), right.min()), max(left.max(), right.max()) + 1
    array = array[:, first:last]  # only the columns that the crop needs
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
    """Return the two pixels around each coordinate, and its distance from the first."""
    place = place.clip(0, size - 1)
    first = np.floor(place).astype(np.int64)
    return first, np.minimum(first + 1, size - 1), (place - first).astype(np.float32)
