"""Which files a clip becomes.

An output takes the pairs of one clip in order and writes files: one for the whole clip where the
format can hold it (`ID.ext`), otherwise one for each pair (`ID/PAIR.ext`). Bytes depend on the flow
only: no times, no names of machines.
"""

import shutil
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gmaflow.batch.destination import Destination
from gmaflow.inference import BidirectionalFlow, Flow
from gmaflow.inference.scoring import MotionScorer
from gmaflow.io import (
    CLIP_SUFFIXES,
    FLOW_ENDINGS,
    create_clip,
    ensure_can_encode,
    name_file,
    write_flow,
)
from gmaflow.io.paths import OCCLUSION_ENDING
from gmaflow.io.resumable import Record

KINDS = ("flow", "pictures", "occlusion", "statistics", "score")
FLOW_FORMATS = (*sorted(suffix[1:] for suffix in CLIP_SUFFIXES), *FLOW_ENDINGS)
"""Formats of the flow: a file for each clip, or for each pair."""
ROWS = {
    "statistics": ("mean_length", "median_length", "p95_length", "max_length", "mean_x", "mean_y"),
    "score": ("mean", "median", "p95", "still", "camera", "residual", "moving"),
}
"""Outputs that are columns of the table of clips, and their names."""


@dataclass(frozen=True, eq=False)
class ClipPair:
    """The flow between two consecutive frames of a clip."""

    number: int
    """The first frame's, from 0."""
    name: str
    """The first frame's: its number in a video, or the name of its file."""
    flow: Flow
    both: BidirectionalFlow | None = None


class ClipFiles:
    """The files of one clip. They are kept apart until all are there, so a bad clip leaves none.

    Use it in a `with` block, which closes the files that outputs have opened.

    Attributes:
        open_files: Where outputs enter them.
    """

    def __init__(self, scratch: Path, identifier: str) -> None:
        self.identifier = identifier
        self.open_files = ExitStack()
        self._folder = scratch / "files"
        shutil.rmtree(self._folder, ignore_errors=True)  # of an attempt that ran out of memory

    def __enter__(self) -> "ClipFiles":
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401
        self.open_files.__exit__(*error)

    def path(self, ending: str) -> Path:
        """Return where to write a file; `ending` follows its identifier: .npz, or /000001.flo."""
        path = Path(f"{self._folder}/clip{ending}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def publish(self, destination: Destination) -> dict[str, int]:
        """Finish the files, move them to the destination, and return their bytes by name."""
        self.open_files.close()
        sizes = {}
        for path in sorted(path for path in self._folder.rglob("*") if path.is_file()):
            name = self.identifier + str(path)[len(f"{self._folder}/clip") :]
            sizes[name] = path.stat().st_size
            destination.put(path, name)
        return sizes


class ClipOutput(ABC):
    """One kind of output of a clip."""

    @abstractmethod
    def add(self, pair: ClipPair) -> None:
        """Add the next pair."""

    def entries(self) -> Record:
        """Return what the clip's record says about all pairs."""
        return {}


class PairFiles(ClipOutput):
    """One file for each pair."""

    def __init__(
        self, files: ClipFiles, ending: str, write: Callable[[Path, ClipPair], object]
    ) -> None:
        self._files, self._ending, self._write = files, ending, write

    def add(self, pair: ClipPair) -> None:
        self._write(self._files.path(f"/{name_file(pair.name, self._ending)}"), pair)


class FlowClip(ClipOutput):
    """One file for the flow of the clip: `ID.h5` or `ID.tar`."""

    def __init__(self, files: ClipFiles, suffix: str, bound: float) -> None:
        clip = create_clip(files.path(suffix), bound=bound, key=files.identifier)
        self._clip = files.open_files.enter_context(clip)

    def add(self, pair: ClipPair) -> None:
        self._clip.add(pair.number, pair.flow.array, pair.flow.valid)


class OcclusionArchive(ClipOutput):
    """`ID.occlusion.npz`: occlusion and confidence of every pair.

    `occluded_in/PAIR` and `occluded_out/PAIR` are bool, `confidence/PAIR` is float16.
    """

    def __init__(self, files: ClipFiles) -> None:
        archive = zipfile.ZipFile(files.path(OCCLUSION_ENDING), "w")
        self._archive = files.open_files.enter_context(archive)

    def add(self, pair: ClipPair) -> None:
        assert pair.both is not None
        arrays = {
            "occluded_in": pair.both.occluded_in,
            "occluded_out": pair.both.occluded_out,
            "confidence": pair.both.confidence.astype(np.float16),
        }
        for name, array in arrays.items():
            # A fixed date: the same arrays are the same bytes.
            member = zipfile.ZipInfo(f"{name}/{pair.name}.npy", (1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            with self._archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


class Score(ClipOutput):
    """The motion score of the clip, as by `gmaflow score`."""

    def __init__(self) -> None:
        self._scorer = MotionScorer()
        self._pairs = 0

    def add(self, pair: ClipPair) -> None:
        self._scorer.add(pair.both or pair.flow)
        self._pairs += 1

    def entries(self) -> Record:
        """Return the row; None if every pair is a cut."""
        if not self._pairs:
            return {"score": None}
        scores = asdict(self._scorer.result())
        return {"score": {name: scores[name] for name in ROWS["score"]}}


class Statistics(ClipOutput):
    """A row about the clip: lengths in pixels, averaged over its pairs, and their maximum."""

    def __init__(self) -> None:
        self._pairs: list[dict[str, float]] = []

    def add(self, pair: ClipPair) -> None:
        self._pairs.append(asdict(pair.flow.statistics()))

    def entries(self) -> Record:
        if not self._pairs:
            return {"statistics": None}
        values = {name: [pair[name] for pair in self._pairs] for name in ROWS["statistics"]}
        row = {name: float(np.mean(numbers)) for name, numbers in values.items()}
        return {"statistics": row | {"max_length": max(values["max_length"])}}


def make_outputs(
    files: ClipFiles,
    *,
    kinds: set[str],
    flow_format: str,
    bound: float,
    max_length: float | None,
) -> list[ClipOutput]:
    def flow() -> ClipOutput:
        if f".{flow_format}" in CLIP_SUFFIXES:
            return FlowClip(files, f".{flow_format}", bound)
        return PairFiles(
            files,
            FLOW_ENDINGS[flow_format],
            lambda path, pair: write_flow(path, pair.flow.array, pair.flow.valid, bound=bound),
        )

    def pictures() -> ClipOutput:
        return PairFiles(
            files,
            ".png",
            lambda path, pair: pair.flow.save_picture(path, max_length=max_length),
        )

    factories: dict[str, Callable[[], ClipOutput]] = {
        "flow": flow,
        "pictures": pictures,
        "occlusion": lambda: OcclusionArchive(files),
        "statistics": Statistics,
        "score": Score,
    }
    return [factories[kind]() for kind in KINDS if kind in kinds]


def require_format(flow_format: str) -> None:
    """Refuse a format whose package is missing, before any work."""
    if f".{flow_format}" in CLIP_SUFFIXES:
        create_clip(f"clip.{flow_format}")
    else:
        ensure_can_encode(name_file("0", FLOW_ENDINGS[flow_format]))
