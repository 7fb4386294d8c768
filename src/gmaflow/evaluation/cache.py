"""Results that outlive a run: one line for each pair, written as soon as it is computed.

Results are found by a key made of the weights, the settings and the identity of the pair. Other
weights or settings have other keys, so one folder can hold the results of many runs. That is why
there is no record of the settings as in `gmaflow.io.resumable`, and nothing is ever overwritten.
"""

import json
import os
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from gmaflow.errors import OutputError
from gmaflow.inference import Flow
from gmaflow.io import atomic_write

Values = dict[str, Any]
"""A JSON object."""


class ResultStore:
    """A file of results by key; memory holds only the position of each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, int] = {}
        if path.is_file():
            self._read_places()

    def get(self, key: str) -> Values | None:
        """Return a result, or None if it is not stored."""
        place = self._places.get(key)
        if place is None:
            return None
        with self.path.open("rb") as file:
            file.seek(place)
            values: Values = json.loads(file.readline())
        return values

    def put(self, key: str, values: Values) -> None:
        """Append a result and flush it to the disk.

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
                # A line that an interrupt truncated is skipped; its pair is evaluated again.
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
    """The coarse flow of the previous pair, on disk, so that a warm start survives an interrupt."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, key: str, flow: Flow) -> None:
        """Save the flow of a pair; it replaces the previous one."""
        if flow.coarse is None:
            return
        with atomic_write(self.path) as temporary, temporary.open("wb") as file:
            height, width = flow.array.shape[:2]
            np.savez(file, key=np.array(key), coarse=flow.coarse, size=np.array((height, width)))

    def load(self, key: str) -> Flow | None:
        """Return the flow of a pair if it is the saved one; only its coarse part is filled."""
        try:
            with np.load(self.path, allow_pickle=False) as saved:
                if str(saved["key"]) != key:
                    return None
                coarse: Float32[np.ndarray, "h w 2"] = saved["coarse"]
                height, width = saved["size"].tolist()
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        # A warm start reads only the coarse flow; the fine one only has to have the right size.
        return Flow(np.zeros((height, width, 2), np.float32), coarse=coarse)

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)
