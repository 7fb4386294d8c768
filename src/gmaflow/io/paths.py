"""What may be handed in as a path, and the first look at it that every reader takes."""

import os
from pathlib import Path

from gmaflow.errors import FlowError

PathLike = str | os.PathLike[str]


def require_file(path: PathLike, error: type[FlowError], what: str) -> Path:
    """Refuse what is not a regular file.

    A folder, a pipe or a device would fail later, block, or never end.

    Args:
        path: where the file should be.
        error: the class of error to raise.
        what: the thing wanted, with its article, such as "an image".

    Returns:
        The path as a `Path`.
    """
    path = Path(path)
    try:
        if path.is_file():
            return path
        if path.is_dir():
            raise error(f"{path} is a folder; give {what}")
        if path.exists():
            raise error(f"{path} is not a regular file; give {what}")
    except OSError as err:
        raise error(f"{path} cannot be looked at ({err.strerror}); give {what}") from err
    raise error(f"{path} does not exist; give {what}")
