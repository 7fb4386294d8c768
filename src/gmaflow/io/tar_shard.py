"""Tar files of samples, as WebDataset has them: files with one name up to its first dot.

They are listed first and read when needed. Listing seeks from header to header.
"""

import tarfile
from collections.abc import Mapping
from io import SEEK_END
from pathlib import Path
from typing import NamedTuple

from gmaflow.errors import FlowFileError
from gmaflow.io.paths import PathLike, require_file

_END = bytes(2 * tarfile.BLOCKSIZE)
"""Two blocks of zeros end a tar file; without them it is truncated."""


class Member(NamedTuple):
    """A file in a tar file."""

    name: str
    offset: int
    size: int


class ShardSample(NamedTuple):
    """The files of a sample."""

    key: str
    """Their name up to the first dot, with its folder: clip/000012."""
    files: Mapping[str, Member]
    """The files by the rest of their names: flow_x.jpg."""


def list_samples(path: PathLike) -> list[ShardSample]:
    """List the samples of a tar file, in its order."""
    path = require_file(path, FlowFileError, "a .tar file")
    samples: dict[str, dict[str, Member]] = {}
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for entry in tar:
                if entry.isreg() and not entry.issparse():
                    key, rest = split_name(entry.name)
                    member = Member(entry.name, entry.offset_data, entry.size)
                    samples.setdefault(key, {})[rest] = member
                tar.members = []  # type: ignore[attr-defined]  # it would keep them all
            length = file.seek(0, SEEK_END)
            file.seek(max(0, length - len(_END)))
            whole = file.read() == _END
    except (tarfile.TarError, OSError, ValueError, EOFError, MemoryError) as err:
        raise FlowFileError(f"{path}: not a valid .tar file ({err})") from err
    if not whole:
        raise FlowFileError(f"{path} is truncated: the end of the .tar is missing")
    return [ShardSample(key, files) for key, files in samples.items()]


def split_name(name: str) -> tuple[str, str]:
    """Split a name into the key of its sample and the rest."""
    folder, slash, file = name.rpartition("/")
    start, _, rest = file.partition(".")
    return f"{folder}{slash}{start}", rest.lower()


def read_member(path: Path, member: Member) -> bytes:
    """Read a file of a tar file."""
    try:
        with path.open("rb") as file:
            file.seek(member.offset)
            data = file.read(min(member.size, path.stat().st_size))
    except (OSError, ValueError, OverflowError) as err:
        raise FlowFileError(f"{path}: {member.name} cannot be read ({err})") from err
    if len(data) != member.size:
        raise FlowFileError(f"{path}: {member.name} is truncated")
    return data
