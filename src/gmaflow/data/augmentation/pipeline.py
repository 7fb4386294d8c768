"""Augmentation as it was published: what may be drawn, and drawing it.

The order is colour, eraser, then scale, flips and crop.
"""

from dataclasses import dataclass
from math import pi

import numpy as np
from jaxtyping import Bool, Float32

from gmaflow.data.augmentation.color import ColorJitter, jitter_pair
from gmaflow.data.augmentation.eraser import erase_boxes
from gmaflow.data.augmentation.placement import Placement, place_dense, place_image, place_sparse
from gmaflow.data.pairs import FlowSample
from gmaflow.errors import DatasetError
from gmaflow.geometry import leaves_frame

# The published code writes 3.14; the hundredth of a step of hue makes no difference.
DENSE_JITTER = ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.5 / pi)
SPARSE_JITTER = ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3, hue=0.3 / pi)


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What may happen to a pair, and how likely. Scales are powers of two: 1 doubles the size.

    Attributes:
        crop: height and width of the result.
        min_scale: the smallest scale drawn; never so small that the crop does not fit.
        max_scale: the largest.
        jitter: how far colours change.
        asymmetric: probability that the frames' colours change each in its own way.
        erase: probability that boxes of the second frame are painted over.
        resize: probability of another scale.
        stretch: probability, when resized, that the axes scale differently.
        max_stretch: how much, either way.
        flip_x: probability that left and right change places.
        flip_y: probability that it is turned upside down.
        room: pixels by which a resized image exceeds the crop at least.
        margin: how far (y, x) the crop's corner is drawn beyond the image, then brought back: what
            lies at the borders is seen more often. y counts below only.
        sparse: whether known values are carried one by one instead of interpolated.
    """

    crop: tuple[int, int]
    min_scale: float
    max_scale: float
    jitter: ColorJitter = DENSE_JITTER
    asymmetric: float = 0.2
    erase: float = 0.5
    resize: float = 0.8
    stretch: float = 0.8
    max_stretch: float = 0.2
    flip_x: float = 0.5
    flip_y: float = 0.1
    room: int = 8
    margin: tuple[int, int] = (0, 0)
    sparse: bool = False

    def __post_init__(self) -> None:
        if min(self.crop) < 1 or self.min_scale > self.max_scale:
            raise DatasetError(
                f"a crop of {self.crop[0]} x {self.crop[1]} at scales of {self.min_scale} to "
                f"{self.max_scale} cannot be made; sizes are positive, the smaller scale first"
            )


def dense_augmentation(
    crop: tuple[int, int], scales: tuple[float, float], *, flip: bool = True
) -> Augmentation:
    """Return the published augmentation of dense data sets."""
    return Augmentation(
        crop=crop,
        min_scale=scales[0],
        max_scale=scales[1],
        flip_x=0.5 if flip else 0.0,
        flip_y=0.1 if flip else 0.0,
    )


def sparse_augmentation(
    crop: tuple[int, int], scales: tuple[float, float], *, flip: bool = True
) -> Augmentation:
    """Return the published augmentation of sparse data sets."""
    return Augmentation(
        crop=crop,
        min_scale=scales[0],
        max_scale=scales[1],
        jitter=SPARSE_JITTER,
        asymmetric=0.0,
        stretch=0.0,
        flip_x=0.5 if flip else 0.0,
        flip_y=0.0,
        room=1,
        margin=(20, 50),
        sparse=True,
    )


@dataclass(frozen=True, kw_only=True)
class AugmentedSample:
    """What a network is trained on.

    Attributes:
        image1: the first frame, in 0..255.
        image2: the second frame.
        flow: the truth, 0 where unknown.
        valid: where it is known.
        occluded: pixels known to be hidden in, or to have left, the second frame.
    """

    image1: Float32[np.ndarray, "h w 3"]
    image2: Float32[np.ndarray, "h w 3"]
    flow: Float32[np.ndarray, "h w 2"]
    valid: Bool[np.ndarray, "h w"]
    occluded: Bool[np.ndarray, "h w"]


def augment(
    sample: FlowSample, augmentation: Augmentation, rng: np.random.Generator
) -> AugmentedSample:
    """Augment a pair.

    Raises:
        DatasetError: the pair has no truth.
    """
    if sample.flow is None or sample.valid is None or sample.occluded is None:
        raise DatasetError("a pair without flow cannot be trained on; leave it out")
    image1, image2 = jitter_pair(
        sample.image1, sample.image2, augmentation.jitter, rng, asymmetric=augmentation.asymmetric
    )
    if rng.random() < augmentation.erase:
        image2 = erase_boxes(image2, rng)
    height, width = sample.valid.shape
    placement = draw_placement((height, width), augmentation, rng)
    place = place_sparse if augmentation.sparse else place_dense
    flow, valid, occluded = place(sample.flow, sample.valid, sample.occluded, placement)
    return AugmentedSample(
        image1=place_image(image1, placement),
        image2=place_image(image2, placement),
        flow=flow,
        valid=valid,
        # The crop is the new frame: what leaves it is out of sight too.
        occluded=occluded | (leaves_frame(flow) & valid),
    )


def draw_placement(
    size: tuple[int, int], augmentation: Augmentation, rng: np.random.Generator
) -> Placement:
    """Draw scale, flips and the crop's place for an image of `size`."""
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
        # An image smaller than the crop has to grow, whatever was drawn.
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
