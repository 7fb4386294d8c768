"""The inputs: videos, folders of frames, patterns and manifests become a stream of clips.

Clips are read anew each time they are iterated over and never held: a manifest may have millions
of rows.
"""

import csv
import glob
import json
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from io import TextIOWrapper
from pathlib import Path, PurePosixPath
from typing import Any, TextIO, TypeAlias

from gmaflow.errors import FlowError, os_reason
from gmaflow.io.folders import natural_key
from gmaflow.io.images import IMAGE_SUFFIXES
from gmaflow.io.remote import explaining, is_remote, open_store

VIDEO_SUFFIXES = frozenset(
    (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".ogv", ".gif")
)
"""Files of a folder that are taken as clips."""
FRAME_SUFFIXES = IMAGE_SUFFIXES - {".gif"}
MANIFESTS = frozenset((".csv", ".tsv", ".jsonl", ".ndjson", ".txt"))
OTHER_TABLES = frozenset((".json", ".parquet", ".xlsx", ".xls", ".yaml", ".yml"))
"""Files that are lists of clips, perhaps, but certainly not videos."""
RESERVED = (
    *("_clips", "_shards", "_partial"),
    *("batch.json", "failures.jsonl", "clips.csv", "clips.parquet"),
)
"""Folders and files of a destination that are not clips."""
LONGEST_NAME = 200
"""Bytes of a part of an identifier; file systems take 255, and endings are added."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Clip:
    """A video, a folder of frames or a pair of images, and its name at the destination."""

    identifier: str
    source: str
    """A path or an address."""
    second: str | None = None
    """The second image of a pair, whose first image is the source."""
    start: float | None = None
    """Where the clip begins, in seconds of a video."""
    end: float | None = None
    """Where it ends."""

    @cached_property
    def source_hash(self) -> str:
        """Eight digits that distinguish clips with the same identifier but different sources."""
        fields = [self.source, self.second, self.start, self.end]
        return blake2b(json.dumps(fields).encode(), digest_size=4).hexdigest()

    @property
    def key(self) -> str:
        """Identifies the clip among all others."""
        return f"{self.identifier}\0{self.source_hash}"

    def as_row(self) -> Row:
        row: Row = {"id": self.identifier, "source": self.source, "second": self.second}
        row |= {"start": self.start, "end": self.end}
        return {name: value for name, value in row.items() if value is not None}

    @classmethod
    def from_row(cls, row: Row) -> "Clip":
        return cls(row["id"], row["source"], row.get("second"), row.get("start"), row.get("end"))


@dataclass(frozen=True)
class Columns:
    """The columns of a manifest."""

    path: str = "path"
    second: str = "second"
    identifier: str = "id"
    start: str = "start"
    end: str = "end"


class ClipList:
    """The clips of some inputs; every iteration reads the inputs again.

    Args:
        inputs: Videos, folders, patterns such as `videos/*.mp4`, or manifests.
        columns: The columns of manifests.
        leave_out: A folder to skip even if it is inside an input: the destination.

    Raises:
        FlowError: When it is iterated over: an input does not exist, or a manifest has a row
            without a file.
    """

    def __init__(
        self, inputs: Sequence[str], columns: Columns | None = None, *, leave_out: str | None = None
    ) -> None:
        if not inputs:
            raise FlowError(
                "there is no input; give videos, folders of frames, a pattern or a manifest"
            )
        self.inputs = [absolute(text) for text in inputs]
        self.columns = columns or Columns()
        self.leave_out = leave_out and full_address(leave_out)

    def __iter__(self) -> Iterator[Clip]:
        for text in self.inputs:
            yield from self._clips_of(text)

    def _clips_of(self, text: str) -> Iterator[Clip]:
        suffix = PurePosixPath(text).suffix.lower()
        remote = is_remote(text)
        if re.search(r"[*?\[]", text) and (remote or not Path(text).exists()):
            yield from match_pattern(text, self.leave_out)
        elif suffix in MANIFESTS:
            yield from read_manifest(text, self.columns)
        elif suffix in OTHER_TABLES and not is_folder(text):
            raise FlowError(f"{text} is not a manifest; give a .csv, .tsv, .jsonl or .txt file")
        elif suffix in VIDEO_SUFFIXES:
            if not remote and not Path(text).is_file():
                raise FlowError(f"{text} does not exist; give a video, a folder or a manifest")
            yield Clip(PurePosixPath(text).stem, text)
        elif is_folder(text):
            yield from walk_folder(text, self.leave_out)
        elif suffix in IMAGE_SUFFIXES:
            raise FlowError(
                f"{text} is one image; give the folder of its frames, or a manifest of pairs with "
                "the columns path and second"
            )
        elif remote or not Path(text).exists():
            raise FlowError(f"{text} does not exist; give a video, a folder or a manifest")
        else:  # a video with an unusual name
            yield Clip(PurePosixPath(text).stem, text)


def absolute(text: str) -> str:
    """Return a local path in full: workers may run elsewhere, and names must not depend on that."""
    if is_remote(text):
        return text
    # Unlike Path.resolve it asks nothing of the disk, which for a million rows takes long.
    return os.path.abspath(text.removeprefix("file://"))  # noqa: PTH100


def full_address(text: str) -> str:
    """Return a path or address as folders are listed: az:// becomes abfs://, for example."""
    if not is_remote(text):
        return absolute(text)
    store, path = open_store(text)
    return str(store.unstrip_protocol(path))


