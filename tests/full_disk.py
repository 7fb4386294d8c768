"""A disk that seems to be full."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let this process write files of at most `size` bytes; more fails as on a full disk.

    Python must not store compiled modules meanwhile: it would not notice that they are cut off, and
    no process could import them any more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    stores_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = stores_none
