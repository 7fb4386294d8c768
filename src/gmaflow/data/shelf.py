"""What lies in folders, each of them listed once.

A data set has up to a hundred thousand files. Asking for each of them takes minutes on a network
disk; listing their folders takes seconds.
"""

import os
import re
from pathlib import Path

from gmaflow.errors import DatasetError


class Shelf:
    """The names in folders, remembered."""

    def __init__(self) -> None:
        self._files: dict[Path, frozenset[str]] = {}
        self._folders: dict[Path, tuple[str, ...]] = {}

    def files(self, folder: Path) -> frozenset[str]:
        """Names of the files of a folder; none if there is no such folder."""
        self._look(folder)
        return self._files[folder]

    def folders(self, folder: Path) -> tuple[str, ...]:
        """Names of the folders in a folder, sorted; none if there is no such folder."""
        self._look(folder)
        return self._folders[folder]

    def has(self, path: Path) -> bool:
        """Tell whether there is such a file."""
        return path.name in self.files(path.parent)

    def if_there(self, path: Path) -> Path | None:
        """Return the path if there is such a file."""
        return path if self.has(path) else None

    def numbers(self, folder: Path, pattern: str) -> set[str]:
        """Return the numbers, as they are written, of the files of a folder.

        Args:
            folder: where to look.
            pattern: a file name with `#` in the place of the number, such as "frame_#.png".
        """
        before, after = (re.escape(part) for part in pattern.split("#"))
        known = re.compile(f"{before}([0-9]+){after}")
        return {match[1] for name in self.files(folder) if (match := known.fullmatch(name))}

    def _look(self, folder: Path) -> None:
        if folder in self._files:
            return
        files, folders = set(), []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append(entry.name)
                    else:
                        files.add(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as err:
            raise DatasetError(f"{folder} cannot be listed: {err.strerror}") from err
        self._files[folder] = frozenset(files)
        self._folders[folder] = tuple(sorted(folders))


def following(numbers: set[str]) -> list[tuple[str, str]]:
    """Return each number together with the next, where that is there too."""
    written = {int(number): number for number in numbers}
    return [(written[n], written[n + 1]) for n in sorted(written) if n + 1 in written]


def successor(number: str) -> str:
    """Return the next number, written as wide as this one."""
    return str(int(number) + 1).zfill(len(number))
