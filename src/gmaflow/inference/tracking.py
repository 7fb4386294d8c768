"""Tracking: flow from one frame to every other frame of a shot.

Every frame is matched over a long gap: with the reference if that finds enough points, otherwise
with the keyframe that finds most. The flow over the gap is estimated in both directions, and a
point is visible where they are consistent (the backward flow returns it to its start). So a point
that was occluded is found again as soon as it is visible.

If many points are not found, they are occluded or too much has changed. Then a third flow, a step
from the previous frame, gives a second candidate position for each point. The backward flow checks
both candidates, and their agreement counts too. Long gaps do not drift but fail where much has
changed; steps rarely fail but drift, and slip onto objects that pass in front.

(The flow over a gap is not initialized from steps: both directions would then agree on an error.)

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
from gmaflow.inference.flow import check_mask
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
from gmaflow.inference.tracks import TrackedFrame
from gmaflow.io.images import check_same_size
from gmaflow.viz.arrows import grid_points

if TYPE_CHECKING:
    from gmaflow.inference.estimator import FlowEstimator

EVIDENCE = (0.5, 0.25, 0.25)
"""Weights of the evidence: cycle consistency of the position found over the gap, cycle consistency
of the position found by the step, and the agreement of both."""
WELL_FOUND, PRIOR = 0.9, 0.15
"""If a gap found this share of the pixels the last time, no step is needed, and doubtful points are
more likely visible than occluded: each gets this much evidence as a prior."""
WELL_FOUND_FROM_REFERENCE = 0.8
"""If a gap from the reference found this share of the pixels the last time, no other keyframe is
tried: starting from one adds up the errors of two gaps."""
STEP_SHARE = 0.5
"""Largest share of the frames that also get a step: at most 2.5 flows for each frame."""
LARGE_CYCLE_ERROR = 3.0
"""A cycle error of this size halves the weight of the backward flow in a point's position. In
pixels of small frames, see `SMALL_SIDE`."""
SMALL_SIDE = 256
"""In frames up to this many rows or columns, an error of 1 px halves the evidence. In larger frames
that error is proportionally larger."""
MAX_AGE = 16
"""A keyframe is dropped after this many frames; the reference is kept."""

Mask = Bool[np.ndarray, "H W"]
Ignored = Mask | Callable[[int], Mask]
"""A mask for all frames, or a function that returns the mask of a frame by its number."""

_CHUNK = 2**20  # points that are tracked at once, to bound memory
_MIN_CONFIDENCE = 0.5  # the smallest confidence of a visible point
_STEP_DECAY = 0.9  # factor on the confidence after a step that nothing checks
_TRUST_RECOVERY = 1.05  # factor on the trust in an unused gap, for each frame
_MIN_TRUST = 0.1
_SAMPLE_SPACING = 8  # pixels between the points that measure how much a gap finds


class Points(NamedTuple):
    """The points in one frame."""

    position: Float[Tensor, "k 2"]
    visible: Bool[Tensor, " k"]
    confidence: Float[Tensor, " k"]
    """How consistent the flows to the point and back are, at the weakest link: 1 exactly, 0.5 just
    enough."""


class Keyframe(NamedTuple):
    """An earlier frame that a gap may start from."""

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
        steps: Largest share of the frames that also get a step, to limit the number of flows.
        watch: Called for each flow; see `FlowEstimator.match`.
    """

    def __init__(
        self,
        estimator: "FlowEstimator",
        reference: Frame,
        points: Float[np.ndarray, "k 2"],
        ignored: Mask | None = None,
        steps: float = STEP_SHARE,
        watch: Watcher | None = None,
    ) -> None:
        self._estimator = estimator
        self._watch = watch
        self._step_share = steps
        position = torch.from_numpy(points).float().to(estimator.device)
        visible = torch.ones(len(position), dtype=torch.bool, device=position.device)
        confidence = torch.ones(len(position), device=position.device)
        start = _hide(Points(position, visible, confidence), ignored)
        self._keyframes = [Keyframe(0, reference, start)]
        self._trust: dict[int, float] = {}
        """By class of gap, the share of the frame's pixels that it found the last time."""
        self._steps = 0
        self.flows = 0
        """How many flows were estimated; both directions count as two."""
        self.in_tiles = False
        """Whether one of them was estimated in tiles."""

    @property
    def points(self) -> Points:
        """The points in the last frame."""
        return self._keyframes[-1].points

    def encode(self, image: ImageArray) -> Frame:
        """Encode a frame once, for all gaps that will use it."""
        return self._estimator.encode(image)

    @torch.inference_mode()
    def advance(self, frame: Frame, ignored: Mask | None = None) -> Points:
        """Track the points into the next frame; in its ignored pixels none is visible."""
        age = self._keyframes[-1].age + 1
        source = self._choose_source(age)
        points = _hide(self._reach(source, frame), ignored)
        self._keyframes.append(Keyframe(age, frame, points))
        # Keep one earlier frame for each power of two of the distance.
        self._keyframes = [
            keyframe
            for keyframe in self._keyframes
            if keyframe.age in (0, age)
            or (
                age - keyframe.age <= MAX_AGE
                and keyframe.age % _floor_power_of_two(age + 1 - keyframe.age) == 0
            )
        ]
        return self.points

    def _choose_source(self, age: int) -> Keyframe:
        """Return the reference as long as it finds enough, else the keyframe that finds most."""
        if self._trust.get(0, 1.0) >= WELL_FOUND_FROM_REFERENCE:
            return self._keyframes[0]
        return max(self._keyframes, key=lambda keyframe: self._expected_points(keyframe, age))

    def _expected_points(self, source: Keyframe, age: int) -> float:
        """Return how many points a gap is likely to find, given what it found the last time."""
        return float(source.points.visible.sum()) * self._trust.get(_gap_class(source, age), 1.0)

    def _reach(self, source: Keyframe, frame: Frame) -> Points:
        """Track the points over a long gap, and by a step if that may find too few."""
        last = self._keyframes[-1]
        age = last.age + 1
        match = self._estimator.match(source.frame, frame, watch=self._watch)
        flow = match.flow.float()
        self.flows += 2
        self.in_tiles |= match.in_tiles
        gap_class = _gap_class(source, age)
        well_found = self._trust.get(gap_class, 1.0) >= WELL_FOUND
        prior = PRIOR if well_found else 0.0
        self._trust = {key: min(1.0, value * _TRUST_RECOVERY) for key, value in self._trust.items()}
        self._trust[gap_class] = max(_MIN_TRUST, _share_found(flow, prior))
        step = None
        if not well_found and source is not last and self._steps + 1 <= self._step_share * age:
            estimate = self._estimator.match(last.frame, frame, both_ways=False, watch=self._watch)
            step = estimate.flow.float()
            self.in_tiles |= estimate.in_tiles
            self.flows += 1
            self._steps += 1
        starts = (_chunks(points) for points in (source.points, last.points))
        chunks = [
            find_points(start, now, flow[:1], flow[1:], step, prior=prior)
            for start, now in zip(*starts, strict=True)
        ]
        return Points(*(torch.cat(part) for part in zip(*chunks, strict=True)))


