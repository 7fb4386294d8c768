"""The frames and results of a job: arrays on disk, by name."""

import shutil
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from threading import Lock

import numpy as np

from gmaflow.io import atomic_write

_PARSING = Lock()


class ResultFolder:
    """The folder of one job.

    Names of arrays are made by the server; no text from a client becomes part of a path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        """Approximate size on disk."""
        self._counting = Lock()
        path.mkdir()

    def save(self, name: str, array: np.ndarray) -> None:
        # Clients request iterations while the job runs, so files must never be seen half-written.
        buffer = BytesIO()  # numpy's own error would not say that the disk is full
        np.save(buffer, array)
        with atomic_write(self.path / f"{name}.npy") as file:
            file.write(buffer.getbuffer())
        self._count(array.nbytes)

    def load(self, name: str) -> np.ndarray:
        return np.array(self._open(name))

    def load_pixels(self, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return some pixels of an array, without reading all of it."""
        return np.array(self._open(name)[y, x])

    def _open(self, name: str) -> np.ndarray:
        # numpy reads the header of a file with Python's parser, which in Python 3.11 fails if two
        # threads use it at once (python/cpython#106905). Only the header is read under the lock.
        with _PARSING:
            return np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False)

    def has(self, name: str) -> bool:
        return (self.path / f"{name}.npy").exists()

    def make_once(self, name: str, write: Callable[[Path], None]) -> Path:
        """Return the path of a file, which `write` makes on the first request."""
        path = self.path / name
        if not path.exists():
            self.path.stat()
            write(path)
            self._count(path.stat().st_size)
        return path

    def delete(self) -> None:
        """Delete the folder. Files that are being read stay readable."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.bytes = 0

    def _count(self, number: int) -> None:
        with self._counting:
            self.bytes += number


class StoredArrays(Sequence[np.ndarray]):
    """Arrays of a folder, by their place in a list of names; loaded whenever they are asked for."""

    def __init__(self, folder: ResultFolder, names: Sequence[str]) -> None:
        self._folder, self._names = folder, names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, number: int) -> np.ndarray:  # type: ignore[override]  # without slices
        return self._folder.load(self._names[number])
