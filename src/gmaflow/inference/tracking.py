"""Tracking: flow from one frame to every other frame of a shot.

Every frame is reached over a long gap, from the reference if that finds enough and else from the
frame that finds most. The flow of the gap is estimated both ways: a point is visible where the way
back leads home. So a point that was hidden comes back as soon as it is in sight.

Where many points are not found like that, they are hidden, or too much has changed. Then a third
flow, a step from the frame before, gives a second place for each point. The way back judges both
places, and it counts whether they agree. Long gaps do not drift, but fail where much has changed;
steps hardly ever fail, but drift, and slip onto what passes in front.

(A long gap does not start from where steps lead: both ways would then agree on an error.)

Legend: k points, H W rows and columns.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike
from torch import Tensor

from gmaflow.errors import FlowError, ImageError, counted
from gmaflow.geometry import outside_frame, sample
from gmaflow.inference.engine import Watcher
from gmaflow.inference.images import (
    Frame,
    Frames,
    ImageArray,
    ImageLike,
    as_points,
    each_image,
    image_of,
    load_image,
)
from gmaflow.inference.sequence import check_cut_threshold, is_cut
from gmaflow.inference.tracks import TrackedFrame, grid_points
from gmaflow.io.images import check_same_size

if TYPE_CHECKING:
    from gmaflow.inference.estimator import FlowEstimator

EVIDENCE = (0.5, 0.25, 0.25)
"""How much it counts that the way back leads home from the place that the long gap finds; that it
does from the place that the step finds; and that both places agree."""
MOST, DOUBT = 0.9, 0.15
"""Where a gap found this share of the pixels the last time, no step is needed, and doubtful points
are more likely visible than hidden: they get this much evidence for nothing."""
ENOUGH = 0.8
"""Where a gap from the reference found this share of the pixels the last time, no other frame is
asked: what begins elsewhere adds the errors of two gaps."""
STEPS = 0.5
"""Share of the frames that are reached by a step too, at most: 2.5 flows for each frame."""
FAR = 3.0
"""Where the way back ends this far from the start, it counts half as much in a point's position as
where it ends near it; farther off, less. In pixels of small frames, as below."""
PIXELS = 256
"""Up to so many rows or columns, a disagreement of 1 px halves the evidence; then more."""
OLDEST = 16
"""Frames after which a frame is forgotten; the reference never is."""

Mask = Bool[np.ndarray, "H W"]
Ignored = Mask | Callable[[int], Mask]
"""A mask for all frames, or a function that returns the mask of a frame by its number."""

_CHUNK = 2**20  # points that are followed at once, to bound memory
_LEAST = 0.5  # confidence of a visible point
_STEP = 0.9  # confidence that is left after a step that nothing judges
_RETRY = 1.05  # by how much an unused gap is trusted more after each frame
_LEAST_TRUST = 0.1
_SAMPLED = 8  # every so many pixels show how much of a frame a gap finds


class Points(NamedTuple):
    """What is known about the points in one frame."""

    position: Float[Tensor, "k 2"]
    visible: Bool[Tensor, " k"]
    confidence: Float[Tensor, " k"]
    """How well the ways to the point and back agree, at the worst link: 1 exactly, 0.5 just
    enough."""


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
        steps: Share of the frames that may be reached by a step too, to limit the number of flows.
        watch: Watches each flow; see `FlowEstimator.match`.
    """

    def __init__(
        self,
        estimator: "FlowEstimator",
        reference: Frame,
        points: Float[np.ndarray, "k 2"],
        ignored: Mask | None = None,
        steps: float = STEPS,
        watch: Watcher | None = None,
    ) -> None:
        self._estimator = estimator
        self._watch = watch
        self._allowed = steps
        position = torch.from_numpy(points).float().to(estimator.device)
        visible = torch.ones(len(position), dtype=torch.bool, device=position.device)
        certain = torch.ones(len(position), device=position.device)
        known = _hide(Points(position, visible, certain), ignored)
        self._moments = [Moment(0, reference, known)]
        self._trust: dict[int, float] = {}
        """By kind of gap, the share of the frame's pixels that it found the last time."""
        self._steps = 0
        self.flows = 0
        """How many flows were estimated; both ways count as two."""
        self.in_tiles = False
        """Whether one of them was estimated in tiles."""

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
        source = self._choose_source(age)
        found = _hide(self._reach(source, frame), ignored)
        self._moments.append(Moment(age, frame, found))
        # Of the earlier frames one is kept for each power of two of the distance.
        self._moments = [
            moment
            for moment in self._moments
            if moment.age in (0, age)
            or (age - moment.age <= OLDEST and moment.age % _rung(age + 1 - moment.age) == 0)
        ]
        return self.points

    def _choose_source(self, age: int) -> Moment:
        """The reference as long as it finds enough, else where most points come from."""
        if self._trust.get(0, 1.0) >= ENOUGH:
            return self._moments[0]
        return max(self._moments, key=lambda moment: self._expect(moment, age))

    def _expect(self, source: Moment, age: int) -> float:
        """How many points a gap is likely to find, after what it found the last time."""
        return float(source.points.visible.sum()) * self._trust.get(_gap_name(source, age), 1.0)

    def _reach(self, source: Moment, frame: Frame) -> Points:
        """Follow the points over a long gap, and by a step where that leaves many in doubt."""
        last = self._moments[-1]
        age = last.age + 1
        match = self._estimator.match(source.frame, frame, watch=self._watch)
        flow = match.flow.float()
        self.flows += 2
        self.in_tiles |= match.in_tiles
        name = _gap_name(source, age)
        sure = self._trust.get(name, 1.0) >= MOST
        given = DOUBT if sure else 0.0
        self._trust = {key: min(1.0, value * _RETRY) for key, value in self._trust.items()}
        self._trust[name] = max(_LEAST_TRUST, _share_found(flow, given))
        step = None
        if not sure and source is not last and self._steps + 1 <= self._allowed * age:
            ahead = self._estimator.match(last.frame, frame, both_ways=False, watch=self._watch)
            step = ahead.flow.float()
            self.flows += 1
            self._steps += 1
        starts = (_chunks(points) for points in (source.points, last.points))
        found = [
            find_points(start, now, flow[:1], flow[1:], step, given=given)
            for start, now in zip(*starts, strict=True)
        ]
        return Points(*(torch.cat(part) for part in zip(*found, strict=True)))


