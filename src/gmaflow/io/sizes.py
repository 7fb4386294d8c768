"""Whether things that belong together cover the same pixels."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from gmaflow.errors import FlowError

Sized = npt.NDArray[Any] | tuple[int, ...] | None
"""An array, or its shape; None counts for nothing."""


def check_same_size(
    things: Mapping[str, Sized],
    *,
    error: type[FlowError] = FlowError,
    remedy: str = "crop or resize one of them so that they match",
) -> None:
    """Refuse things that do not cover the same pixels.

    Args:
        things: what belongs together, by what to call it; height and width come first.
        error: what to raise.
        remedy: what is to be done about it.

    Raises:
        FlowError: two of them differ in size; or the kind of it that was asked for.
    """
    sizes = {
        name: (thing if isinstance(thing, tuple) else thing.shape)[:2]
        for name, thing in things.items()
        if thing is not None
    }
    (first, size), *others = sizes.items()
    for name, other in others:
        if other != size:
            raise error(
                f"{first} and {name} differ in size: {shape_text(size)} and {shape_text(other)} "
                f"(height x width); {remedy}"
            )


def shape_text(shape: tuple[int, ...]) -> str:
    """Write a shape as people do."""
    return "x".join(map(str, shape)) or "a single number"
