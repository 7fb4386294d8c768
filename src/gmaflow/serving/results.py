"""What a job found out, on disk: memory stays free however many results are kept."""

import shutil
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
    """Which pixels of the first frame the second one shows."""

    code: UInt8[np.ndarray, "h w"]
    """0 visible, 1 hidden in the frame, 2 out of it."""
    confidence: Float32[np.ndarray, "h w"]

    @property
    def occlusion(self) -> tuple[Bool[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]:
        """Hidden in the frame, and out of it."""
        return self.code == 1, self.code == 2


class ResultFolder:
    """The frames and results of one job. Models are numbered, so that no name becomes a path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        """How much of the disk it takes, about."""
        path.mkdir()

    def save_frame(self, number: int, image: UInt8[np.ndarray, "h w 3"]) -> None:
        """Keep a frame, at the size that is worked on."""
        self._save(self.path / f"frame-{number:04d}.npy", image)

    def frame(self, number: int) -> UInt8[np.ndarray, "h w 3"]:
        """Return a frame."""
        return load(self.path / f"frame-{number:04d}.npy")

    def save_truth(self, flow: Float32[np.ndarray, "h w 2"]) -> None:
        """Keep what truly happened, where it is known."""
        self._save(self.path / "truth.npy", flow)

    def truth(self) -> Float32[np.ndarray, "h w 2"]:
        """Return what truly happened."""
        return load(self.path / "truth.npy")

    def save_iteration(
        self, pair: int, model: int, number: int, flow: Float32[np.ndarray, "h w 2"]
    ) -> None:
        """Keep the flow after some refinements, to look at: half precision is enough."""
        self._save(self._iteration(pair, model, number), flow.astype(np.float16))

    def has_iteration(self, pair: int, model: int, number: int) -> bool:
        """Tell whether the flow after some refinements is there, as it is while a job runs."""
        return self._iteration(pair, model, number).exists()

    def iteration(self, pair: int, model: int, number: int) -> Float32[np.ndarray, "h w 2"]:
        """Return the flow after some refinements."""
        return load(self._iteration(pair, model, number)).astype(np.float32)

    def save(self, pair: int, model: int, found: Flow | BidirectionalFlow) -> None:
        """Keep what was found out about a pair."""
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
        """Return the folder of a pair's results by a model."""
        folder = self.path / f"pair-{pair:04d}-{model}"
        folder.mkdir(exist_ok=True)
        return folder

    def _iteration(self, pair: int, model: int, number: int) -> Path:
        return self.place(pair, model) / f"iteration-{number:02d}.npy"

    def delete(self) -> None:
        """Free the disk. Whoever reads a file at this moment still gets it whole."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _save(self, path: Path, array: np.ndarray) -> None:
        # Iterations are looked at while the job runs, so none may be seen half-written.
        with atomic_write(path) as temporary:
            np.save(temporary, array)
        self.bytes += array.nbytes


def load(path: Path) -> np.ndarray:
    """Read an array back; nothing is unpickled."""
    # Requests are answered by many threads, and numpy reads a file's head with Python's parser. In
    # Python 3.11 that fails where two threads parse at once (python/cpython#106905).
    with _PARSING:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.array(array)
