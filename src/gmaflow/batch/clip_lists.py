"""Lists of a job's clips: the table of those that are done, and `failures.jsonl`.

The table has a row for each clip and is written in pieces: CSV, or Parquet (extra `parquet`). A
failure is a row with the reason.
"""

import csv
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import IO, Any

from gmaflow.batch.clip_outputs import ROWS
from gmaflow.batch.destination import SHARDS, Destination, HashSet
from gmaflow.batch.manifest import Clip
from gmaflow.batch.worker import ClipResult
from gmaflow.errors import OutputError, import_extra, os_reason
from gmaflow.io.resumable import read_json_lines

CLIP_COLUMNS = {
    "id": "string",
    "source": "string",
    "second": "string",
    "start": "float64",
    "end": "float64",
    "height": "int64",
    "width": "int64",
    "pairs": "int64",
    "cuts": "int64",
}
"""Columns of every table, with their types. Those of outputs are all float64."""
Rows = list[dict[str, Any]]
ALL_FAILURES = "failures.jsonl"
UPLOAD_EVERY = 60.0
"""Seconds between uploads to a store, which cannot append."""
CONTINUES = "finished clips are kept, and the same command continues when this is solved"


@contextmanager
def explaining_write_errors(path: str | Path) -> Iterator[None]:
    """Say in one sentence that a list of the job cannot be written."""
    try:
        yield
    except OSError as err:
        raise OutputError(f"{path} cannot be written: {os_reason(err)}; {CONTINUES}") from err


def require_table(kind: str) -> None:
    """Refuse a format whose package is missing, before any work."""
    if kind == "parquet":
        import_extra("pyarrow.parquet", "--table parquet", extra="parquet")


@contextmanager
def table_writer(path: Path, names: Sequence[str]) -> Iterator[Callable[[Rows], None]]:
    """Yield a function that appends rows to a new table; the suffix picks the format.

    `names` are columns in addition to those of every table.
    """
    columns = {**CLIP_COLUMNS, **dict.fromkeys(names, "float64")}
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in columns.items()])
        with pq.ParquetWriter(path, schema) as parquet:
            yield lambda rows: parquet.write_table(pa.Table.from_pylist(rows, schema=schema))
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        yield writer.writerows


def count_rows(table: bytes, kind: str) -> int:
    """Return how many clips a table has; 0 if it cannot be read."""
    if kind == "parquet":
        import pyarrow.parquet as pq

        try:
            return int(pq.read_metadata(BytesIO(table)).num_rows)
        except (ValueError, OSError):  # it was cut off by a crash
            return 0
    lines = StringIO(table.decode("utf-8", "replace"), newline="")
    try:
        return max(0, sum(1 for _ in csv.reader(lines)) - 1)
    except csv.Error:
        return 0


def table_row(data: bytes) -> dict[str, Any]:
    """Return the row of a clip's record."""
    record = json.loads(data)
    row = {name: record.get(name) for name in CLIP_COLUMNS}
    for name in ("source", "second"):
        if row[name]:  # file names may hold bytes that are not text
            row[name] = row[name].encode(errors="backslashreplace").decode()
    for kind in ROWS:
        row |= record.get(kind) or {}
    return row | {"cuts": len(record["cuts"])}


class FailureLog:
    """The failures of a run, appended to those of earlier runs.

    A folder has every row at once. A store has all rows a minute later, and at the end of the run.
    """

    def __init__(self, destination: Destination, name: str) -> None:
        self._destination, self._name = destination, name
        self._file: IO[str] | None = None
        self._folder: str | None = None
        self._uploaded = time.monotonic()

    def read_earlier(self) -> HashSet:
        """Return the keys of clips that failed before, in whichever shard."""
        failed = HashSet()
        for name in (ALL_FAILURES, *self._names_of_shards()):
            for row in read_rows(self._destination.read(name)):
                failed.add(Clip.from_row(row).key)
        return failed

    def _names_of_shards(self) -> list[str]:
        names = [f"{SHARDS}/{name}" for name in self._destination.names(SHARDS)]
        return [name for name in names if "/failures-" in name]

    def add(self, result: ClipResult) -> None:
        """Add a row.

        Raises:
            OutputError: The list cannot be written.
        """
        row = {**result.clip.as_row(), "reason": result.error}
        file = self._open()
        with explaining_write_errors(file.name):
            file.write(json.dumps(row) + "\n")
            file.flush()
        if self._destination.is_remote and time.monotonic() - self._uploaded > UPLOAD_EVERY:
            self._destination.write(self._name, Path(file.name).read_bytes())
            self._uploaded = time.monotonic()

    def close(self, is_done: Callable[[str], bool]) -> None:
        """Keep the last row of each clip that is still not done; without any, no file changes.

        The list of a run without shards includes the rows of all shards.
        """
        is_whole = True
        try:
            if self._file is not None:
                self._file.close()
        except OSError:  # a full disk, which `add` has reported; the next run completes the list
            is_whole = False
        if is_whole or self._destination.is_remote:
            self._write_remaining(is_done)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _write_remaining(self, is_done: Callable[[str], bool]) -> None:
        text = self._destination.read(self._name)
        if self._file is not None:
            text = Path(self._file.name).read_bytes()
        shards = self._names_of_shards() if self._name == ALL_FAILURES else []
        texts = [*(self._destination.read(name) for name in shards), text]
        rows = {Clip.from_row(row).key: row for part in texts for row in read_rows(part)}
        remaining = "".join(json.dumps(row) + "\n" for key, row in rows.items() if not is_done(key))
        if remaining.encode() != (text or b"") or (text and self._destination.is_remote):
            self._destination.write(self._name, remaining.encode())

    def _open(self) -> IO[str]:
        if self._file is None:
            path = Path(self._destination.path_of(self._name))
            earlier = None
            if self._destination.is_remote:
                with explaining_write_errors(tempfile.gettempdir()):
                    self._folder = tempfile.mkdtemp(prefix="gmaflow-")
                path = Path(self._folder) / ALL_FAILURES
                earlier = self._destination.read(self._name) or b""
            with explaining_write_errors(path):
                if earlier is not None:
                    path.write_bytes(earlier)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("a", encoding="utf-8")
                if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
                    self._file.write("\n")  # or a row that a crash cut off would spoil the next
        return self._file


def read_rows(text: bytes | None) -> Iterator[dict[str, Any]]:
    """Yield the rows that name a clip."""
    for row in read_json_lines(text or b""):
        if row.keys() >= {"id", "source"}:
            yield row
