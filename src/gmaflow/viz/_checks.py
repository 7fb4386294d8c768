"""What the pictures ask of their inputs, in one voice."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gmaflow.errors import FlowError, ImageError


def check_image(image: npt.NDArray[Any]) -> None:
    """Refuse whatever is not a height x width x 3 picture of uint8."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ImageError(
            f"got an image of {image.dtype} {image.shape}; "
            "give an RGB image as uint8 (height, width, 3)"
        )


def check_flow(flow: npt.NDArray[Any], *, name: str = "flow") -> None:
    """Refuse whatever is not height x width x 2, such as a flow with its channels in front."""
    if flow.ndim != 3 or flow.shape[2] != 2:
        raise FlowError(
            f"got a {name} of shape {flow.shape}; give it as (height, width, 2), x before y"
        )


def check_positive(name: str, value: float) -> None:
    """Refuse a scale that is zero, negative or not a number."""
    if not (math.isfinite(value) and value > 0):
        raise FlowError(f"{name} is {value}; give a number above 0, or leave it out")