def _share_found(flow: Float[Tensor, "2 2 H W"], prior: float) -> float:
    """Return the share of a frame's pixels that a gap finds, whatever points are tracked."""
    height, width = flow.shape[-2:]
    pixels = torch.from_numpy(grid_points(height, width, _SAMPLE_SPACING)).to(flow)
    ones = flow.new_ones(len(pixels))
    start = Points(pixels, ones > 0, ones)
    return float(find_points(start, start, flow[:1], flow[1:], prior=prior).visible.float().mean())


def _chunks(points: Points) -> Iterator[Points]:
    parts = zip(*(part.split(_CHUNK) for part in points), strict=True)
    return (Points(*part) for part in parts)


def _gap_class(source: Keyframe, age: int) -> int:
    """Return the class of a gap: those from the reference (0), or of about equal length."""
    return _floor_power_of_two(age - source.age) if source.age else 0


def _floor_power_of_two(gap: int) -> int:
    """Return the largest power of two that is at most `gap`."""
    return 1 << (gap.bit_length() - 1)


def find_points(
    source: Points,
    last: Points,
    forward: Float[Tensor, "1 2 H W"],
    backward: Float[Tensor, "1 2 H W"],
    step: Float[Tensor, "1 2 H W"] | None = None,
    *,
    prior: float = 0.0,
) -> Points:
    """Find points in a frame, over a gap from the source and by a step from the last frame.

    Args:
        source: The points where the gap begins.
        last: The points in the previous frame.
        forward: The flow over the gap.
        backward: The flow back over the gap.
        step: The flow from the previous frame, if it was estimated.
        prior: Evidence that every point has from the start.
    """
    height, width = forward.shape[-2:]
    unit = max(1.0, min(height, width) / SMALL_SIDE)

    def agreement(one: Float[Tensor, "k 2"], other: Float[Tensor, "k 2"]) -> Float[Tensor, " k"]:
        return 1 / (1 + (one - other).norm(dim=1) / unit)

    direct = source.position + _sample(forward, source.position)
    cycle_error = direct + _sample(backward, direct) - source.position
    scaled_error = cycle_error.norm(dim=1, keepdim=True) / unit
    evidence = 1 / (1 + scaled_error[:, 0])
    # If both directions nearly agree, each is as likely to be wrong: the point is halfway between
    # their positions. If they do not, one of them follows something else, and the middle is
    # meaningless.
    position = direct - cycle_error / (2 * (1 + (scaled_error / LARGE_CYCLE_ERROR) ** 2))
    stepped = position
    if step is not None:
        stepped = last.position + _sample(step, last.position)
        step_evidence = agreement(stepped + _sample(backward, stepped), source.position)
        parts = (evidence, step_evidence, agreement(direct, stepped))
        better = step_evidence > evidence
        evidence = torch.stack([w * part for w, part in zip(EVIDENCE, parts, strict=True)]).sum(0)
        position = torch.where(better[:, None], stepped, position)
    evidence = prior + (1 - prior) * evidence
    # Points that are occluded in the source are tracked only by steps, for some frames: a gap would
    # start from a guess.
    position = torch.where(source.visible[:, None], position, stepped)
    confidence = torch.where(
        source.visible,
        torch.minimum(source.confidence, evidence.sqrt()),
        _STEP_DECAY * last.confidence * last.visible * (step is not None),
    )
    x, y = (position + 0.5).unbind(dim=1)
    confidence = confidence * ~outside_frame(x, y, height=height, width=width)
    return Points(position, confidence >= _MIN_CONFIDENCE, confidence)


