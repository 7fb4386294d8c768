"""End-point errors by image region, as sums that can be added over pairs.

Legend: r regions, c columns, k bins of the histogram.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64

from gmaflow.data import FlowSample
from gmaflow.errors import DatasetError
from gmaflow.geometry import distance_to, hole_depths
from gmaflow.io.images import check_same_size

Averaging = Literal["pixels", "images"]
"""`pixels`: the mean over all pixels of all pairs (Sintel). `images`: the mean of the pairs' means
(KITTI). Outlier rates are over all pixels in either case."""
Mask = Bool[np.ndarray, "h w"]

REGIONS = {
    "all": "every pixel with ground truth",
    "noc": "visible in the second frame",
    "occ": "occluded in the second frame, or outside it",
    "occ-in": "occluded in the second frame, inside it",
    "occ-out": "outside the second frame",
    **{
        f"{region}{name}": f"{region}, {meaning} from the nearest visible pixel"
        for region in ("occ", "occ-in", "occ-out")
        for name, meaning in {
            "<1": "less than 8 px (1 cell)",
            " 1-3": "8 to 24 px (1 to 3 cells)",
            ">3": "more than 24 px (3 cells)",
        }.items()
    },
    "matched": "visible according to the data set's own mask",
    "unmatched": "not visible according to the data set's own mask",
    "s0-10": "moving less than 10 px",
    "s10-40": "moving 10 to 40 px",
    "s40+": "moving 40 px or more",
    "d0-10": "visible, less than 10 px from an occlusion boundary",
    "d10-60": "visible, 10 to 60 px from an occlusion boundary",
    "d60-140": "visible, 60 to 140 px from an occlusion boundary",
    "fg": "moving objects (KITTI's foreground)",
    "bg": "everything except moving objects",
}
"""Names of the regions and their definitions."""

VISIBILITY = ("all", "noc", "occ", "occ-in", "occ-out")
DEPTH = tuple(name for name in REGIONS if name.startswith("occ") and name not in VISIBILITY)
SHOWN_BY = {
    "region": tuple(name for name in REGIONS if name not in DEPTH),
    "depth": VISIBILITY + DEPTH,
}
"""Which regions a short table shows."""
NEED_OCCLUSION = ("noc", "occ", "occ-in", "d0-10", "d10-60", "d60-140")
NEED_FOREGROUND = ("fg", "bg")
_SPEEDS = {"s0-10": (0, 10), "s10-40": (10, 40), "s40+": (40, np.inf)}
_DISTANCES = {"d0-10": (0, 10), "d10-60": (10, 60), "d60-140": (60, 140)}

HISTOGRAM_EDGES = (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100)
"""Bin edges of the error histogram in pixels; the first and last bin are open."""

_ROWS = {name: row for row, name in enumerate(REGIONS)}
_BY_IMAGE = ("kitti-2012", "kitti-2015", "hd1k", "middlebury")


class Column(IntEnum):
    """What is summed up for each region."""

    DEFINED = 0
    """Pairs whose masks define the region."""
    IMAGES = 1
    """Pairs that have pixels in it."""
    PIXELS = 2
    ERROR = 3
    OVER_1 = 4
    OVER_3 = 5
    OVER_5 = 6
    FL = 7
    """Pixels with an error over 3 px and over 5 % of the motion."""
    MEANS = 8
    """Sum of the pairs' mean errors."""


@dataclass(frozen=True, eq=False)
class ErrorSums:
    """Errors of any number of pairs; `+` adds them up."""

    table: Float64[np.ndarray, "r c"]
    histogram: Float64[np.ndarray, " k"]

    @classmethod
    def none(cls) -> "ErrorSums":
        """Return the sums over no pairs."""
        return cls(np.zeros((len(REGIONS), len(Column))), np.zeros(len(HISTOGRAM_EDGES) + 1))

    def __add__(self, other: "ErrorSums") -> "ErrorSums":
        return ErrorSums(self.table + other.table, self.histogram + other.histogram)

    def figures(self, averaging: Averaging) -> dict[str, "Figures"]:
        """Return the figures of each region that is defined for at least one pair."""
        return {
            name: Figures.from_sums(self.table[row], averaging)
            for name, row in _ROWS.items()
            if self.table[row, Column.DEFINED]
        }

    def num_pairs(self, region: str) -> int:
        """Return for how many pairs a region is defined."""
        return int(self.table[_ROWS[region], Column.DEFINED])

    def as_json(self) -> dict[str, list[float]]:
        """Return plain values from which `from_json` restores the sums."""
        rows = {name: self.table[row].tolist() for name, row in _ROWS.items()}
        defined = {name: row for name, row in rows.items() if row[Column.DEFINED]}
        return {**defined, "histogram": self.histogram.tolist()}

    @classmethod
    def from_json(cls, values: dict[str, list[float]]) -> "ErrorSums":
        sums = cls.none()
        for name, row in _ROWS.items():
            if name in values:
                sums.table[row] = values[name]
        sums.histogram[:] = values["histogram"]
        return sums


