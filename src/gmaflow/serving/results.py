"""The frames and results of a job, on disk."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from gmaflow.inference import BidirectionalFlow, Flow
from gmaflow.io import atomic_write

_PARSING = Lock()


@dataclass(frozen=True, eq=False)
class Visibility:
    """Which pixels of the first frame are visible in the second."""

    code: UInt8[np.ndarray, "h w"]
    """0 visible, 1 occluded, 2 out of the frame."""
    confidence: Float32[np.ndarray, "h w"]

    @property
    def occlusion(self) -> tuple[Bool[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]:
        """Masks of the occluded pixels and of those out of the frame."""
        return self.code == 1, self.code == 2


class ResultFolder:
    """A folder with the frames and results of one job.

    Models are numbered, so that no name from a client becomes part of a path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        """Approximate size on disk."""
        self._counting = Lock()
        path.mkdir()

    def save_frame(self, number: int, image: UInt8[np.ndarray, "h w 3"]) -> None:
        """Save a frame at the working size."""
        self._save(self.path / f"frame-{number:04d}.npy", image)

    def frame(self, number: int) -> UInt8[np.ndarray, "h w 3"]:
        """Return a frame."""
        return load(self.path / f"frame-{number:04d}.npy")

    def save_truth(self, flow: Float32[np.ndarray, "h w 2"]) -> None:
        """Save the true flow."""
        self._save(self.path / "truth.npy", flow)

    def truth(self) -> Float32[np.ndarray, "h w 2"]:
        """Return the true flow."""
        return load(self.path / "truth.npy")

    def save_iteration(
        self, pair: int, model: int, number: int, flow: Float32[np.ndarray, "h w 2"]
    ) -> None:
        """Save the flow after a refinement. Half precision is enough for pictures."""
        self._save(self._iteration(pair, model, number), flow.astype(np.float16))

    def has_iteration(self, pair: int, model: int, number: int) -> bool:
        """Return whether the flow after a refinement was saved."""
        return self._iteration(pair, model, number).exists()

    def iteration(self, pair: int, model: int, number: int) -> Float32[np.ndarray, "h w 2"]:
        """Return the flow after a refinement."""
        return load(self._iteration(pair, model, number)).astype(np.float32)

    def save(self, pair: int, model: int, found: Flow | BidirectionalFlow) -> None:
        """Save the result of a pair."""
        place = self.place(pair, model)
        if isinstance(found, BidirectionalFlow):
            code = found.occluded_in + 2 * found.occluded_out.astype(np.uint8)
            self._save(place / "occlusion.npy", code)
            self._save(place / "confidence.npy", found.confidence.astype(np.float16))
            found = found.forward
        self._save(place / "flow.npy", found.array)

    def flow(self, pair: int, model: int) -> Float32[np.ndarray, "h w 2"]:
        """Return the final flow."""
        return load(self.place(pair, model) / "flow.npy")

    def visibility(self, pair: int, model: int) -> Visibility:
        """Return occlusion and confidence."""
        place = self.place(pair, model)
        confidence = load(place / "confidence.npy").astype(np.float32)
        return Visibility(load(place / "occlusion.npy"), confidence)

    def place(self, pair: int, model: int) -> Path:
        """Return the subfolder for the results of a pair and model."""
        folder = self.path / f"pair-{pair:04d}-{model}"
        folder.mkdir(exist_ok=True)
        return folder

    def make_once(self, path: Path, write: Callable[[Path], None]) -> Path:
        """Return a file of this folder, which `write` makes on the first request."""
        if not path.exists():
            write(path)
            self._count(path.stat().st_size)
        return path

    def delete(self) -> None:
        """Delete the folder. Files that are being read stay readable."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.bytes = 0

    def _iteration(self, pair: int, model: int, number: int) -> Path:
        return self.place(pair, model) / f"iteration-{number:02d}.npy"

    def _save(self, path: Path, array: np.ndarray) -> None:
        # Clients request iterations while the job runs, so files must never be seen half-written.
        with atomic_write(path) as temporary:
            np.save(temporary, array)
        self._count(array.nbytes)

    def _count(self, number: int) -> None:
        with self._counting:
            self.bytes += number


def load(path: Path) -> np.ndarray:
    """Read an array without unpickling."""
    # numpy reads the header of a file with Python's parser, which in Python 3.11 fails if two
    # threads use it at once (python/cpython#106905). Only the header is read under the lock.
    with _PARSING:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.array(array)
