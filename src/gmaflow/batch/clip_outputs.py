"""Which files a clip becomes.

An output takes the pairs of one clip in order and writes files: one for the whole clip where the
format can hold it (`ID.ext`), otherwise one for each pair (`ID/PAIR.ext`). Bytes depend on the flow
only: no times, no names of machines.
"""

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from gmaflow.batch.destination import Destination
from gmaflow.inference import BidirectionalFlow, Flow
from gmaflow.io import write_flow

KINDS = ("flow", "pictures", "occlusion", "statistics")
ROWS = {
    "statistics": ("mean_length", "median_length", "p95_length", "max_length", "mean_x", "mean_y"),
}
"""Outputs that are columns of the table of clips, and their names."""
Record = dict[str, Any]


@dataclass(frozen=True, eq=False)
class ClipPair:
    """Two consecutive frames of a clip and the flow between them."""

    name: str
    """The first frame's: its number in a video, or the name of its file."""
    image1: UInt8[np.ndarray, "h w 3"]
    image2: UInt8[np.ndarray, "h w 3"]
    flow: Flow
    both: BidirectionalFlow | None = None


class ClipFiles:
    """The files of one clip. They are kept apart until all are there, so a bad clip leaves none."""

    def __init__(self, scratch: Path, identifier: str) -> None:
        self._scratch, self._identifier = scratch, identifier
        self._files: dict[str, Path] = {}

    @contextmanager
    def write(self, ending: str) -> Iterator[Path]:
        """Give a path to write to.

        Args:
            ending: What follows the identifier: `.npz`, or `/000001.flo`.
        """
        # The same suffix: many writers choose their format by it.
        path = self._scratch / f"clip{ending.replace('/', '-')}"
        yield path
        self._files[self._identifier + ending] = path

    def publish(self, destination: Destination) -> dict[str, int]:
        """Move the files to the destination, and return their bytes by name."""
        sizes = {name: path.stat().st_size for name, path in self._files.items()}
        for name, path in self._files.items():
            destination.put(path, name)
        return sizes


class ClipOutput(ABC):
    """What is written of a clip."""

    @abstractmethod
    def add(self, pair: ClipPair) -> None:
        """Take the next pair."""

    def close(self) -> Record:
        """Finish the files, and return what the clip's record says about them."""
        return {}


class PairFiles(ClipOutput):
    """One file for each pair."""

    def __init__(
        self, files: ClipFiles, ending: str, write: Callable[[Path, ClipPair], object]
    ) -> None:
        self._files, self._ending, self._write = files, ending, write

    def add(self, pair: ClipPair) -> None:
        """Write the pair's file."""
        with self._files.write(f"/{pair.name}{self._ending}") as path:
            self._write(path, pair)


class OcclusionArchive(ClipOutput):
    """`ID.occlusion.npz`: occlusion and confidence of every pair.

    `occluded_in/PAIR` and `occluded_out/PAIR` are bool, `confidence/PAIR` is float16.
    """

    def __init__(self, files: ClipFiles) -> None:
        self._exit = ExitStack()
        path = self._exit.enter_context(files.write(".occlusion.npz"))
        self._archive = self._exit.enter_context(zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED))

    def add(self, pair: ClipPair) -> None:
        """Add the pair's arrays."""
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

    def close(self) -> Record:
        """Finish the archive."""
        self._exit.close()
        return {}


class Statistics(ClipOutput):
    """A row about the clip: lengths in pixels, averaged over its pairs, and their maximum."""

    def __init__(self) -> None:
        self._pairs: list[dict[str, float]] = []

    def add(self, pair: ClipPair) -> None:
        """Take the pair's statistics."""
        self._pairs.append(asdict(pair.flow.statistics()))

    def close(self) -> Record:
        """Return the row."""
        if not self._pairs:
            return {"statistics": None}
        values = {name: [pair[name] for pair in self._pairs] for name in ROWS["statistics"]}
        row = {name: float(np.mean(found)) for name, found in values.items()}
        return {"statistics": row | {"max_length": max(values["max_length"])}}


def _flow_file(path: Path, pair: ClipPair) -> None:
    write_flow(path, pair.flow.array, pair.flow.valid)


FlowWriter = Callable[[ClipFiles], ClipOutput]


def _per_pair(ending: str) -> FlowWriter:
    return lambda files: PairFiles(files, ending, _flow_file)


FLOW_FORMATS: Mapping[str, FlowWriter] = {
    **{word: _per_pair(f".{word}") for word in ("flo", "pfm", "npy", "npz", "flo5", "exr")},
    "kitti": _per_pair(".kitti.png"),
}
"""Formats of the flow, and how a clip is written in each."""


def make_outputs(
    files: ClipFiles, *, kinds: set[str], flow_format: str, max_length: float | None
) -> list[ClipOutput]:
    """Return the outputs of a clip."""
    made: dict[str, Callable[[], ClipOutput]] = {
        "flow": lambda: FLOW_FORMATS[flow_format](files),
        "pictures": lambda: PairFiles(
            files,
            ".png",
            lambda path, pair: pair.flow.save_picture(path, max_length=max_length),
        ),
        "occlusion": lambda: OcclusionArchive(files),
        "statistics": Statistics,
    }
    return [made[kind]() for kind in KINDS if kind in kinds]
