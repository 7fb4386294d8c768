"""Tracking: chains of flow from one frame to every other frame of a shot.

Every frame is reached in two ways: from the frame before it, and over a longer gap from an earlier
frame, in which points that are lost now were visible. Both are estimated both ways, which shows how
far a link can be trusted. Each point takes the chain with the best evidence, so a point that was
hidden comes back as soon as a longer gap finds it again.

Small steps hardly ever fail but drift; long gaps do not drift but fail where much has changed. (A
long gap does not start from where the small steps lead: both ways would then agree on an error.)

Legend: k points, H W rows and columns.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike
from torch import Tensor

from gmaflow.errors import FlowError, ImageError, counted
from gmaflow.geometry import outside_frame
from gmaflow.inference.images import (
    Footage,
    Frame,
    ImageArray,
    ImageLike,
    each_image,
    load_image,
)
from gmaflow.inference.sequence import cut_score
from gmaflow.inference.tracks import TrackedFrame, grid_points
from gmaflow.inference.visibility import ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE
from gmaflow.io.images import check_same_size

if TYPE_CHECKING:
    from gmaflow.inference.estimator import FlowEstimator

TOLERANCE = 4.0
"""A link is broken where |forward + backward|^2 exceeds this many times the tolerance of
`check_visibility`: over long gaps scales and shapes change, and the flow varies more."""
LINK_COST = 0.1
"""Added for each link of a chain, because links drift in ways that the way back does not show."""
OLDEST = 16
"""Frames after which a frame is forgotten; the reference never is."""

Mask = Bool[np.ndarray, "H W"]
Ignored = Mask | Callable[[int], Mask]
"""A mask for all frames, or a function that returns the mask of a frame by its number."""

_CHUNK = 2**20  # points that are followed at once, to bound memory
_HIDDEN = 1e6  # a cost that no chain of visible points reaches
_RETRY = 1.05  # by how much an unused gap is trusted more after each frame
_LEAST_TRUST = 0.1


class Points(NamedTuple):
    """What is known about the points in one frame."""

    position: Float[Tensor, "k 2"]
    visible: Bool[Tensor, " k"]
    cost: Float[Tensor, " k"]
    """How much the links of the chain disagree with the way back, and how many there are."""
    confidence: Float[Tensor, " k"]
    """How well the worst link agrees with the way back: 1 exactly, 0.5 just enough."""


class Moment(NamedTuple):
    """A frame that longer gaps may start from."""

    age: int
    """Its distance to the reference."""
    frame: Frame
    points: Points


class Tracker:
    """Tracks the points of a reference frame through the frames after it, or those before it.

    Args:
        estimator: Estimates the flow.
        reference: The frame that the points are given in.
        points: Points (x, y).
        ignored: Pixels of the reference in which points are not visible.
    """

    def __init__(
        self,
        estimator: "FlowEstimator",
        reference: Frame,
        points: Float[np.ndarray, "k 2"],
        ignored: Mask | None = None,
    ) -> None:
        self._estimator = estimator
        position = torch.from_numpy(points).float().to(estimator.device)
        visible = torch.ones(len(position), dtype=torch.bool, device=position.device)
        certain = torch.ones(len(position), device=position.device)
        known = _hide(Points(position, visible, 0 * certain, certain), ignored)
        self._moments = [Moment(0, reference, known)]
        self._trust: dict[int, float] = {}
        """By kind of gap, the share of links that were good the last time."""
        self.flows = 0
        """How many flows were estimated; both ways count as two."""

    @property
    def points(self) -> Points:
        """The points in the last frame."""
        return self._moments[-1].points

    def encode(self, image: ImageArray) -> Frame:
        """Encode a frame once, whatever gaps will use it."""
        return self._estimator.encode(image)

    @torch.inference_mode()
    def advance(self, frame: Frame, ignored: Mask | None = None) -> Points:
        """Track the points into the next frame; in its ignored pixels none is visible."""
        age = self._moments[-1].age + 1
        found = _hide(self._reach(self._moments[-1], frame), ignored)
        source = self._choose_source(age, found)
        if source is not None:
            other = _hide(self._reach(source, frame), ignored)
            good = other.visible.sum() / source.points.visible.sum().clamp_min(1)
            self._trust = {key: min(1.0, value * _RETRY) for key, value in self._trust.items()}
            self._trust[_gap_name(source, age)] = max(_LEAST_TRUST, float(good))
            found = _better(found, other)
        hidden = found.cost >= _HIDDEN
        found = found._replace(cost=torch.where(hidden, _HIDDEN, found.cost))
        self._moments.append(Moment(age, frame, found))
        # Of the earlier frames one is kept for each power of two of the distance.
        self._moments = [
            moment
            for moment in self._moments
            if moment.age in (0, age)
            or (age - moment.age <= OLDEST and moment.age % _rung(age + 1 - moment.age) == 0)
        ]
        return self.points

    def _choose_source(self, age: int, found: Points) -> Moment | None:
        """The frame from which most of the points that are lost now can be found again."""
        best, most = None, 0.0
        lost = ~found.visible
        for moment in self._moments[:-1]:
            # The points that are not lost count too: a shorter chain drifts less.
            wanted = moment.points.visible & (lost | (found.cost > moment.points.cost + LINK_COST))
            gain = float(wanted.sum()) * self._trust.get(_gap_name(moment, age), 1.0)
            if gain > most:
                best, most = moment, gain
        return best

    def _reach(self, source: Moment, frame: Frame) -> Points:
        """Follow the points from an earlier frame over one gap."""
        flow = self._estimator.match(source.frame, frame).flow.float()
        self.flows += 2
        parts = zip(*(part.split(_CHUNK) for part in source.points), strict=True)
        followed = [follow_link(Points(*part), flow[:1], flow[1:]) for part in parts]
        return Points(*(torch.cat(part) for part in zip(*followed, strict=True)))


def _gap_name(source: Moment, age: int) -> int:
    """Gaps that are trusted alike: about equally long ones, and those from the reference."""
    return _rung(age - source.age) if source.age else 0


def _rung(gap: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (gap.bit_length() - 1)


def follow_link(
    points: Points,
    forward: Float[Tensor, "1 2 H W"],
    backward: Float[Tensor, "1 2 H W"],
    *,
    tolerance: float = TOLERANCE,
) -> Points:
    """Move points along a flow, and judge the link by the way back."""
    height, width = forward.shape[-2:]
    moved = sample(forward, points.position)
    target = points.position + moved
    back = sample(backward, target)
    lengths = moved.square().sum(dim=1) + back.square().sum(dim=1)
    mismatch = (moved + back).square().sum(dim=1)
    mismatch = mismatch / (RELATIVE_TOLERANCE * lengths + ABSOLUTE_TOLERANCE)
    x, y = (target + 0.5).unbind(dim=1)
    inside = ~outside_frame(x, y, height=height, width=width)
    visible = points.visible & inside & (mismatch <= tolerance)
    # Where a point is hidden, a link that starts where it was visible is still the better guess.
    cost = points.cost + mismatch + LINK_COST + torch.where(visible, 0.0, _HIDDEN)
    agreement = torch.exp2(-mismatch / tolerance) * inside
    return Points(target, visible, cost, torch.minimum(points.confidence, agreement))


def _hide(points: Points, ignored: Mask | None) -> Points:
    """Make points in ignored pixels invisible, so that no chain goes on from there."""
    if ignored is None:
        return points
    mask = torch.from_numpy(ignored).to(points.position.device)
    last = points.position.new_tensor([mask.shape[1] - 1, mask.shape[0] - 1])
    x, y = points.position.round().clamp_min(0).minimum(last).long().unbind(dim=1)
    hidden = points.visible & mask[y, x]
    return points._replace(
        visible=points.visible & ~hidden, cost=points.cost + torch.where(hidden, _HIDDEN, 0.0)
    )


def _better(one: Points, other: Points) -> Points:
    """For each point the chain with the lower cost."""
    second = other.cost < one.cost
    return Points(
        torch.where(second[:, None], other.position, one.position),
        torch.where(second, other.visible, one.visible),
        torch.where(second, other.cost, one.cost),
        torch.where(second, other.confidence, one.confidence),
    )


def sample(values: Float[Tensor, "1 c H W"], points: Float[Tensor, "k 2"]) -> Float[Tensor, "k c"]:
    """Sample a map at points, bilinearly; beyond the border, its nearest pixel."""
    height, width = values.shape[-2:]
    size = points.new_tensor([width, height])
    grid = ((2 * points + 1) / size - 1)[None, None]
    return F.grid_sample(values, grid, padding_mode="border", align_corners=False)[0, :, 0].T


# --- Whole shots ---------------------------------------------------------------------------------


def track(
    estimator: "FlowEstimator",
    frames: Footage,
    points: ArrayLike | None = None,
    *,
    reference: int,
    cut_threshold: float | None,
    ignore: Ignored | None = None,
) -> Iterator[TrackedFrame]:
    """Track points of one frame through a shot; see `FlowEstimator.track`."""
    if reference < 0:
        raise FlowError(f"there is no frame {reference}; frames count from 0")
    images = each_image(frames)
    with TemporaryDirectory(prefix="gmaflow-") as folder:
        earlier: list[ImageLike] = []
        earlier_masks: list[Mask | Path | None] = []
        first: ImageArray | None = None
        for number, image in enumerate(images):
            if number == reference:
                first = load_image(image, name=f"frame {number}")
                break
            earlier.append(_put_aside(image, Path(folder) / f"{number}.npy"))
            # Read now: masks of a video come in this order only.
            earlier_masks.append(_put_mask_aside(ignore, number, Path(folder)))
        if first is None:
            raise ImageError(
                f"there is no frame {reference}: the shot has {counted(len(earlier), 'frame')}, "
                "counted from 0"
            )
        given = check_points(points, first)
        ignored = _mask_of(ignore, reference)
        check_ignored(ignored, first, None if points is None else given)
        encoded = estimator.encode(first)
        shape = first.shape[:2] if points is None else (len(given),)
        position = given.astype(np.float32).reshape(*shape, 2)
        certain = np.ones(shape, np.float32)
        seen = np.ones(shape, bool) if points is not None or ignored is None else ~ignored
        yield TrackedFrame(reference, reference, position, seen, certain * seen)
        number = 0
        before = range(reference - 1, -1, -1)
        ways = (
            ((n, _take_back(earlier[n]), _load_mask(earlier_masks[n])) for n in before),
            ((n, image, _mask_of(ignore, n)) for n, image in enumerate(images, reference + 1)),
        )
        for way in ways:
            tracker = Tracker(estimator, encoded, given, ignored)
            for number, found in _follow(tracker, first, way, cut_threshold):
                yield _as_arrays(number, reference, shape, found)
    if reference == number == 0:
        raise ImageError("there is one frame; tracks need at least two")


def _follow(
    tracker: Tracker,
    last: ImageArray,
    images: Iterator[tuple[int, ImageLike, Mask | None]],
    cut_threshold: float | None,
) -> Iterator[tuple[int, Points | None]]:
    """Track through frames in one direction; None for the frames beyond a cut."""
    cut = False
    for number, image, ignored in images:
        if cut:
            yield number, None
            continue
        array = load_image(image, name=f"frame {number}")
        check_same_size(
            {"the reference frame": last, f"frame {number}": array},
            error=ImageError,
            remedy="tracks need frames of one size",
        )
        check_ignored(ignored, array)
        cut = cut_threshold is not None and cut_score(_bytes(last), _bytes(array)) > cut_threshold
        yield number, None if cut else tracker.advance(tracker.encode(array), ignored)
        last = array


def _as_arrays(
    number: int, reference: int, shape: tuple[int, ...], found: Points | None
) -> TrackedFrame:
    if found is None:
        nowhere = np.full((*shape, 2), np.nan, np.float32)
        nothing = np.zeros(shape, np.float32)
        return TrackedFrame(number, reference, nowhere, nothing > 0, nothing, cut=True)
    position, visible, confidence = (
        part.cpu().numpy() for part in (found.position, found.visible, found.confidence)
    )
    return TrackedFrame(
        number,
        reference,
        position.reshape(*shape, 2),
        visible.reshape(shape),
        confidence.reshape(shape),
    )


def check_points(points: ArrayLike | None, image: ImageArray) -> Float[np.ndarray, "k 2"]:
    """Return points as an array; by default all pixels of the image, row by row.

    Raises:
        FlowError: There are none, or one lies outside the image.
    """
    height, width = image.shape[:2]
    if points is None:
        return grid_points(height, width, 1)
    array = np.asarray(points, dtype=np.float32)
    if array.size == 0:
        raise FlowError("there are no points to track; give at least one")
    if array.ndim != 2 or array.shape[1] != 2:
        raise FlowError(f"the points have the shape {array.shape}; give x and y of each point")
    inside = ((array >= -0.5) & (array < (width - 0.5, height - 0.5))).all(axis=1)
    if not inside.all():
        x, y = array[~inside][0]
        raise FlowError(
            f"the point {x:g},{y:g} lies outside the frame of {height}x{width}; x runs from 0 to "
            f"{width - 1}, y from 0 to {height - 1}"
        )
    return array


def check_ignored(
    ignored: Mask | None, image: ImageArray, points: Float[np.ndarray, "k 2"] | None = None
) -> None:
    """Check a mask of ignored pixels.

    Raises:
        FlowError: It has another size than the frame, or one of the points is in it.
    """
    if ignored is None:
        return
    check_same_size(
        {"the mask": ignored, "the frames": image}, remedy="give a mask of the frames' size"
    )
    if points is not None:
        x, y = np.rint(points).astype(int).T
        inside = ignored[y, x]
        if inside.any():
            x, y = points[inside][0]
            raise FlowError(f"the point {x:g},{y:g} is in an ignored pixel; choose another point")


def _mask_of(ignore: Ignored | None, number: int) -> Mask | None:
    return ignore(number) if callable(ignore) else ignore


def _put_mask_aside(ignore: Ignored | None, number: int, folder: Path) -> Mask | Path | None:
    """Keep the mask of a frame for later on the disk; one for all frames stays where it is."""
    if not callable(ignore):
        return ignore
    path = folder / f"{number}-mask.npy"
    np.save(path, ignore(number))
    return path


def _load_mask(mask: Mask | Path | None) -> Mask | None:
    return np.load(mask) if isinstance(mask, Path) else mask


def _put_aside(image: ImageLike, path: Path) -> ImageLike:
    """Keep a frame for later on the disk; what is a file already stays there."""
    if isinstance(image, str | Path):
        return image
    np.save(path, load_image(image))
    return path


def _take_back(image: ImageLike) -> ImageLike:
    return np.load(image) if isinstance(image, Path) and image.suffix == ".npy" else image


def _bytes(image: ImageArray) -> np.ndarray:
    return image if image.dtype == np.uint8 else (image * 255).astype(np.uint8)
