"""Naming what the caller probably meant."""

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the near names among those known, or all of them where none is near."""
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(choices)}"
