"""Errors as sums that add up: those of two halves of the data are those of the whole.

Legend: r regions, c columns, k bins of the histogram.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64

from gmaflow.data import FlowSample
from gmaflow.errors import DatasetError
from gmaflow.evaluation.regions import REGIONS, find_regions
from gmaflow.io.sizes import check_same_size

Averaging = Literal["pixels", "images"]
"""`pixels`: all pixels of all pairs count alike (Sintel). `images`: the mean of the pairs' means
(KITTI). Shares of outliers are over all pixels in either case."""

HISTOGRAM_EDGES = (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100)
"""Errors in pixels between which the histogram counts; below the first and above the last too."""

_ROWS = {name: row for row, name in enumerate(REGIONS)}
_BY_IMAGE = ("kitti-2012", "kitti-2015", "hd1k", "middlebury")


class Column(IntEnum):
    """What is summed up for each region."""

    TOLD = 0
    """Pairs for which the region can be told."""
    IMAGES = 1
    """Pairs that have pixels there."""
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
    """Errors of any number of pairs; `+` joins them."""

    table: Float64[np.ndarray, "r c"]
    histogram: Float64[np.ndarray, " k"]

    @classmethod
    def none(cls) -> "ErrorSums":
        """Return the sums over no pair at all."""
        return cls(np.zeros((len(REGIONS), len(Column))), np.zeros(len(HISTOGRAM_EDGES) + 1))

    def __add__(self, other: "ErrorSums") -> "ErrorSums":
        return ErrorSums(self.table + other.table, self.histogram + other.histogram)

    def figures(self, averaging: Averaging) -> dict[str, "Figures"]:
        """Return the figures of each region that could be told of any pair."""
        return {
            name: Figures.from_sums(self.table[row], averaging)
            for name, row in _ROWS.items()
            if self.table[row, Column.TOLD]
        }

    def told(self, region: str) -> int:
        """Return for how many pairs a region could be told."""
        return int(self.table[_ROWS[region], Column.TOLD])

    def as_json(self) -> dict[str, list[float]]:
        """Return the sums as plain values, from which `from_json` makes the same ones."""
        rows = {name: self.table[row].tolist() for name, row in _ROWS.items()}
        told = {name: row for name, row in rows.items() if row[Column.TOLD]}
        return {**told, "histogram": self.histogram.tolist()}

    @classmethod
    def from_json(cls, values: dict[str, list[float]]) -> "ErrorSums":
        """Undo `as_json`."""
        sums = cls.none()
        for name, row in _ROWS.items():
            if name in values:
                sums.table[row] = values[name]
        sums.histogram[:] = values["histogram"]
        return sums


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What is reported for a region; NaN where it has no pixel. Shares are in percent."""

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
        """Divide the sums of a region."""
        pixels, images = row[Column.PIXELS], row[Column.IMAGES]
        by_image = (row[Column.MEANS], images)
        total, count = by_image if averaging == "images" else (row[Column.ERROR], pixels)
        px1, px3, px5, fl = (
            100 * _divide(row[column], pixels)
            for column in (Column.OVER_1, Column.OVER_3, Column.OVER_5, Column.FL)
        )
        return cls(
            epe=_divide(total, count),
            px1=px1,
            px3=px3,
            px5=px5,
            fl=fl,
            pixels=int(pixels),
            images=int(images),
        )


def measure(estimate: Float32[np.ndarray, "h w 2"], sample: FlowSample) -> ErrorSums:
    """Sum up the errors of an estimate, region by region.

    Sintel's mask of doubtful truth is not looked at: the benchmark and the paper count what it
    marks.

    Raises:
        DatasetError: the sample has no truth, or is of another size, or the estimate is not finite.
    """
    if sample.flow is None or sample.valid is None:
        raise DatasetError("a pair without truth cannot be judged; `gmaflow submit` is for those")
    check_same_size(
        {"the estimate": estimate, "the truth": sample.flow},
        error=DatasetError,
        remedy="they must be of one size",
    )
    if not np.isfinite(estimate[sample.valid]).all():
        raise DatasetError("the estimate is not finite everywhere; a motion is a number of pixels")
    truth = sample.flow.astype(np.float64)
    error = np.hypot(*np.moveaxis(estimate - truth, 2, 0))
    outlier = (error > 3) & (error > 0.05 * np.hypot(*np.moveaxis(truth, 2, 0)))
    sums = ErrorSums.none()
    for name, mask in find_regions(sample).items():
        here = error[mask]
        row = sums.table[_ROWS[name]]
        row[Column.TOLD] = 1
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


def averaging_of(dataset: str) -> Averaging:
    """Return how a benchmark averages the end-point error."""
    return "images" if dataset in _BY_IMAGE else "pixels"


def _divide(total: float, count: float) -> float:
    return float(total / count) if count else float("nan")
