"""Results that outlive a run: one line for each pair, written as soon as it is computed.

Results are found by a key made of the weights, the settings and the identity of the pair. Other
weights or settings have other keys, so one folder can hold the results of many runs. That is why
there is no record of the settings as in `gmaflow.io.resumable`, and nothing is ever overwritten.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from gmaflow.errors import OutputError

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
