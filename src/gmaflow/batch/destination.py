"""Where results go: a local folder, or an address such as `s3://bucket/flow`.

    DEST/batch.json                     the settings that all results share
    DEST/ID.ext, DEST/ID/...            the files of a clip
    DEST/_clips/D/ID.HASH.json          the clip's record, written last: the clip is finished
    DEST/failures.jsonl                 clips that failed, and why
    DEST/clips.csv                      a row for each clip, if asked for
    DEST/_shards/...                    the last two of each shard

All names depend on the input only, so any run recognises what others have finished by listing
`_clips`. An object store has no rename: an object appears when its upload is complete, and a record
when all files of its clip are there. Locally, files are written under `_partial` and renamed.
"""

import os
import secrets
import shutil
import tempfile
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

import numpy as np

from gmaflow.batch.manifest import Clip
from gmaflow.errors import OutputError, os_reason
from gmaflow.io.paths import PARTIAL, atomic_write, ensure_can_fill
from gmaflow.io.remote import IN_MEMORY, explaining, is_remote, open_store

RECORDS, SHARDS = "_clips", "_shards"
DIGITS = "0123456789abcdef"
"""Records are spread over 16 folders: a store lists one at a time, and memory stays small."""
STALE = 24 * 3600.0
"""Seconds after which files that a killed process left behind are removed."""


