"""Paths: formats by name, checks before reading or writing, and atomic writes."""

import errno
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path

from gmaflow.errors import FlowError, OutputError, os_reason

PathLike = str | os.PathLike[str]

CLIP_SUFFIXES = frozenset({".h5", ".tar"})
"""Clips in one file. A clip without suffix is a folder."""
TRACK_SUFFIXES = (".npz", ".csv")
"""Files of tracks."""
PARTIAL = "_partial"
"""The folder of a batch job's unfinished files."""
OCCLUSION_ENDING = ".occlusion.npz"
"""Files of a batch job that hold no flow."""
XY_ENDING = "flow_x_*.jpg"
"""The name of the x file of a pair of JPEGs; `*` stands for the frame."""
_XY_NAME = re.compile(r"((?:.*[._-])?flow_)[xy]([._-].*)?(\.[jJ][pP][eE]?[gG])", re.DOTALL)

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""Errors of the disk. Other OSErrors inside `atomic_write` may come from anywhere and are not
translated."""


def as_path(path: PathLike, error: type[FlowError] = OutputError) -> Path:
    """Return a `Path`; refuse other types, and names that no file can have."""
    if not isinstance(path, str | os.PathLike):
        raise error(f"a path of type {type(path).__name__} was given; use a str or a Path")
    if "\0" in str(path):
        raise error(f"{str(path)!r} contains a null byte; give another name")
    return Path(path)


def expand_home(path: PathLike) -> Path:
    """Replace `~` by the user's folder; unlike `Path.expanduser`, keep it if there is none."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def exists(path: Path) -> bool:
    """Return whether something is there; raises OSError if nothing can be, as by a name too long.

    `Path.exists` raises too, but from Python 3.14 on it returns False. A name with a null byte is
    a ValueError, and no file has it.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return True


def require_file(path: PathLike, error: type[FlowError], what: str) -> Path:
    """Return the path of a regular file, or raise; `what` is expected, such as "an image".

    A folder, a pipe or a device would fail later, block, or never end.
    """
    text, path = str(path), as_path(path, error)
    try:
        is_there = exists(path)
    except OSError as err:
        raise error(f"{path} cannot be read ({os_reason(err)}); give {what}") from err
    if path.is_file():
        return path
    if path.is_dir():
        raise error(f"{path} is a folder; give {what}")
    if is_there:
        raise error(f"{path} is not a regular file; give {what}")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text):
        # As a Path it has lost a slash.
        url = re.sub(":/+", "://", text, count=1)
        raise error(f"{url}: URLs are not supported; download the file first")
    raise error(f"{path} does not exist; give {what}")


def ensure_can_write(path: PathLike, overwrite: bool) -> None:
    """Refuse an output that must not be replaced, before any work is done for it."""
    path = Path(path)
    _refuse_non_file(path)
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists; add --overwrite to replace it")
    if reason := why_unwritable(path.parent):
        raise OutputError(f"{path} cannot be written: {reason}; choose another place")


def find_clash(written: Iterable[tuple[Path, Path]]) -> tuple[Path, Path, Path] | None:
    """Find two sources that would be written to the same file; returns them and the file."""
    sources: dict[Path, Path] = {}
    for source, path in written:
        if sources.setdefault(path, source) != source:
            return sources[path], source, path
    return None


def ensure_can_fill(folder: Path) -> None:
    """Refuse a folder that cannot be written to; it need not exist yet."""
    if reason := why_unwritable(folder):
        raise OutputError(f"{folder} cannot be written: {reason}; choose another place")


def why_unwritable(folder: Path) -> str | None:
    """Return why a folder, existing or not, cannot be written to; None if it can."""
    existing = folder
    try:
        while not exists(existing) and existing != existing.parent:
            existing = existing.parent
    except OSError as err:  # a name too long, a folder without permission
        return os_reason(err)
    if not existing.is_dir():
        return f"{existing} is a file"
    return None if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is not writable"


@contextmanager
def atomic_write(path: PathLike) -> Iterator[BufferedRandom]:
    """Open a new file in the same folder, and rename it to `path` on success.

    A half-written file is never seen under the final name. The file is opened once, for writing
    and reading, and never again by its name, so that nobody can put another one in its place.
    Missing parent folders are created, and an existing file is replaced. On any error, including an
    interrupt, the new file is removed.

    Raises:
        OutputError: The place cannot be written to, or the disk is full.
    """
    path = as_path(path)
    _refuse_non_file(path)
    temporary = path.parent / f".{secrets.token_hex(8)}.partial{path.suffix}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not tempfile: its files are readable by their owner only, and would stay so.
        file = temporary.open("x+b")
    except OSError as err:
        raise OutputError(
            f"{path} cannot be written: {os_reason(err)}; choose another place"
        ) from err
    try:
        with file:
            yield file
        temporary.replace(path)
    except OSError as err:
        if err.errno in NO_ROOM:
            raise OutputError(f"{path} cannot be written: {os_reason(err)}") from err
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: PathLike, text: str) -> None:
    """Write a text file with `atomic_write`, as UTF-8.

    File names may hold bytes that are not text; they are escaped.
    """
    with atomic_write(path) as file:
        file.write(text.encode(errors="backslashreplace"))


def _refuse_non_file(path: Path) -> None:
    try:
        is_special = exists(path) and not path.is_file()
    except OSError as err:
        raise OutputError(
            f"{path} cannot be written: {os_reason(err)}; choose another place"
        ) from err
    # A rename would replace a device such as /dev/null by a plain file.
    if is_special:
        raise OutputError(f"{path} exists and is not a file; choose another name")


def is_clip(path: PathLike) -> bool:
    """Whether a name asks for a clip in one file."""
    return Path(path).suffix.lower() in CLIP_SUFFIXES


def is_xy(path: PathLike) -> bool:
    """Whether a name is that of one of the two JPEGs: flow_x_000012.jpg, 000012.flow_y.jpg."""
    return _XY_NAME.fullmatch(Path(path).name) is not None


def xy_paths(path: PathLike) -> tuple[Path, Path]:
    """Return the paths of both JPEGs, from that of either."""
    path = Path(path)
    match = _XY_NAME.fullmatch(path.name)
    assert match is not None
    start, rest, suffix = match[1], match[2] or "", match[3]
    return path.with_name(f"{start}x{rest}{suffix}"), path.with_name(f"{start}y{rest}{suffix}")


def files_of(path: PathLike) -> tuple[Path, ...]:
    """Return the files that hold a flow: two for a pair of JPEGs, otherwise the path alone."""
    return xy_paths(path) if is_xy(path) else (Path(path),)


def xy_stem(path: PathLike) -> str:
    """Return the name of a pair of JPEGs without flow_x or flow_y: 000012."""
    name = xy_paths(path)[0]
    start, _, rest = name.stem.rpartition("flow_x")
    return (start + rest.lstrip("._-")).strip("._-") or "flow"