def _share_found(flow: Float[Tensor, "2 2 H W"], given: float) -> float:
    """The share of a frame's pixels that a gap finds, whatever points are tracked."""
    height, width = flow.shape[-2:]
    pixels = torch.from_numpy(grid_points(height, width, _SAMPLED)).to(flow)
    whole = flow.new_ones(len(pixels))
    start = Points(pixels, whole > 0, whole)
    return float(find_points(start, start, flow[:1], flow[1:], given=given).visible.float().mean())


def _chunks(points: Points) -> Iterator[Points]:
    parts = zip(*(part.split(_CHUNK) for part in points), strict=True)
    return (Points(*part) for part in parts)


def _gap_name(source: Moment, age: int) -> int:
    """Gaps that are trusted alike: about equally long ones, and those from the reference."""
    return _rung(age - source.age) if source.age else 0


def _rung(gap: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (gap.bit_length() - 1)


def find_points(
    source: Points,
    last: Points,
    ahead: Float[Tensor, "1 2 H W"],
    back: Float[Tensor, "1 2 H W"],
    step: Float[Tensor, "1 2 H W"] | None = None,
    *,
    given: float = 0.0,
) -> Points:
    """Find points in a frame, over a gap from the source and by a step from the last frame.

    Args:
        source: The points where the gap begins.
        last: The points in the frame before.
        ahead: The flow over the gap.
        back: Its way back.
        step: The flow from the frame before; None if there is none.
        given: Evidence that every point has from the start.
    """
    height, width = ahead.shape[-2:]
    unit = max(1.0, min(height, width) / PIXELS)

    def agreement(one: Float[Tensor, "k 2"], other: Float[Tensor, "k 2"]) -> Float[Tensor, " k"]:
        return 1 / (1 + (one - other).norm(dim=1) / unit)

    straight = source.position + _sample(ahead, source.position)
    missed = straight + _sample(back, straight) - source.position
    away = missed.norm(dim=1, keepdim=True) / unit
    evidence = 1 / (1 + away[:, 0])
    # Where both ways nearly agree, each is as likely to be wrong: the point is halfway between
    # where the one leads and where the other comes from. Where they do not, one of them follows
    # something else, and halfway is nothing.
    position = straight - missed / (2 * (1 + (away / FAR) ** 2))
    stepped = position
    if step is not None:
        stepped = last.position + _sample(step, last.position)
        of_step = agreement(stepped + _sample(back, stepped), source.position)
        parts = (evidence, of_step, agreement(straight, stepped))
        better = of_step > evidence
        evidence = torch.stack([w * part for w, part in zip(EVIDENCE, parts, strict=True)]).sum(0)
        position = torch.where(better[:, None], stepped, position)
    evidence = given + (1 - given) * evidence
    # What is hidden in the source is followed by steps alone, for some frames: the gap would begin
    # at a guess.
    position = torch.where(source.visible[:, None], position, stepped)
    confidence = torch.where(
        source.visible,
        torch.minimum(source.confidence, evidence.sqrt()),
        _STEP * last.confidence * last.visible * (step is not None),
    )
    x, y = (position + 0.5).unbind(dim=1)
    confidence = confidence * ~outside_frame(x, y, height=height, width=width)
    return Points(position, confidence >= _LEAST, confidence)


def _hide(points: Points, ignored: Mask | None) -> Points:
    """Make points in ignored pixels invisible, so that no chain goes on from there."""
    if ignored is None:
        return points
    mask = torch.from_numpy(ignored).to(points.position.device)
    last = points.position.new_tensor([mask.shape[1] - 1, mask.shape[0] - 1])
    x, y = points.position.round().clamp_min(0).minimum(last).long().unbind(dim=1)
    free = ~mask[y, x]
    return points._replace(visible=points.visible & free, confidence=points.confidence * free)


def _sample(values: Float[Tensor, "1 c H W"], points: Float[Tensor, "k 2"]) -> Float[Tensor, "k c"]:
    return sample(values, points[None])[0].T


# --- Whole shots ---------------------------------------------------------------------------------


def track(
    estimator: "FlowEstimator",
    frames: Frames,
    points: ArrayLike | None = None,
    *,
    reference: int,
    cut_threshold: float | None,
    ignore: Ignored | None = None,
    watch: Watcher | None = None,
) -> Iterator[TrackedFrame]:
    """Track points of one frame through a shot; see `FlowEstimator.track`."""
    if not isinstance(reference, Integral) or reference < 0:
        raise FlowError(f"there is no frame {reference!r}; frames count from 0")
    check_cut_threshold(cut_threshold)
    images = each_image(frames)
    with TemporaryDirectory(prefix="gmaflow-") as folder:
        earlier: list[Callable[[], ImageLike]] = []
        earlier_masks: list[Mask | Path | None] = []
        first: ImageArray | None = None
        for number, image in enumerate(images):
            if number == reference:
                first = load_image(image, name=f"frame {number}")
                break
            earlier.append(_keep(frames, number, image, Path(folder)))
            # Read now: masks of a video come in this order only.
            earlier_masks.append(_put_mask_aside(ignore, number, Path(folder)))
        if first is None:
            raise no_such_frame(reference, len(earlier))
        given = check_points(points, first)
        ignored = _mask_of(ignore, reference)
        check_ignored(ignored, first, None if points is None else given)
        if ignored is not None and ignored.all():
            raise FlowError("every pixel of the reference frame is ignored; leave some to track")
        encoded = estimator.encode(first)
        shape = first.shape[:2] if points is None else (len(given),)
        position = given.astype(np.float32).reshape(*shape, 2)
        certain = np.ones(shape, np.float32)
        seen = np.ones(shape, bool) if points is not None or ignored is None else ~ignored
        yield TrackedFrame(reference, reference, position, seen, certain * seen)
        number = 0
        before = range(reference - 1, -1, -1)
        ways = (
            ((n, earlier[n](), _load_mask(earlier_masks[n])) for n in before),
            ((n, image, _mask_of(ignore, n)) for n, image in enumerate(images, reference + 1)),
        )
        for way in ways:
            tracker = Tracker(estimator, encoded, given, ignored, watch=watch)
            for number, found in _follow(tracker, first, way, cut_threshold):
                yield _as_arrays(number, reference, shape, found, in_tiles=tracker.in_tiles)
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
        cut = is_cut(_bytes(last), _bytes(array), cut_threshold)
        yield number, None if cut else tracker.advance(tracker.encode(array), ignored)
        last = array


def _as_arrays(
    number: int, reference: int, shape: tuple[int, ...], found: Points | None, *, in_tiles: bool
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
        in_tiles=in_tiles,
    )


def no_such_frame(reference: int, frames: int) -> ImageError:
    """The error for a reference beyond the end of a shot of so many frames."""
    return ImageError(
        f"there is no frame {reference}: the shot has {counted(frames, 'frame')}, counted from 0"
    )


def check_points(points: ArrayLike | None, image: ImageArray) -> Float[np.ndarray, "k 2"]:
    """Return points as an array; by default all pixels of the image, row by row.

    Raises:
        FlowError: There are none, or one lies outside the image.
    """
    height, width = image.shape[:2]
    if points is None:
        return grid_points(height, width, 1)
    array = as_points(points, height, width)
    if not len(array):
        raise FlowError("there are no points to track; give at least one")
    return array


def check_ignored(
    ignored: Mask | None, image: ImageArray, points: Float[np.ndarray, "k 2"] | None = None
) -> None:
    """Check a mask of ignored pixels.

    Raises:
        FlowError: It is not a mask of the frame's size, or one of the points is in it.
    """
    if ignored is None:
        return
    if not isinstance(ignored, np.ndarray) or ignored.dtype != bool or ignored.ndim != 2:
        raise FlowError(
            "a mask of ignored pixels is an array of bool, height x width; compare other values "
            "with a number, such as mask > 127"
        )
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
    mask = ignore(number)
    if not isinstance(mask, np.ndarray):
        return mask
    path = folder / f"{number}-mask.npy"
    np.save(path, mask)
    return path


def _load_mask(mask: Mask | Path | None) -> Mask | None:
    return np.load(mask) if isinstance(mask, Path) else mask


def _keep(frames: Frames, number: int, image: ImageLike, folder: Path) -> Callable[[], ImageLike]:
    """Return what gives a frame again. Only one that is neither in a list nor a file is stored."""
    if isinstance(frames, Sequence | np.ndarray) and not isinstance(frames, str):
        return lambda: image_of(frames[number])
    if isinstance(image, str | Path):
        return lambda: image
    path = folder / f"{number}.npy"
    np.save(path, load_image(image))
    return partial(np.load, path)


def _bytes(image: ImageArray) -> np.ndarray:
    return image if image.dtype == np.uint8 else (image * 255).astype(np.uint8)
