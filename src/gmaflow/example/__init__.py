"""A built-in pair with known flow, for the demo and for trying things out.

Rendered by gmaflow itself: preset `things`, 384x512, seed 1, pair 1, built-in textures.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8

from gmaflow.inference import Flow, read_flow
from gmaflow.io import read_image

FOLDER = Path(__file__).parent
IN_FRAME, OUT_OF_FRAME = 127, 255
"""Values of the stored occlusion mask; 0 is visible."""


@dataclass(frozen=True, eq=False)
class ExamplePair:
    """Two frames, their true flow and occlusion."""

    image1: UInt8[np.ndarray, "h w 3"]
    image2: UInt8[np.ndarray, "h w 3"]
    flow: Flow
    """The true flow, stored to 1/64 px."""
    occluded_in: Bool[np.ndarray, "h w"]
    occluded_out: Bool[np.ndarray, "h w"]


def load_example() -> ExamplePair:
    """Return the built-in pair."""
    occlusion = read_image(FOLDER / "occlusion.png")[..., 0]
    return ExamplePair(
        read_image(FOLDER / "frame1.png"),
        read_image(FOLDER / "frame2.png"),
        read_flow(FOLDER / "flow.png"),
        occluded_in=occlusion == IN_FRAME,
        occluded_out=occlusion == OUT_OF_FRAME,
    )
