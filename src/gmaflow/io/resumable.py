"""Folders of results that an interrupted run can resume.

Such a folder holds a record: a JSON file with the settings that the results depend on. A folder
with a record is resumed with the same settings (`--resume`) or started over (`--overwrite`), so
results of different settings are never mixed.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from gmaflow.errors import OutputError
from gmaflow.io import atomic_write, ensure_can_fill

Record = dict[str, Any]
"""Settings by name, as JSON holds them."""


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

        Args:
            resume: The user asked to continue.
            overwrite: The user asked to start over.
            among_others: Accept a folder without a record that already holds other files.

        Raises:
            OutputError: The folder holds results and neither was asked for, both were asked for,
                the folder holds other files, or it cannot be written to.
        """
        if resume and overwrite:
            raise OutputError(
                "--resume keeps existing results and --overwrite discards them; give only one"
            )
        ensure_can_fill(self.folder)
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
        """Return the settings that the results were started with.

        Raises:
            OutputError: The record cannot be read.
        """
        try:
            record = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError):
            record = None
        if not isinstance(record, dict) or (self.required and self.required not in record):
            raise OutputError(f"{self.path} is damaged; add --overwrite to start over")
        return record

    def read_matching(
        self, settings: Mapping[str, object], *, ignore: Collection[str] = ()
    ) -> Record:
        """Return the record, if its settings are those of this run.

        Args:
            settings: The settings of this run.
            ignore: Names of settings that may differ.

        Raises:
            OutputError: A setting differs, or the record cannot be read.
        """
        before = self.read()
        # JSON knows no tuples: compare what would be written with what was written.
        now = json.loads(json.dumps(dict(settings)))
        for name in dict.fromkeys((*before, *now)):
            if name not in ignore and before.get(name) != now.get(name):
                difference = describe_difference(name, before.get(name), now.get(name))
                raise OutputError(
                    f"{self.folder} was started {difference}; resume with the same options, or "
                    "choose another folder"
                )
        return before

    def write(self, settings: Mapping[str, object]) -> None:
        """Write the record; the folder is made if it is missing."""
        with atomic_write(self.path) as temporary:
            temporary.write_text(json.dumps(dict(settings), indent=2) + "\n", "utf-8")

    def _holds_files(self) -> bool:
        try:
            return self.folder.exists() and any(self.folder.iterdir())
        except OSError as err:
            raise OutputError(
                f"{self.folder} cannot be read ({err.strerror}); choose another folder"
            ) from err


def describe_difference(name: str, before: object, now: object) -> str:
    """Say how a setting differs: "with iters 12, not 6", "without end, not with end 1.5"."""
    if before is None:
        return f"without {name}, not with {name} {now}"
    return f"with {name} {before}, not {'without' if now is None else now}"


def is_finished(paths: Iterable[Path]) -> bool:
    """Whether all files of a result are there; after a crash of the machine a file may be empty."""
    return all(path.is_file() and path.stat().st_size > 0 for path in paths)
