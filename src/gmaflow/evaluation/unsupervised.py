"""How far flow can be trusted where nobody knows the truth.

Three questions that the frames answer by themselves: does the flow bring the second frame back onto
the first, do both directions agree, and does it rest where the picture does.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from gmaflow import viz
from gmaflow.data import FlowDataset, FlowPair
from gmaflow.evaluation.cache import ResultStore
from gmaflow.evaluation.examples import identify_files
from gmaflow.evaluation.judging import can_be_kept, digest, identify
from gmaflow.inference import BidirectionalFlow, FlowEstimator
from gmaflow.io import read_image

# Levels of 255 that a sensor's noise and compression move a pixel by, and where nothing moves.
_NOISE = 3
_AROUND = 7
# So few resting pixels are there by chance, on a moving edge or a straight line.
_TOO_FEW = 0.02
# Another number makes all kept results void: raise it when the figures change.
_VERSION = "1"
RESULTS = "unsupervised.jsonl"
STATIC_SHARE = 0.5
"""From this share of resting pixels on, the camera counts as static."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a pair says about its flow. NaN where no pixel can tell.

    Attributes:
        photometric: mean difference between the first frame and the second brought back onto it,
            in levels of 255, over the pixels that both show.
        photometric_unmoved: the same with no motion at all, for comparison.
        inconsistency: median distance in pixels between a pixel and where going forward and back
            again leads it.
        occluded: share of pixels, in percent, that the second frame is found not to show.
        resting: share of pixels, in percent, around which the two frames are the same.
        drift: mean length in pixels of the flow on those, which should be zero; NaN if too few
            rest.
    """

    photometric: float
    photometric_unmoved: float
    inconsistency: float
    occluded: float
    resting: float
    drift: float

    @property
    def static_camera(self) -> bool:
        """Whether most of the picture rests."""
        return self.resting >= 100 * STATIC_SHARE


NAMES = tuple(field.name for field in fields(Judgement))


def judge_pair(
    image1: UInt8[np.ndarray, "h w 3"], image2: UInt8[np.ndarray, "h w 3"], both: BidirectionalFlow
) -> Judgement:
    """Ask a pair's own frames about its flow in both directions."""
    seen = ~both.occluded
    flow = both.forward.array
    height, width = flow.shape[:2]
    x = flow[..., 0] + np.arange(width, dtype=np.float32)
    y = flow[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    returned = flow + viz.sample_bilinear(both.backward.array, x, y)
    rest = resting_pixels(image1, image2)
    return Judgement(
        photometric=_mean(_difference(image1, viz.sample_bilinear(image2, x, y)), seen),
        photometric_unmoved=_mean(_difference(image1, image2), seen),
        inconsistency=_median(np.hypot(returned[..., 0], returned[..., 1]), ~both.occluded_out),
        occluded=100 * float(both.occluded.mean()),
        resting=100 * float(rest.mean()),
        drift=_mean(np.hypot(flow[..., 0], flow[..., 1]), rest & (rest.mean() > _TOO_FEW)),
    )


def resting_pixels(
    image1: UInt8[np.ndarray, "h w 3"], image2: UInt8[np.ndarray, "h w 3"]
) -> Bool[np.ndarray, "h w"]:
    """Tell which pixels show the same in both frames, and have something around them to tell by.

    A plain wall looks the same however it moves, so pixels without any structure near them do not
    count.
    """
    change = np.abs(image1.astype(np.int16) - image2).max(axis=2)
    grey = image1.astype(np.int16).max(axis=2)
    structured = _widest(grey) + _widest(-grey) > 4 * _NOISE
    still: np.ndarray = (_widest(change) <= _NOISE) & structured
    return still


@dataclass(frozen=True)
class JudgedPair:
    """A pair of frames, what they say, and the key under which that is kept."""

    pair: FlowPair
    found: Judgement
    key: str


def judge_footage(
    estimator: FlowEstimator,
    dataset: FlowDataset,
    folder: Path,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[JudgedPair]:
    """Judge consecutive frames, pair by pair; truth is neither needed nor looked at.

    Args:
        estimator: the network.
        dataset: the frames.
        folder: where results are kept; those that are there already are not computed again.
        progress: is told how many pairs are done, and of how many.
    """
    store, base = ResultStore(folder / RESULTS), identify(estimator)
    judged = []
    for done, pair in enumerate(dataset, 1):
        key = digest(base, _VERSION, identify_files((pair.image1, pair.image2)))
        kept = store.get(key)
        if kept is None:
            image1, image2 = read_image(pair.image1), read_image(pair.image2)
            both = estimator.bidirectional(image1, image2)
            found = judge_pair(image1, image2, both)
            if can_be_kept(both.forward, estimator):
                store.put(key, asdict(found))
        else:
            found = Judgement(**{name: kept[name] for name in NAMES})
        judged.append(JudgedPair(pair, found, key))
        progress(done, len(dataset))
    return judged


def average(judgements: Iterable[Judgement]) -> Judgement:
    """Return the mean of each figure over the pairs that have it."""
    values = np.array([list(asdict(one).values()) for one in judgements], dtype=np.float64)
    known = np.isfinite(values)
    counts = known.sum(axis=0)
    sums = np.where(known, values, 0).sum(axis=0)
    means = [float(s / c) if c else float("nan") for s, c in zip(sums, counts, strict=True)]
    return Judgement(**dict(zip(NAMES, means, strict=True)))


def _difference(one: UInt8[np.ndarray, "h w 3"], other: np.ndarray) -> Float32[np.ndarray, "h w"]:
    return np.abs(one.astype(np.float32) - other).mean(axis=2)


def _widest(values: np.ndarray) -> np.ndarray:
    """Return the largest value around each pixel."""
    reach = _AROUND // 2
    padded = np.pad(values, reach, mode="edge")
    for axis in (0, 1):
        padded = np.lib.stride_tricks.sliding_window_view(padded, _AROUND, axis=axis).max(axis=-1)
    return padded


def _mean(values: np.ndarray, where: Bool[np.ndarray, "h w"]) -> float:
    return float(values[where].mean()) if where.any() else float("nan")


def _median(values: np.ndarray, where: Bool[np.ndarray, "h w"]) -> float:
    return float(np.median(values[where])) if where.any() else float("nan")
