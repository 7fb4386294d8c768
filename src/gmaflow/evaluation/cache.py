"""Results that outlive a run: one line for each pair, written as soon as it is judged.

A result belongs to a key made of the weights, the settings and the identity of the pair. Whoever
changes one of them asks for another key; nothing is ever overwritten, and a line that an interrupt
tore is skipped.
"""

import json
import os
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from gmaflow.errors import OutputError
from gmaflow.evaluation.metrics import ErrorSums
from gmaflow.inference import Flow
from gmaflow.io import atomic_write

Values = dict[str, Any]
"""What JSON holds."""


@dataclass(frozen=True, eq=False)
class StoredResult:
    """What is kept of a pair.

    Attributes:
        sums: its errors.
        size: height and width.
        seconds: how long the estimate took.
    """

    sums: ErrorSums
    size: tuple[int, int]
    seconds: float

    def as_json(self) -> Values:
        """Return plain values, from which `from_json` makes the same result."""
        return {"size": self.size, "seconds": self.seconds, "sums": self.sums.as_json()}

    @classmethod
    def from_json(cls, values: Values) -> "StoredResult":
        """Undo `as_json`."""
        height, width = values["size"]
        return cls(ErrorSums.from_json(values["sums"]), (height, width), values["seconds"])


class ResultStore:
    """Results of pairs in a file, found by key; in memory there is only where each lies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, int] = {}
        if path.is_file():
            self._read_places()

    def get(self, key: str) -> Values | None:
        """Return a result, or None if there is none yet."""
        place = self._places.get(key)
        if place is None:
            return None
        with self.path.open("rb") as file:
            file.seek(place)
            values: Values = json.loads(file.readline())
        return values

    def put(self, key: str, values: Values) -> None:
        """Append a result and see that it reaches the disk.

        Raises:
            OutputError: the file cannot be written.
        """
        line = json.dumps({"key": key, **values}).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                if not self._ends_with_newline():
                    file.write(b"\n")
                place = file.tell()
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as err:
            raise OutputError(f"{self.path} cannot be written: {err.strerror}") from err
        self._places[key] = place

    def _read_places(self) -> None:
        place = 0
        with self.path.open("rb") as file:
            for line in file:
                # A line that an interrupt tore is passed over: that pair is judged again.
                with suppress(ValueError, KeyError, TypeError):
                    self._places[json.loads(line)["key"]] = place
                place += len(line)

    def _ends_with_newline(self) -> bool:
        if not self.path.is_file() or self.path.stat().st_size == 0:
            return True
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


class LastFlow:
    """The coarse flow of the pair before, on disk, so that a warm start survives an interrupt."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, key: str, flow: Flow) -> None:
        """Keep the flow of a pair, in place of the one before."""
        if flow.coarse is None:
            return
        with atomic_write(self.path) as temporary, temporary.open("wb") as file:
            height, width = flow.array.shape[:2]
            np.savez(file, key=np.array(key), coarse=flow.coarse, size=np.array((height, width)))

    def load(self, key: str) -> Flow | None:
        """Return the flow of a pair if it is the one that was kept; its fine part is empty."""
        try:
            with np.load(self.path, allow_pickle=False) as kept:
                if str(kept["key"]) != key:
                    return None
                coarse: Float32[np.ndarray, "h w 2"] = kept["coarse"]
                height, width = kept["size"].tolist()
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        # A warm start reads the coarse flow alone; the fine one only has to have its size.
        return Flow(np.zeros((height, width, 2), np.float32), coarse=coarse)

    def remove(self) -> None:
        """Forget it."""
        self.path.unlink(missing_ok=True)
