"""Directory listings that are read once.

A data set has up to a hundred thousand files. On a network disk, checking each file takes minutes;
listing the folders takes seconds.
"""

import os
import re
from pathlib import Path

from gmaflow.errors import DatasetError


class DirectoryCache:
    """File and folder names, read once for each folder."""

    def __init__(self) -> None:
        self._files: dict[Path, frozenset[str]] = {}
        self._folders: dict[Path, tuple[str, ...]] = {}

    def files(self, folder: Path) -> frozenset[str]:
        """Return the names of the files in a folder; empty if the folder does not exist."""
        self._read(folder)
        return self._files[folder]

    def folders(self, folder: Path) -> tuple[str, ...]:
        """Return the sorted names of the subfolders; empty if the folder does not exist."""
        self._read(folder)
        return self._folders[folder]

    def has(self, path: Path) -> bool:
        """Return whether a file exists."""
        return path.name in self.files(path.parent)

    def if_exists(self, path: Path) -> Path | None:
        """Return the path if the file exists."""
        return path if self.has(path) else None

    def numbers(self, folder: Path, pattern: str) -> set[str]:
        """Return the numbers in the file names of a folder, with their leading zeros.

        Args:
            folder: the folder.
            pattern: a file name with `#` in place of the number, such as "frame_#.png".
        """
        before, after = (re.escape(part) for part in pattern.split("#"))
        known = re.compile(f"{before}([0-9]+){after}")
        return {match[1] for name in self.files(folder) if (match := known.fullmatch(name))}

    def _read(self, folder: Path) -> None:
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
            raise DatasetError(f"cannot list {folder}: {err.strerror}") from err
        self._files[folder] = frozenset(files)
        self._folders[folder] = tuple(sorted(folders))
