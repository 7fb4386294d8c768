"""Samples with truth, made up."""

import numpy as np

from gmaflow.data import FlowSample
from gmaflow.data.pairs import split_occlusion


def make_sample(
    flow: np.ndarray,
    *,
    valid: np.ndarray | None = None,
    occluded: np.ndarray | None = None,
    foreground: np.ndarray | None = None,
) -> FlowSample:
    """A grey pair with this truth."""
    flow = flow.astype(np.float32)
    image = np.full((*flow.shape[:2], 3), 128, np.uint8)
    known = np.ones(flow.shape[:2], bool) if valid is None else valid
    inside, outside = split_occlusion(occluded, flow, known)
    return FlowSample(
        image1=image,
        image2=image,
        flow=flow,
        valid=known,
        occluded_in=inside,
        occluded_out=outside,
        unmatched=occluded,
        foreground=foreground,
    )


def random_case(seed: int, *, size: tuple[int, int] = (24, 30)) -> tuple[np.ndarray, FlowSample]:
    """An estimate and a sample with gaps, occlusion and a foreground, of all speeds."""
    rng = np.random.default_rng(seed)
    scale = rng.choice([1.0, 8.0, 60.0], size=(*size, 1))
    flow = (rng.normal(size=(*size, 2)) * scale).astype(np.float32)
    estimate = flow + (rng.normal(size=flow.shape) * rng.choice([0.2, 4.0], size=(*size, 1)))
    sample = make_sample(
        flow,
        valid=rng.random(size) > 0.2,
        occluded=rng.random(size) > 0.9,
        foreground=rng.random(size) > 0.5,
    )
    return estimate.astype(np.float32), sample