def is_folder(text: str) -> bool:
    """Whether a path or address is a folder."""
    if not is_remote(text):
        return Path(text).is_dir()
    store, path = open_store(text)
    with explaining(text):
        return bool(store.isdir(path))


def is_within(text: str, folder: str | None) -> bool:
    """Whether a path or address is a folder or lies in it."""
    return folder is not None and f"{text}/".startswith(f"{folder}/")


def walk_folder(root: str, leave_out: str | None = None) -> Iterator[Clip]:
    """Yield every video below a folder, and every folder of frames, itself included."""
    has_clips = False
    top = full_address(root)
    for folder, files in folders_below(root, leave_out):
        relative = folder[len(top) :].strip("/")
        suffixes = {PurePosixPath(name).suffix.lower() for name in files}
        if suffixes & FRAME_SUFFIXES:
            has_clips = True
            yield Clip(relative or PurePosixPath(root).name, folder)
        for name in sorted(files, key=natural_key):
            if PurePosixPath(name).suffix.lower() in VIDEO_SUFFIXES:
                has_clips = True
                yield Clip(
                    without_suffix("/".join(filter(None, (relative, name)))), f"{folder}/{name}"
                )
    if not has_clips:
        raise FlowError(f"{root} holds neither videos nor frames; give another folder")


