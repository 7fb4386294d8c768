"""Evaluation without ground truth, from the frames themselves.

Three checks: does the flow warp the second frame back onto the first, do the forward and backward
flow agree, and is the flow zero where the image does not change.
"""

import csv
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from io import TextIOWrapper
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from gmaflow import viz
from gmaflow.data import FlowDataset, FlowPair
from gmaflow.errors import FlowFileError, counted
from gmaflow.evaluation.evaluating import SHOWN, ResultStore, digest, identify, is_reproducible
from gmaflow.evaluation.examples import identify_files, identify_masks
from gmaflow.evaluation.metrics import finite_or_null
from gmaflow.evaluation.pages import Card, Figure, Table, format_figure, write_page
from gmaflow.geometry import targets
from gmaflow.inference import BidirectionalFlow, FlowEstimator, read_flow
from gmaflow.inference.visibility import combine
from gmaflow.io import MaskReader, atomic_write, read_image
from gmaflow.io.paths import write_text

# Changes of a pixel, in levels of 255, that are noise; and the window that must not change.
_NOISE = 3
_WINDOW = 7
# A smaller share of static pixels can be a coincidence, such as a straight moving edge.
_TOO_FEW = 0.02
# Increase it when the figures change: all stored results become invalid.
_VERSION = "1"
RESULTS = "unsupervised.jsonl"
_SHOWN_PAIRS = 3
STATIC_SHARE = 0.5
"""With at least this share of static pixels, the camera counts as static."""


@dataclass(frozen=True, kw_only=True)
class SelfCheck:
    """Figures of a pair's flow without ground truth; see `MEANING`. NaN if undefined."""

    photometric: float
    photometric_unmoved: float
    inconsistency: float
    occluded: float
    resting: float
    drift: float

    @property
    def static_camera(self) -> bool:
        """Whether most of the image does not change."""
        return self.resting >= 100 * STATIC_SHARE


NAMES = tuple(field.name for field in fields(SelfCheck))
MEANING = {
    "photometric": ("levels of 255", "difference between frame 1 and the warped frame 2"),
    "photometric_unmoved": ("levels of 255", "the same without any flow"),
    "inconsistency": ("px", "median error after going forward and back"),
    "occluded": ("% of pixels", "found occluded in the second frame"),
    "resting": ("% of pixels", "the same in both frames; half or more: a static camera"),
    "drift": ("px", "mean flow on those pixels, which should be zero"),
}
"""Unit and meaning of each figure."""


def check_pair(
    image1: UInt8[np.ndarray, "h w 3"],
    image2: UInt8[np.ndarray, "h w 3"],
    both: BidirectionalFlow,
    *,
    ignore: Bool[np.ndarray, "h w"] | None = None,
) -> SelfCheck:
    """Check the flow of a pair, in both directions, against its frames, except ignored pixels."""
    valid = np.ones(image1.shape[:2], bool) if ignore is None else ~ignore
    visible = ~both.occluded & valid
    flow = both.forward.array
    x, y = targets(flow)
    returned = flow + viz.sample_bilinear(both.backward.array, x, y)
    rest = resting_pixels(image1, image2) & valid
    resting = _mean(rest, valid)
    return SelfCheck(
        photometric=_mean(_difference(image1, viz.sample_bilinear(image2, x, y)), visible),
        photometric_unmoved=_mean(_difference(image1, image2), visible),
        inconsistency=_median(
            np.hypot(returned[..., 0], returned[..., 1]), valid & ~both.occluded_out
        ),
        occluded=100 * _mean(both.occluded, valid),
        resting=100 * resting,
        drift=_mean(np.hypot(flow[..., 0], flow[..., 1]), rest & (resting > _TOO_FEW)),
    )


def resting_pixels(
    image1: UInt8[np.ndarray, "h w 3"], image2: UInt8[np.ndarray, "h w 3"]
) -> Bool[np.ndarray, "h w"]:
    """Return the pixels around which both frames are the same.

    A uniform area looks the same however it moves, so pixels without any structure nearby do not
    count.
    """
    change = np.abs(image1.astype(np.int16) - image2).max(axis=2)
    grey = image1.astype(np.int16).max(axis=2)
    structured = _window_max(grey) + _window_max(-grey) > 4 * _NOISE
    still: np.ndarray = (_window_max(change) <= _NOISE) & structured
    return still


@dataclass(frozen=True)
class CheckedPair:
    """A pair of frames, its figures, and the key under which they are stored."""

    pair: FlowPair
    check: SelfCheck
    key: str


