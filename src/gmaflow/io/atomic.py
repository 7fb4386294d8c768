"""Writing so that nothing half-written is ever seen under the final name."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gmaflow.errors import OutputError
from gmaflow.io.paths import PathLike

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""What a disk complains of. Other OSErrors of the caller's block may come from anywhere and keep
their own face."""


def ensure_can_write(path: PathLike, overwrite: bool) -> None:
    """Refuse an output that must not be replaced, before any work is done for it.

    Raises:
        OutputError: `path` exists and `overwrite` is false, or it is not a file, or its folder may
            not be written to.
    """
    path = Path(path)
    _refuse_what_is_no_file(path)
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists; add --overwrite to replace it")
    if reason := why_unwritable(path.parent):
        raise OutputError(f"{path} cannot be written: {reason}; choose another place")


def ensure_can_fill(folder: Path) -> None:
    """Refuse a folder that nothing can be written into, be it there or not.

    Raises:
        OutputError: it is one.
    """
    if reason := why_unwritable(folder):
        raise OutputError(f"{folder} cannot be written: {reason}; choose another place")


def why_unwritable(folder: Path) -> str | None:
    """Return why nothing can be written into a folder, be it there or not; None if it can."""
    there = folder
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
    except OSError as err:  # a name too long, a folder that may not be looked into
        return err.strerror or str(err)
    if not there.is_dir():
        return f"{there} is a file"
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} may not be written to"


@contextmanager
def atomic_write(path: PathLike) -> Iterator[Path]:
    """Give a temporary path beside `path`, and rename it over `path` on success.

    The temporary name is hidden and keeps the suffix, by which many encoders choose their format.
    Missing parent folders are made. On any error, an interrupt included, the temporary file goes.

    Args:
        path: the final name. An existing file is replaced.

    Yields:
        The path to write to; an empty file of that name is there already.

    Raises:
        OutputError: the place cannot be written to, or the disk is full.
    """
    path = Path(path)
    _refuse_what_is_no_file(path)
    temporary = path.parent / f".{secrets.token_hex(8)}.partial{path.suffix}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not tempfile: its files are readable by their owner only, and would stay so.
        temporary.open("xb").close()
    except OSError as err:
        raise OutputError(
            f"{path} cannot be written: {_reason(err)}; choose another place"
        ) from err
    try:
        yield temporary
        temporary.replace(path)
    except OSError as err:
        if err.errno in NO_ROOM:
            raise OutputError(f"{path} cannot be written: {_reason(err)}") from err
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _refuse_what_is_no_file(path: Path) -> None:
    try:
        wrong = path.exists() and not path.is_file()
    except OSError as err:
        raise OutputError(
            f"{path} cannot be written: {_reason(err)}; choose another place"
        ) from err
    # A rename would put a plain file in the place of a device such as /dev/null.
    if wrong:
        raise OutputError(f"{path} exists and is not a file; choose another name")


def _reason(err: OSError) -> str:
    return (err.strerror or type(err).__name__).lower()