def folders_below(root: str, leave_out: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder and all folders below it, in natural order, with the names of their files."""
    if is_within(full_address(root), leave_out):
        leave_out = None  # it was asked for
    if is_remote(root):
        store, path = open_store(root)
        with explaining(root):
            for folder, inner, files in store.walk(path):
                inner_names = sorted(inner, key=natural_key)
                if isinstance(inner, list):
                    inner[:] = inner_names
                address = store.unstrip_protocol(folder)
                if not is_within(address, leave_out):
                    yield address, [name for name in files if name]
        return
    for folder, inner, files in os.walk(root, onerror=_refuse):
        if is_within(folder, leave_out):
            inner.clear()
            continue
        inner[:] = sorted((name for name in inner if name[0] != "."), key=natural_key)
        yield folder, [name for name in files if name[0] != "."]


def _refuse(err: OSError) -> None:
    raise FlowError(f"{err.filename} cannot be listed: {os_reason(err)}") from err


def match_pattern(pattern: str, leave_out: str | None = None) -> Iterator[Clip]:
    """Yield the videos and folders of frames that match a pattern."""
    if is_remote(pattern):
        store, path = open_store(pattern)
        with explaining(pattern):
            paths = [store.unstrip_protocol(name) for name in store.glob(path)]
        pattern = full_address(pattern)
    else:
        paths = glob.glob(pattern, recursive=True)  # noqa: PTH207  (the pattern is absolute)
    # Identifiers are relative to the part of the pattern that has no wildcards.
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    base = fixed[: fixed.rfind("/") + 1]
    number = 0
    for text in sorted(paths, key=natural_key):
        if is_within(text, leave_out):
            continue
        suffix = PurePosixPath(text).suffix.lower()
        if suffix in FRAME_SUFFIXES:
            raise FlowError(
                f"{pattern} matches images such as {text}; give the folders of the frames"
            )
        if suffix in VIDEO_SUFFIXES or is_folder(text):
            number += 1
            identifier = text[len(base) :] if text.startswith(base) else PurePosixPath(text).name
            yield Clip(without_suffix(identifier.strip("/")), text)
    if not number:
        raise FlowError(f"{pattern} matches no videos or folders")


def without_suffix(name: str) -> str:
    """Return a name without the suffix of a video or image."""
    suffix = PurePosixPath(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in VIDEO_SUFFIXES | IMAGE_SUFFIXES else name


# --- Manifests ------------------------------------------------------------------------------------


def read_manifest(text: str, columns: Columns) -> Iterator[Clip]:
    """Yield the clips of a .csv, .tsv, .jsonl or .txt file, row by row."""
    rows = _READERS[PurePosixPath(text).suffix.lower()]
    folder = text[: text.rfind("/") + 1]
    number = 0
    with open_text(text) as file:
        try:
            for number, row in enumerate(rows(file, text, columns), 1):
                yield clip_of_row(row, columns, folder, f"row {number} of {text}")
        except FlowError:
            raise
        except UnicodeDecodeError as err:
            raise FlowError(
                f"the manifest {text} cannot be read: it is not UTF-8; save it as text in UTF-8"
            ) from err
        except (csv.Error, ValueError, RecursionError, OSError) as err:
            reason = err.msg if isinstance(err, json.JSONDecodeError) else err
            raise FlowError(
                f"the manifest {text} cannot be read (row {number + 1}: {reason}); correct that row"
            ) from err
    if not number:
        raise FlowError(f"the manifest {text} has no rows; add one for each clip")


@contextmanager
def open_text(text: str) -> Iterator[TextIO]:
    """Open a local or remote text file."""
    if is_remote(text):
        store, path = open_store(text)
        with explaining(text):
            binary = store.open(path, "rb")
        with TextIOWrapper(binary, "utf-8-sig", newline="") as file:
            yield file
        return
    try:
        with Path(text).open(encoding="utf-8-sig", newline="") as file:
            yield file
    except (FileNotFoundError, IsADirectoryError, PermissionError) as err:
        reason = os_reason(err)
        raise FlowError(f"the manifest {text} cannot be read: {reason}") from err


Reader: TypeAlias = Callable[[Iterable[str], str, Columns], Iterator[Row]]
"""Yields the rows of a manifest from its lines."""


def _table_rows(delimiter: str) -> Reader:
    def rows(lines: Iterable[str], name: str, columns: Columns) -> Iterator[Row]:
        reader = csv.DictReader(lines, delimiter=delimiter, strict=True)
        names = list(reader.fieldnames or [])
        if names and columns.path not in names:
            remedy = "name the column of the files with --path-column"
            if ";" in names[0] and delimiter == ",":  # as some spreadsheets write it
                remedy = "separate the columns with commas"
            raise FlowError(
                f"{name} has no column {columns.path!r}, only {', '.join(map(repr, names[:8]))}; "
                f"{remedy}"
            )
        yield from reader

    return rows


def _json_rows(lines: Iterable[str], name: str, columns: Columns) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = json.loads(line)
            if not isinstance(row, dict):
                raise FlowError(
                    f"line {number} of {name} is not an object; write rows such as "
                    f'{{"{columns.path}": "a.mp4"}}'
                )
            yield row


def _text_rows(lines: Iterable[str], name: str, columns: Columns) -> Iterator[Row]:
    del name
    for line in lines:
        if line.strip():
            first, *second = line.strip("\r\n").split("\t")
            yield {columns.path: first, columns.second: second[0] if second else None}


_READERS: dict[str, Reader] = {
    ".csv": _table_rows(","),
    ".tsv": _table_rows("\t"),
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
    ".txt": _text_rows,
}


def clip_of_row(row: Row, columns: Columns, folder: str, where: str) -> Clip:
    """Return the clip of a row; its paths are relative to the folder of the manifest."""

    def text_of(column: str) -> str | None:
        value = row.get(column)
        if isinstance(value, list | dict | bool):  # of JSON
            raise FlowError(f"{where} has {value!r} in the column {column!r}; give a text")
        return None if value is None or str(value).strip() == "" else str(value).strip()

    path, second = text_of(columns.path), text_of(columns.second)
    if path is None:
        raise FlowError(
            f"{where} has no file in the column {columns.path!r}; fill it in, or delete the row"
        )
    identifier_text = text_of(columns.identifier)
    identifier = check_identifier(identifier_text or identifier_of(path), where)
    times = [_seconds(text_of(column), column, where) for column in (columns.start, columns.end)]
    return Clip(
        identifier,
        located(path, folder),
        None if second is None else located(second, folder),
        *times,
    )


def located(path: str, folder: str) -> str:
    """Return a path of a manifest in full; relative ones are relative to the manifest's folder."""
    path = path.removeprefix("file://")
    if is_remote(path) or os.path.isabs(path):  # noqa: PTH117
        return absolute(path)
    if not is_remote(folder):
        return absolute(folder + path)
    if not {".", ".."} & set(path.split("/")):
        return folder + path
    # A store would take them for names of folders.
    scheme, _, rest = folder.partition("://")
    return f"{scheme}://{posixpath.normpath(rest + path)}"


def identifier_of(path: str) -> str:
    """Return the identifier of a row that names none: its path without scheme and suffix."""
    parts = re.sub(r"^[^/]*://", "", path).replace(os.sep, "/").split("/")
    return without_suffix("/".join(part for part in parts if part not in ("", ".", "..")))


def check_identifier(identifier: str, where: str) -> str:
    """Return an identifier, or refuse one that cannot be a name at the destination."""
    parts = identifier.split("/")
    if (
        any(part in ("", ".", "..") for part in parts)
        or parts[0] in RESERVED
        or any(part.startswith(".") for part in parts)
        or not identifier.isprintable()
        or "\\" in identifier
    ):
        raise FlowError(
            f"{where} has the identifier {identifier!r}, which cannot be the name of a file; use "
            "letters and digits, and / for folders"
        )
    if any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise FlowError(f"{where} has an identifier longer than {LONGEST_NAME} bytes; shorten it")
    return identifier


def _seconds(text: str | None, column: str, where: str) -> float | None:
    try:
        value = None if text is None else float(text)
    except ValueError:
        value = -1.0
    if value is not None and not 0 <= value < float("inf"):
        raise FlowError(f"{where} has {text!r} in the column {column!r}; give seconds from 0 on")
    return value
