"""`failures.jsonl`: a row for each clip that could not be done, and why."""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from gmaflow.batch.destination import SHARDS, Destination, FinishedClips, HashSet
from gmaflow.batch.manifest import Clip
from gmaflow.batch.worker import ClipResult

WHOLE = "failures.jsonl"
UPLOAD_EVERY = 60.0
"""Seconds between uploads to a store, which cannot append."""


class FailureLog:
    """The failures of a run, appended to those of earlier runs.

    A folder has every row at once. A store has all rows a minute later, and at the end of the run.
    """

    def __init__(self, destination: Destination, name: str) -> None:
        self._destination, self._name = destination, name
        self._file: IO[str] | None = None
        self._folder: str | None = None
        self._uploaded = time.monotonic()

    def read_earlier(self, finished: FinishedClips) -> HashSet:
        """Return the keys of clips that failed before, in whichever shard, and still do."""
        failed = HashSet()
        for name in (WHOLE, *self._names_of_shards()):
            for row in read_rows(self._destination.read(name)):
                key = Clip.from_row(row).key
                if key not in finished:
                    failed.add(key)
        return failed

    def _names_of_shards(self) -> list[str]:
        names = [f"{SHARDS}/{name}" for name in self._destination.names(SHARDS)]
        return [name for name in names if "/failures-" in name]

    def add(self, result: ClipResult) -> None:
        """Add a row."""
        row = {**result.clip.as_row(), "reason": result.error}
        file = self._open()
        file.write(json.dumps(row) + "\n")
        file.flush()
        if self._destination.is_remote and time.monotonic() - self._uploaded > UPLOAD_EVERY:
            self._destination.write(self._name, Path(file.name).read_bytes())
            self._uploaded = time.monotonic()

    def close(self, is_done: Callable[[str], bool]) -> None:
        """Leave the last row of each clip that is still not done; without any, no file changes.

        The list of a run over everything has the rows of shards, too.
        """
        text = self._destination.read(self._name)
        if self._file is not None:
            self._file.close()
            text = Path(self._file.name).read_bytes()
        shards = self._names_of_shards() if self._name == WHOLE else []
        texts = [*(self._destination.read(name) for name in shards), text]
        rows = {Clip.from_row(row).key: row for part in texts for row in read_rows(part)}
        kept = "".join(json.dumps(row) + "\n" for key, row in rows.items() if not is_done(key))
        if kept.encode() != (text or b"") or (text and self._destination.is_remote):
            self._destination.write(self._name, kept.encode())
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _open(self) -> IO[str]:
        if self._file is None:
            path = Path(self._destination.path_of(self._name))
            if self._destination.is_remote:
                self._folder = tempfile.mkdtemp(prefix="gmaflow-")
                path = Path(self._folder) / WHOLE
                path.write_bytes(self._destination.read(self._name) or b"")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
        return self._file


def read_rows(text: bytes | None) -> Iterator[dict[str, Any]]:
    """Yield the rows; a last row that was cut off by a crash is left out."""
    for line in (text or b"").decode("utf-8", "replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and "id" in row and "source" in row:
            yield row
