"""Statistics of motion and occlusion, to compare rendered scenes with real data sets.

Pixels are counted into fine bins, so that any number of pairs takes the same memory.
"""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64
from numpy import ndarray

from gmaflow.errors import DatasetError, FlowError, FlowFileError, ImageError
from gmaflow.geometry import hole_depths, leaves_frame
from gmaflow.inference.scoring import LengthHistogram
from gmaflow.io import FlowArrays, read_flow_arrays, read_image
from gmaflow.io.images import check_same_size
from gmaflow.scenes.renderer import SceneRenderer, pair_arrays

log = logging.getLogger(__name__)

MIN_LENGTH = 2.0**-6
"""Shorter motions, in pixels, count as none."""
MAX_FILES = 2000
"""Maximum number of flow files to read; of more, only every n-th is read."""

_OCTAVES = 17
_EDGES = MIN_LENGTH * 2.0 ** (np.arange(2 * _OCTAVES + 1) / 2)
_DEPTH_BINS = 16  # for each cell
_MAX_DEPTH = 128  # limit of measured depths in pixels, and of counted depths in cells
_PAIRS_AT_ONCE = 8


@dataclass(frozen=True, eq=False)
class MotionStatistics:
    """Statistics over all valid pixels of a number of pairs.

    The depth of a hidden pixel is its distance to the nearest visible pixel, in cells of 8 pixels.
    """

    name: str
    pairs: int
    # Motion in pixels; p90, p99 and p999 are percentiles.
    mean: float
    median: float
    p90: float
    p99: float
    p999: float
    largest: float
    # Shares of pixels: those that do not move, are hidden inside the second frame (None if that is
    # unknown), or leave the frame.
    still: float
    occluded_in: float | None
    occluded_out: float
    # Depth of the pixels of `occluded_in` (None if there are none), and the shares of them that are
    # deeper than 1 and 3 cells.
    hole_depth: float | None
    hole_depth_p90: float | None
    holes_over_1: float | None
    holes_over_3: float | None
    curve: Float[np.ndarray, " points"]  # share of pixels in each half octave, from 1/64 px on

    @staticmethod
    def curve_places() -> Float[np.ndarray, " points"]:
        """The centre of each half octave of `curve`, in pixels."""
        return _EDGES[:-1] * 2**0.25

    def as_json(self) -> dict[str, object]:
        """Plain values; the curve with its places."""
        curve = zip(self.curve_places().tolist(), self.curve.tolist(), strict=True)
        points = [[round(place, 4), round(share, 6)] for place, share in curve]
        return asdict(self) | {"curve": points}


class MotionTally:
    """Collects statistics pair by pair."""

    def __init__(self) -> None:
        self.pairs = 0
        self._pixels = 0
        self._lengths = LengthHistogram()
        self._sum = 0.0
        self._largest = 0.0
        self._out = 0
        self._pixels_with_in = 0
        self._depths: Int64[np.ndarray, " depths"] = np.zeros(_DEPTH_BINS * _MAX_DEPTH, np.int64)
        self._depth_sum = 0.0

    def add(
        self,
        flow: Float32[np.ndarray, "h w 2"],
        valid: Bool[np.ndarray, "h w"],
        occluded: Bool[np.ndarray, "h w"] | None = None,
        *,
        scale: float = 1.0,
    ) -> None:
        """Count one pair; `scale` multiplies lengths, as if the frame were that much larger."""
        lengths = np.linalg.norm(flow[valid].astype(np.float64), axis=1) * scale
        in_frame = valid & ~leaves_frame(flow)
        self.pairs += 1
        self._pixels += len(lengths)
        self._lengths.add(lengths)
        self._sum += float(lengths.sum())
        self._largest = max(self._largest, float(lengths.max(initial=0)))
        self._out += len(lengths) - int(in_frame.sum())
        if occluded is not None:
            self._pixels_with_in += len(lengths)
            self._add_holes(in_frame & occluded, in_frame & ~occluded, scale)

    def _add_holes(
        self, hidden: Bool[np.ndarray, "h w"], visible: Bool[np.ndarray, "h w"], scale: float
    ) -> None:
        cells = np.minimum(hole_depths(visible, limit=_MAX_DEPTH)[hidden] * scale, _MAX_DEPTH)
        self._depth_sum += float(cells.sum())
        # Bin k holds depths above k and up to k + 1 sixteenths.
        bins = np.ceil(cells * _DEPTH_BINS).astype(np.int64) - 1
        self._depths += np.bincount(bins, minlength=len(self._depths))

    def statistics(self, name: str) -> MotionStatistics:
        """Return the statistics of all pairs so far."""
        pixels = self._pixels
        if pixels == 0:
            raise FlowError(f"{name}: no pixel has a known flow")
        shorter = self._lengths.below(_EDGES)
        known_in = self._pixels_with_in
        in_holes = int(self._depths.sum())
        deeper = in_holes - np.cumsum(self._depths)  # than the upper edge of each bin
        return MotionStatistics(
            name=name,
            pairs=self.pairs,
            mean=self._sum / pixels,
            median=self._quantile(0.5),
            p90=self._quantile(0.9),
            p99=self._quantile(0.99),
            p999=self._quantile(0.999),
            largest=self._largest,
            still=int(shorter[0]) / pixels,
            occluded_in=in_holes / known_in if known_in else None,
            occluded_out=self._out / pixels,
            hole_depth=self._depth_sum / in_holes if in_holes else None,
            hole_depth_p90=(
                (int(np.argmax(deeper <= 0.1 * in_holes)) + 1) / _DEPTH_BINS if in_holes else None
            ),
            holes_over_1=float(deeper[_DEPTH_BINS - 1]) / in_holes if in_holes else None,
            holes_over_3=float(deeper[3 * _DEPTH_BINS - 1]) / in_holes if in_holes else None,
            curve=np.diff(shorter) / pixels,
        )

    def _quantile(self, share: float) -> float:
        length = min(self._lengths.quantile(share), self._largest)
        return length if length >= MIN_LENGTH else 0.0


