"""Folders of results that an interrupted run can resume.

Such a folder holds a record: a JSON file with the settings that the results depend on. A folder
with a record is resumed with the same settings (`--resume`) or started over (`--overwrite`), so
results of different settings are never mixed. Only one process at a time may write to it.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gmaflow.errors import OutputError, os_reason
from gmaflow.io.paths import ensure_can_fill, write_text

Record = dict[str, Any]
"""Settings by name, as JSON holds them."""

_locked: dict[Path, int] = {}
"""The folders that this process has locked, and the open files that hold the locks."""


def lock_folder(folder: Path, *, only_check: bool = False) -> None:
    """Keep other processes from writing results to a folder until this one ends.

    The operating system drops the lock however the process ends, and no file is left behind. On
    systems and network disks that cannot lock a folder, there is no lock.

    Args:
        folder: The folder; nothing happens if it does not exist.
        only_check: Do not keep the lock. Processes that check do not disturb each other.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # on Windows
        return
    path = folder.resolve()
    if path in _locked:
        return
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return  # it does not exist yet, or writing to it will report the problem
    keep = False
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if only_check else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        keep = not only_check
    except BlockingIOError:
        raise OutputError(
            f"another process is writing to {folder}; wait for it or choose another folder"
        ) from None
    except OSError:
        pass  # this disk does not support locks
    finally:
        if keep:
            _locked[path] = handle
            remove_partial_files(path)
        else:
            os.close(handle)


def remove_partial_files(folder: Path) -> None:
    """Remove what `atomic_write` left in a folder and its subfolders when a run was killed."""
    for pattern in (f".{16 * '?'}.partial*", f"*/.{16 * '?'}.partial*"):
        for path in folder.glob(pattern):
            with suppress(OSError):
                path.unlink()


def unlock_folder(folder: Path) -> None:
    """Let other processes write to a folder, if this one has locked it."""
    handle = _locked.pop(folder.resolve(), None)
    if handle is not None:
        os.close(handle)


def is_locked_here(folder: Path) -> bool:
    return folder.resolve() in _locked


class ResultRecord:
    """The record of a folder of results.

    Args:
        folder: The folder; it need not exist.
        name: The name of the record's file, such as "flow.json".
        what: What the folder holds, with its article, for messages: "flow", "a data set".
        required: A key without which the file is not such a record.
    """

    def __init__(
        self, folder: Path, name: str, *, what: str = "results", required: str | None = None
    ) -> None:
        self.folder = folder
        self.path = folder / name
        self.what = what
        self.required = required

    def exists(self) -> bool:
        """Whether an earlier run started results in this folder."""
        return self.path.is_file()

    def check_start(self, *, resume: bool, overwrite: bool, among_others: bool = False) -> None:
        """Refuse to start or resume results here, before any work is done. Changes nothing.

        With `among_others`, a folder without a record may already hold other files.
        """
        if resume and overwrite:
            raise OutputError(
                "--resume keeps existing results and --overwrite discards them; give only one"
            )
        ensure_can_fill(self.folder)
        lock_folder(self.folder, only_check=True)
        if self.exists():
            if not (resume or overwrite):
                raise OutputError(
                    f"{self.folder} already holds {self.what}; add --resume to continue, "
                    "--overwrite to start over, or choose another folder"
                )
        elif not among_others and self._holds_files():
            raise OutputError(
                f"{self.folder} is not empty and has no {self.path.name}; choose a new or empty "
                "folder"
            )

    def read(self) -> Record:
        """Return the settings that the results were started with."""
        record = None
        with suppress(OSError):
            record = parse_record(self.path.read_bytes(), required=self.required)
        if record is None:
            raise OutputError(f"{self.path} is damaged; add --overwrite to start over")
        return record

    def read_matching(
        self, settings: Mapping[str, object], *, ignore: Collection[str] = ()
    ) -> Record:
        """Return the record, if its settings are those of this run, and lock the folder.

        Those in `ignore` may differ.
        """
        lock_folder(self.folder)
        before = self.read()
        if difference := find_difference(before, settings, ignore=ignore):
            raise OutputError(
                f"{self.folder} was started {difference}; resume with the same options, or "
                "choose another folder"
            )
        return before

    def lock(self) -> None:
        """Create the folder if it is missing, and lock it."""
        with suppress(OSError):  # atomic_write reports it
            self.folder.mkdir(parents=True, exist_ok=True)
        lock_folder(self.folder)

    def write(self, settings: Mapping[str, object]) -> None:
        """Write the record; create the folder if it is missing, and lock it."""
        self.lock()
        write_text(self.path, record_text(settings))

    def _holds_files(self) -> bool:
        try:
            return self.folder.exists() and any(self.folder.iterdir())
        except OSError as err:
            raise OutputError(
                f"{self.folder} cannot be read ({os_reason(err)}); choose another folder"
            ) from err


def record_text(settings: Mapping[str, object]) -> str:
    """Return settings in the format of a record."""
    return json.dumps(dict(settings), indent=2) + "\n"


def parse_record(data: bytes | str, *, required: str | None = None) -> Record | None:
    """Return the settings of a record, or None if it is damaged or lacks the `required` key."""
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    is_complete = isinstance(record, dict) and (required is None or required in record)
    return record if is_complete else None


def read_json_lines(data: bytes) -> Iterator[Record]:
    """Yield the objects of a .jsonl; a line that a crash cut off is left out."""
    for line in data.decode("utf-8", "replace").splitlines():
        record = parse_record(line)
        if record is not None:
            yield record


def find_difference(
    before: Record, settings: Mapping[str, object], *, ignore: Collection[str] = ()
) -> str | None:
    """Describe the first difference between the settings of a run and a record; None if equal.

    Those in `ignore` may differ. A setting that is missing is the same as one that is None.
    """
    # JSON has no tuples: compare what would be written with what was written.
    now = json.loads(json.dumps(dict(settings)))
    for name in dict.fromkeys((*before, *now)):
        if name not in ignore and before.get(name) != now.get(name):
            return describe_difference(name, before.get(name), now.get(name))
    return None


def describe_difference(name: str, before: object, now: object) -> str:
    """Describe a difference: "with iters 12, not 6", "without --end, not with --end 1.5"."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(before, bool) or isinstance(now, bool):
        return f"{'with' if before else 'without'} {option}"
    if before is None:
        return f"without {option}, not with {option} {now}"
    if now is None:
        return f"with {option} {before}, not without"
    return f"with {name} {before}, not {now}"


def is_finished(paths: Iterable[Path]) -> bool:
    """Whether all files of a result exist; after a crash of the machine a file may be empty."""
    return all(path.is_file() and path.stat().st_size > 0 for path in paths)
