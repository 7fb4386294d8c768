"""A smooth pair whose motion is known everywhere."""

import numpy as np

from gmaflow.data import FlowSample
from gmaflow.data.occlusion import split_occlusion


def pattern(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A smooth coloured pattern, read at any place."""
    waves = [np.sin(x / 9 + y / 21), np.cos(x / 15 - y / 11), np.sin(x / 31 + y / 13 + 1)]
    return np.stack(waves, axis=-1) * 100 + 127


def smooth_pair(height: int = 90, width: int = 120) -> FlowSample:
    """A pair whose second frame shows the first, stretched and shifted."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    flow = np.stack([3 + 0.03 * x, -2 + 0.02 * y], axis=-1).astype(np.float32)
    # The flow is linear, hence so is its inverse: where did a pixel of frame 2 come from?
    image2 = pattern((x - 3) / 1.03, (y + 2) / 1.02)
    valid = np.ones((height, width), bool)
    occluded_in, occluded_out = split_occlusion(np.zeros_like(valid), flow, valid)
    return FlowSample(
        image1=np.rint(pattern(x, y)).astype(np.uint8),
        image2=np.rint(image2).astype(np.uint8),
        flow=flow,
        valid=valid,
        occluded_in=occluded_in,
        occluded_out=occluded_out,
    )