def rendered_statistics(
    renderer: SceneRenderer,
    *,
    start: int = 0,
    count: int,
    scale: float = 1.0,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> MotionStatistics:
    """Render pairs and return their statistics, named after the preset.

    `scale` multiplies lengths: scenes scale with the frame, so small frames give statistics of
    large ones. `progress` is called with the number of finished pairs and their total.
    """
    tally = MotionTally()
    for begin in range(start, start + count, _PAIRS_AT_ONCE):
        batch = renderer.render(begin, min(_PAIRS_AT_ONCE, start + count - begin))
        for pair in pair_arrays(batch):
            hidden = pair.occluded_in | pair.occluded_out
            tally.add(pair.flow, pair.valid, hidden, scale=scale)
        progress(tally.pairs, count)
    return tally.statistics(renderer.preset)


@dataclass(frozen=True)
class TruthFile:
    """A file with true flow."""

    flow: Path
    occlusion: Path | None = None  # a mask of occluded pixels (Sintel)
    visible_flow: Path | None = None  # the flow of visible pixels only (`flow_noc` of KITTI)

    def read(self) -> tuple[FlowArrays, Bool[ndarray, "h w"] | None]:
        """Read the flow and the mask of occluded pixels; the mask is None if unknown."""
        flow = read_flow_arrays(self.flow)
        if self.flow.suffix == ".flo5":
            # The flow of Spring has twice the resolution of its frames.
            flow = FlowArrays(flow.array[::2, ::2], flow.valid[::2, ::2])
        if self.occlusion is not None:
            mask = read_image(self.occlusion).max(axis=2) > 0
        elif self.visible_flow is not None:
            mask = ~read_flow_arrays(self.visible_flow).valid
        else:
            return flow, None
        check_same_size(
            {str(self.flow): flow.valid, "its mask": mask},
            error=FlowFileError,
            remedy="download both again",
        )
        return flow, mask


def find_truths(root: Path) -> list[TruthFile]:
    """Find flow files below a folder.

    These are .flo, .flo5, .pfm below a folder `optical_flow`, and .png in the folders `flow_occ`
    and `flow_noc` of KITTI.
    """
    if not root.is_dir():
        raise DatasetError(f"{root} is not a folder; give a folder with true flow")
    truths = [t for path in sorted(root.rglob("*")) if (t := _as_truth(path)) is not None]
    if not truths:
        raise DatasetError(
            f"{root} holds no true flow; supported are .flo, .flo5, .pfm below optical_flow, and "
            ".png in flow_occ or flow_noc"
        )
    return truths


def real_statistics(
    root: Path, *, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> MotionStatistics:
    """Return statistics of the true flow below a folder, named after the folder.

    Files that cannot be read are logged and skipped. `progress` is called with the number of
    finished files and their total.
    """
    truths = find_truths(root)
    truths = truths[:: -(-len(truths) // MAX_FILES)]
    tally = MotionTally()
    for done, truth in enumerate(truths, start=1):
        try:
            flow, occluded = truth.read()
        except (FlowFileError, ImageError) as err:
            log.warning("skipped: %s", err)
        else:
            tally.add(flow.array, flow.valid, occluded)
        progress(done, len(truths))
    if tally.pairs == 0:
        raise DatasetError(f"{root}: none of {len(truths)} flow files can be read")
    return tally.statistics(root.resolve().name)


def _as_truth(path: Path) -> TruthFile | None:
    suffix, folder = path.suffix.lower(), path.parent
    if path.name.startswith(".") or not path.is_file():
        return None
    if suffix == ".flo":
        mask = folder.parent.parent / "occlusions" / folder.name / f"{path.stem}.png"
        in_sintel = folder.parent.name == "flow" and mask.is_file()
        return TruthFile(path, occlusion=mask if in_sintel else None)
    if suffix == ".png" and folder.name == "flow_occ":
        visible = folder.parent / "flow_noc" / path.name
        return TruthFile(path, visible_flow=visible if visible.is_file() else None)
    if suffix == ".png" and folder.name == "flow_noc":
        full_flow = folder.parent / "flow_occ" / path.name
        return None if full_flow.is_file() else TruthFile(path)
    if suffix == ".flo5" or (suffix == ".pfm" and "optical_flow" in path.parts):
        return TruthFile(path)
    return None