def check_footage(
    estimator: FlowEstimator,
    dataset: FlowDataset,
    folder: Path,
    *,
    ignore: Path | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[CheckedPair]:
    """Check consecutive frames, pair by pair; results in the folder are not computed again.

    `progress` is called with the number of finished pairs and their total. `ignore` names
    masks of pixels that do not count: an image for all pairs, or one for each.
    """
    store, base = ResultStore(folder / RESULTS, NAMES), identify(estimator)
    masks = None if ignore is None else MaskReader(ignore, count=len(dataset))
    checked = []
    for done, pair in enumerate(dataset, 1):
        parts = [] if masks is None else [identify_masks(masks), str(done)]
        key = digest(base, _VERSION, identify_files((pair.image1, pair.image2)), *parts)
        stored = store.get(key)
        if stored is None:
            image1, image2 = read_image(pair.image1), read_image(pair.image2)
            both = estimator.bidirectional(image1, image2)
            mask = None if masks is None else masks.mask(done - 1, image1.shape)
            check = check_pair(image1, image2, both, ignore=mask)
            if is_reproducible(both.forward, estimator):
                store.put(key, asdict(check))
        else:
            check = SelfCheck(**{name: stored[name] for name in NAMES})
        checked.append(CheckedPair(pair, check, key))
        progress(done, len(dataset))
    return checked


def average(checks: Iterable[SelfCheck]) -> SelfCheck:
    """Return the mean of each figure over the pairs that have it."""
    values = np.array([list(asdict(check).values()) for check in checks], dtype=np.float64)
    means = [_mean(column, np.isfinite(column)) for column in values.T]
    return SelfCheck(**dict(zip(NAMES, means, strict=True)))


def write_unsupervised(
    folder: Path, title: str, checked: list[CheckedPair], estimator: FlowEstimator
) -> Path:
    """Write unsupervised.html, .json and .csv; returns the page.

    The page shows the pairs with the largest photometric error. Their flow is saved, so that a
    repeated run does not estimate it again.
    """
    path = folder / "unsupervised.csv"
    with atomic_write(path) as raw, TextIOWrapper(raw, "utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["scene", "frame", *NAMES])
        for one in checked:
            numbers = ("" if math.isnan(n) else f"{n:.6g}" for n in asdict(one.check).values())
            writer.writerow([one.pair.scene, one.pair.frame, *numbers])
    write_text(folder / "unsupervised.json", json.dumps(as_json(checked), indent=2) + "\n")
    figures = mean_table(checked)
    worst = sorted(checked, key=lambda one: -np.nan_to_num(one.check.photometric))[:_SHOWN_PAIRS]
    return write_page(
        folder / "unsupervised.html",
        "unsupervised.html",
        title=title,
        subtitle=f"{counted(len(checked), 'pair')}, evaluated without ground truth",
        tiles=[
            (name, number, unit)
            for (name, number, _), (unit, _) in zip(figures.rows, MEANING.values(), strict=True)
        ],
        meanings=Table(
            ("figure", "meaning"),
            [(name, meaning) for name, _, meaning in figures.rows],
            text_columns=(0, 1),
        ),
        cards=[_unsupervised_card(one, folder / SHOWN, estimator) for one in worst],
    )


def as_json(checked: list[CheckedPair]) -> dict[str, object]:
    """Return the averages as plain values; null where no pair has the figure."""
    mean = average(one.check for one in checked)
    return {
        "data": checked[0].pair.dataset,
        "pairs": len(checked),
        "static_camera": mean.static_camera,
        "mean": finite_or_null(asdict(mean)),
    }


def mean_table(checked: list[CheckedPair]) -> Table:
    """Return the average and the meaning of each figure."""
    mean = asdict(average(one.check for one in checked))
    rows = [
        (name.replace("_", ", "), format_figure(mean[name]), f"{meaning} ({unit})")
        for name, (unit, meaning) in MEANING.items()
    ]
    return Table(("figure", "mean", ""), rows, text_columns=(0, 2))


def _unsupervised_card(one: CheckedPair, folder: Path, estimator: FlowEstimator) -> Card:
    image1, image2 = read_image(one.pair.image1), read_image(one.pair.image2)
    both = _shown_both(folder / one.key, image1, image2, estimator)
    hidden = viz.occlusion_overlay(image1, both.occluded_in, both.occluded_out)
    figures = [
        Figure.of(image1, "first frame"),
        Figure.of(image2, "second frame"),
        Figure.of(both.forward.picture(legend=True), "flow"),
        Figure.of(both.forward.warp(image2), "second frame warped back to the first"),
        Figure.of(viz.confidence_map(both.confidence), "agreement of both directions, light: full"),
        Figure.of(hidden, "found occluded (orange), out of frame (blue)"),
    ]
    check = one.check
    about = f"photometric {check.photometric:.2f}, inconsistency {check.inconsistency:.2f} px"
    return Card(f"{one.pair.scene} {one.pair.frame}", about, [figures])


def _shown_both(
    stem: Path,
    image1: UInt8[np.ndarray, "h w 3"],
    image2: UInt8[np.ndarray, "h w 3"],
    estimator: FlowEstimator,
) -> BidirectionalFlow:
    """Read the flow in both directions that was saved for the page, or estimate and save it."""
    ahead, back = (stem.with_name(f"{stem.name}-{way}.flo") for way in ("forward", "backward"))
    try:
        return combine(read_flow(ahead), read_flow(back))
    except FlowFileError:
        both = estimator.bidirectional(image1, image2)
        if is_reproducible(both.forward, estimator):
            both.forward.save(ahead)
            both.backward.save(back)
        return both


def _difference(one: UInt8[np.ndarray, "h w 3"], other: np.ndarray) -> Float32[np.ndarray, "h w"]:
    return np.abs(one.astype(np.float32) - other).mean(axis=2)


def _window_max(values: np.ndarray) -> np.ndarray:
    """Return the largest value in a window around each pixel."""
    radius = _WINDOW // 2
    padded = np.pad(values, radius, mode="edge")
    for axis in (0, 1):
        padded = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW, axis=axis).max(axis=-1)
    return padded


def _mean(values: np.ndarray, where: Bool[np.ndarray, "*shape"]) -> float:
    return float(values[where].mean()) if where.any() else float("nan")


def _median(values: np.ndarray, where: Bool[np.ndarray, "h w"]) -> float:
    return float(np.median(values[where])) if where.any() else float("nan")