class Destination:
    """A place for results, local or remote. It can be pickled."""

    def __init__(self, url: str) -> None:
        self.is_remote = is_remote(url)
        self.url = url.rstrip("/") if self.is_remote else url.removeprefix("file://")
        if not self.is_remote:
            # Workers may run in another folder.
            self.url = str(Path(self.url).absolute())
        self.run = secrets.token_hex(8)
        """Distinguishes the unfinished files of this run from those of others."""

    @property
    def in_this_process(self) -> bool:
        """Whether other processes cannot see it."""
        return self.url.startswith(IN_MEMORY)

    def check(self) -> None:
        """Refuse a place that cannot be written to."""
        if not self.is_remote:
            ensure_can_fill(Path(self.url))

    def path_of(self, name: str) -> str:
        """Return the full path or address of a name."""
        return f"{self.url}/{name}"

    def is_empty(self) -> bool:
        """Whether nothing is there; hidden files do not count."""
        if self.is_remote:
            store, root = open_store(self.url)
            with explaining(self.url, OutputError):
                # Listed by prefix: a missing bucket is an error, a missing folder is empty.
                bucket = root.split("/")[0]
                if bucket and not self.in_this_process:
                    store.ls(bucket, detail=False)
                return not store.exists(root) or not store.ls(root, detail=False)
        folder = Path(self.url)
        try:
            return not folder.exists() or not any(
                not path.name.startswith(".") for path in folder.iterdir()
            )
        except OSError as err:
            raise OutputError(f"{folder} cannot be read ({os_reason(err)})") from err

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file, or None if there is no such file."""
        if self.is_remote:
            store, path = open_store(self.path_of(name))
            with explaining(self.path_of(name), OutputError):
                try:
                    data: bytes = store.cat_file(path)
                except FileNotFoundError:
                    return None
                return data
        try:
            return Path(self.path_of(name)).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as err:
            raise OutputError(f"{self.path_of(name)} cannot be read ({os_reason(err)})") from err

    def read_many(self, names: list[str]) -> list[bytes]:
        """Return the contents of files that exist; a store's are fetched at the same time."""
        if not self.is_remote:
            return [self._read_existing(name) for name in names]
        store, root = open_store(self.url)
        paths = [f"{root}/{name}" for name in names]
        with explaining(self.url, OutputError):
            contents = store.cat(paths) if len(paths) > 1 else {p: store.cat_file(p) for p in paths}
            return [contents[path] for path in paths]

    def _read_existing(self, name: str) -> bytes:
        data = self.read(name)
        if data is None:
            raise OutputError(f"{self.path_of(name)} was removed during the run; run it again")
        return data

    def write(self, name: str, data: bytes) -> None:
        """Write a file as a whole."""
        if self.is_remote:
            store, path = open_store(self.path_of(name))
            with explaining(self.path_of(name), OutputError):
                store.pipe_file(path, data)
            return
        with atomic_write(self.path_of(name)) as file:
            file.write(data)

    def put(self, file: Path, name: str) -> None:
        """Move a file from `scratch` to its final name; it appears there as a whole."""
        if self.is_remote:
            store, path = open_store(self.path_of(name))
            with explaining(self.path_of(name), OutputError):
                store.put_file(str(file), path)
            file.unlink()
            return
        target = Path(self.path_of(name))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
        except OSError as err:
            raise OutputError(f"{target} cannot be written: {os_reason(err)}") from err

    def names(self, folder: str) -> Iterator[str]:
        """List all files in a folder and its subfolders, relative to it."""
        if not self.is_remote:
            yield from _walk(self.path_of(folder), "")
            return
        store, path = open_store(self.path_of(folder))
        with explaining(self.path_of(folder), OutputError):
            try:
                paths = store.find(path)
            except FileNotFoundError:
                return
            skip = len(path.rstrip("/")) + 1
            yield from (name[skip:] for name in paths if len(name) > skip)

    @property
    def _unfinished(self) -> Path:
        """The folder of this run's unfinished files, on the same disk as the final ones."""
        if self.is_remote:
            return Path(tempfile.gettempdir()) / f"gmaflow-{self.run}"
        return Path(self.url) / PARTIAL / self.run

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a folder for unfinished files, from which `put` moves them; removed at the end."""
        folder = self._unfinished / secrets.token_hex(8)
        try:
            folder.mkdir(parents=True)
        except OSError as err:
            raise OutputError(f"{self.url} cannot be written: {os_reason(err)}") from err
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def remove_unfinished(self) -> None:
        """Remove unfinished files: those of this run, and those that others left long ago."""
        shutil.rmtree(self._unfinished, ignore_errors=True)
        partial = Path(self.url) / PARTIAL
        if self.is_remote or not partial.is_dir():
            return
        for folder in partial.iterdir():
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > STALE:
                    shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # others are at work
            partial.rmdir()


def _walk(folder: str, prefix: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(entry.path, f"{prefix}{entry.name}/")
                elif not entry.name.startswith("."):
                    yield prefix + entry.name
    except FileNotFoundError:
        return
    except OSError as err:
        raise OutputError(f"{folder} cannot be read ({os_reason(err)})") from err


# --- Finished clips -------------------------------------------------------------------------------


def record_name(clip: Clip) -> str:
    """Return the name of the record that is written when a clip is finished."""
    digit = blake2b(clip.identifier.encode(), digest_size=8).hexdigest()[0]
    return f"{RECORDS}/{digit}/{clip.identifier}.{clip.source_hash}.json"


class HashSet:
    """A set of texts that takes 8 bytes for each: their hashes, sorted at the first lookup.

    Two of a million texts share a hash with a probability of 1 in 40 million.
    """

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._sorted = True

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, text: str) -> None:
        self._hashes.append(hash_of(text))
        self._sorted = False

    def __contains__(self, text: str) -> bool:
        self._sort()
        target = hash_of(text)
        index = bisect_left(self._hashes, target)
        return index < len(self._hashes) and self._hashes[index] == target

    def repeated(self) -> set[int]:
        """Return the hashes that were added more than once."""
        self._sort()
        values = np.frombuffer(self._hashes, np.uint64) if len(self) else np.empty(0, np.uint64)
        return {int(value) for value in values[1:][values[1:] == values[:-1]]}

    def _sort(self) -> None:
        if not self._sorted:
            values = np.sort(np.frombuffer(self._hashes, np.uint64))
            self._hashes = array("Q", values.tobytes())
            self._sorted = True


def hash_of(text: str) -> int:
    """Return 64 bits of a hash that is the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest())


class FinishedClips:
    """The keys of clips that are finished at a destination, from one listing of names."""

    def __init__(self, destination: Destination) -> None:
        self._identifiers = HashSet()
        self._clips = HashSet()
        for digit in DIGITS:
            for name in destination.names(f"{RECORDS}/{digit}"):
                identifier, source_hash, kind = (*name.rsplit(".", 2), "", "")[:3]
                if kind == "json":
                    self._identifiers.add(identifier)
                    self._clips.add(f"{identifier}\0{source_hash}")

    def __len__(self) -> int:
        return len(self._clips)

    def __contains__(self, key: str) -> bool:
        return key in self._clips

    def clashes(self, clip: Clip) -> bool:
        """Whether another source was finished under the identifier of a clip."""
        return clip.identifier in self._identifiers and clip.key not in self