@dataclass(frozen=True)
class Figures:
    """The figures of a region; NaN if it has no pixels. Outlier rates are in percent."""

    epe: float
    """Mean end-point error, in pixels."""
    px1: float
    px3: float
    px5: float
    fl: float
    pixels: int
    images: int

    @classmethod
    def from_sums(cls, row: Float64[np.ndarray, " c"], averaging: Averaging) -> "Figures":
        """Divide the sums of a region by its pixels or images."""
        pixels, images = row[Column.PIXELS], row[Column.IMAGES]
        by_image = (row[Column.MEANS], images)
        total, count = by_image if averaging == "images" else (row[Column.ERROR], pixels)
        px1, px3, px5, fl = (
            100 * _divide(row[column], pixels)
            for column in (Column.OVER_1, Column.OVER_3, Column.OVER_5, Column.FL)
        )
        return cls(_divide(total, count), px1, px3, px5, fl, int(pixels), int(images))


def measure(estimate: Float32[np.ndarray, "h w 2"], sample: FlowSample) -> ErrorSums:
    """Measure the end-point errors of an estimate in each region.

    Sintel's mask of invalid pixels is ignored, as the benchmark and the paper do.

    Raises:
        DatasetError: the sample has no ground truth, its size differs from the estimate's, or the
            estimate is not finite.
    """
    if sample.flow is None or sample.valid is None:
        raise DatasetError(
            "a pair without ground truth cannot be evaluated; use `gmaflow submit` for test sets"
        )
    check_same_size(
        {"the estimate": estimate, "the truth": sample.flow},
        error=DatasetError,
        remedy="they must be of one size",
    )
    if not np.isfinite(estimate[sample.valid]).all():
        raise DatasetError("the estimate contains values that are not finite")
    truth = sample.flow.astype(np.float64)
    error = np.hypot(*np.moveaxis(estimate - truth, 2, 0))
    outlier = (error > 3) & (error > 0.05 * np.hypot(*np.moveaxis(truth, 2, 0)))
    sums = ErrorSums.none()
    for name, mask in find_regions(sample).items():
        here = error[mask]
        row = sums.table[_ROWS[name]]
        row[Column.DEFINED] = 1
        row[Column.PIXELS] = here.size
        row[Column.ERROR] = here.sum()
        for column, limit in ((Column.OVER_1, 1), (Column.OVER_3, 3), (Column.OVER_5, 5)):
            row[column] = np.count_nonzero(here > limit)
        row[Column.FL] = np.count_nonzero(outlier[mask])
        if here.size:
            row[Column.IMAGES] = 1
            row[Column.MEANS] = here.mean()
    bins = np.searchsorted(HISTOGRAM_EDGES, error[sample.valid], side="right")
    sums.histogram[:] = np.bincount(bins, minlength=len(sums.histogram))
    return sums


def finite_or_null(figures: Mapping[str, float]) -> dict[str, float | None]:
    """Return figures as JSON can hold them: null for NaN and infinity."""
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def averaging_of(dataset: str) -> Averaging:
    """Return how a data set's benchmark averages the end-point error."""
    return "images" if dataset in _BY_IMAGE else "pixels"


def find_regions(sample: FlowSample) -> dict[str, Mask]:
    """Return the masks of all regions that the ground truth and masks of a pair define.

    Without an occlusion mask there are neither `NEED_OCCLUSION` nor `DEPTH`; `occ-out` needs only
    the flow.
    """
    assert sample.flow is not None
    assert sample.valid is not None
    valid = sample.valid
    speed = np.hypot(*np.moveaxis(sample.flow.astype(np.float64), 2, 0))
    regions = {"all": valid}
    for name, (least, below) in _SPEEDS.items():
        regions[name] = valid & (speed >= least) & (speed < below)
    if sample.occluded_out is not None:
        regions["occ-out"] = valid & sample.occluded_out
    if sample.occluded_in is not None and sample.occluded is not None:
        regions["noc"] = valid & ~sample.occluded
        regions["occ"] = valid & sample.occluded
        regions["occ-in"] = valid & sample.occluded_in
        depth = hole_depths(regions["noc"], limit=32)
        for name in ("occ", "occ-in", "occ-out"):
            regions[f"{name}<1"] = regions[name] & (depth < 1)
            regions[f"{name} 1-3"] = regions[name] & (depth >= 1) & (depth <= 3)
            regions[f"{name}>3"] = regions[name] & (depth > 3)
        boundary = torch.from_numpy(boundary_of(sample.occluded))
        distance = distance_to(boundary[None], limit=140)[0].numpy()
        for name, (least, below) in _DISTANCES.items():
            # Counting only visible pixels is our reading: Sintel's own code is not published.
            regions[name] = regions["noc"] & (distance >= least) & (distance < below)
    if sample.unmatched is not None:
        regions["matched"] = valid & ~sample.unmatched
        regions["unmatched"] = valid & sample.unmatched
    if sample.foreground is not None:
        regions["fg"] = valid & sample.foreground
        regions["bg"] = valid & ~sample.foreground
    return regions


def boundary_of(mask: Mask) -> Mask:
    """Return the pixels of a mask that have one of their four neighbours outside it."""
    inner = mask.copy()
    inner[1:] &= mask[:-1]
    inner[:-1] &= mask[1:]
    inner[:, 1:] &= mask[:, :-1]
    inner[:, :-1] &= mask[:, 1:]
    return mask & ~inner


def _divide(total: float, count: float) -> float:
    return float(total / count) if count else float("nan")