def _hide(points: Points, ignored: Mask | None) -> Points:
    """Make points in ignored pixels invisible, so that no track continues from there."""
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
    reference = int(reference)  # a numpy integer is not JSON
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
            earlier.append(_reopen(frames, number, image, Path(folder)))
            # Read now: the masks of a video come only in this order.
            earlier_masks.append(_store_mask(ignore, number, Path(folder)))
        if first is None:
            raise no_such_frame(reference, len(earlier))
        points_array = check_points(points, first)
        ignored = _mask_of(ignore, reference)
        check_ignored(ignored, first, None if points is None else points_array)
        if ignored is not None and ignored.all():
            raise FlowError("every pixel of the reference frame is ignored; leave some to track")
        encoded = estimator.encode(first)
        shape = first.shape[:2] if points is None else (len(points_array),)
        position = points_array.astype(np.float32).reshape(*shape, 2)
        confidence = np.ones(shape, np.float32)
        visible = np.ones(shape, bool) if points is not None or ignored is None else ~ignored
        yield TrackedFrame(reference, reference, position, visible, confidence * visible)
        number = 0
        earlier_numbers = range(reference - 1, -1, -1)
        directions = (
            ((n, earlier[n](), _load_mask(earlier_masks[n])) for n in earlier_numbers),
            ((n, image, _mask_of(ignore, n)) for n, image in enumerate(images, reference + 1)),
        )
        for direction in directions:
            tracker = Tracker(estimator, encoded, points_array, ignored, watch=watch)
            for number, tracked in _follow(tracker, encoded.image, direction, cut_threshold):
                yield _as_arrays(number, reference, shape, tracked, in_tiles=tracker.in_tiles)
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
        if cut:
            yield number, None
        else:
            frame = tracker.encode(array)
            yield number, tracker.advance(frame, ignored)
            last = frame.image  # a copy: the caller may reuse the memory of an image


def _as_arrays(
    number: int, reference: int, shape: tuple[int, ...], points: Points | None, *, in_tiles: bool
) -> TrackedFrame:
    if points is None:
        positions = np.full((*shape, 2), np.nan, np.float32)
        zeros = np.zeros(shape, np.float32)
        return TrackedFrame(number, reference, positions, zeros > 0, zeros, cut=True)
    position, visible, confidence = (
        part.cpu().numpy() for part in (points.position, points.visible, points.confidence)
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
    """Return the error for a reference beyond the end of a shot."""
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
    check_mask("ignore", ignored)
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


def _store_mask(ignore: Ignored | None, number: int, folder: Path) -> Mask | Path | None:
    """Store the mask of a frame on disk for later; a mask for all frames stays in memory."""
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


def _reopen(frames: Frames, number: int, image: ImageLike, folder: Path) -> Callable[[], ImageLike]:
    """Return a function that loads a frame again; store frames of other iterables on disk."""
    if isinstance(frames, Sequence | np.ndarray) and not isinstance(frames, str):
        return lambda: image_of(frames[number])
    if isinstance(image, str | Path):
        return lambda: image
    path = folder / f"{number}.npy"
    np.save(path, load_image(image))
    return partial(np.load, path)


def _bytes(image: ImageArray) -> np.ndarray:
    return image if image.dtype == np.uint8 else (image * 255).astype(np.uint8)
