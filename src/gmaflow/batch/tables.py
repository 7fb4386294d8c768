"""Tables with a row for each clip, written in pieces: CSV, or Parquet (extra `parquet`)."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gmaflow.errors import FlowError

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


def require_table(kind: str) -> None:
    """Refuse a format whose package is missing, before any work."""
    if kind == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ModuleNotFoundError:
            raise FlowError(
                "a Parquet table needs pyarrow: pip install 'gmaflow[parquet]', or use --table csv"
            ) from None


@contextmanager
def table_writer(path: Path, names: Sequence[str]) -> Iterator[Callable[[Rows], None]]:
    """Give a function that appends rows to a new table; the suffix picks the format.

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
