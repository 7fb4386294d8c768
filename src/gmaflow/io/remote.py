"""Remote files (`s3://`, `gs://`, `az://`, `memory://`, ...) through fsspec, an extra.

Every error of a store becomes one sentence: no such bucket, no permission, no connection.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gmaflow.errors import FlowError, import_extra

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
IN_MEMORY = "memory://"
"""Files that only this process has."""


def is_remote(path: str) -> bool:
    """Whether a path is an address such as `s3://bucket/key`; `file://` is local."""
    return bool(_SCHEME.match(path)) and not path.startswith("file://")


def open_store(url: str) -> "tuple[AbstractFileSystem, str]":
    """Return the store of an address, and the path within it.

    Raises:
        FlowError: fsspec or the store's own package is not installed, or the address is unknown.
    """
    fsspec = import_extra("fsspec.core", url, extra="remote")
    with explaining(url):
        # Listings are read once; a cache would only hold memory and hide the work of others.
        store, path = fsspec.url_to_fs(url, use_listings_cache=False)
        return store, path


@contextmanager
def explaining(url: str, error: type[FlowError] = FlowError) -> Iterator[None]:
    """Turn errors of a store into one sentence about an address."""
    try:
        yield
    except FlowError:
        raise
    except FileNotFoundError as err:
        raise error(f"{url} does not exist (is the bucket's name right?)") from err
    except PermissionError as err:
        raise error(f"access to {url} is denied; check the credentials") from err
    except ImportError as err:
        remedy = "pip install 'gmaflow[remote]'" if url.startswith("s3:") else str(err)
        raise error(f"{url} needs another package: {remedy}") from err
    except Exception as err:  # each store has its own errors, without a common base class
        reason = " ".join(str(err).split())[:200] or type(err).__name__
        raise error(f"{url} cannot be used: {reason}") from err
