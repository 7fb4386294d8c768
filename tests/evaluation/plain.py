"""The metrics a second time: plain loops and concatenated pixels, sharing nothing with ours."""

import math

import numpy as np

from gmaflow.data import FlowSample


def nearest(boundary: np.ndarray) -> np.ndarray:
    """Distance to the nearest pixel that is set, by trying all of them."""
    ys, xs = np.nonzero(boundary)
    result = np.full(boundary.shape, math.inf)
    for y in range(boundary.shape[0]):
        for x in range(boundary.shape[1]):
            if len(ys):
                result[y, x] = math.sqrt(min((ys - y) ** 2 + (xs - x) ** 2))
    return result


def boundary(mask: np.ndarray) -> np.ndarray:
    height, width = mask.shape
    found = np.zeros_like(mask)
    for y in range(height):
        for x in range(width):
            for dy, dx in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                inside = 0 <= y + dy < height and 0 <= x + dx < width
                if mask[y, x] and inside and not mask[y + dy, x + dx]:
                    found[y, x] = True
    return found


def regions(sample: FlowSample) -> dict[str, np.ndarray]:
    assert sample.flow is not None
    assert sample.valid is not None
    assert sample.occluded_in is not None
    assert sample.occluded_out is not None
    assert sample.unmatched is not None
    assert sample.foreground is not None
    flow = sample.flow.astype(float)
    speed = np.sqrt((flow**2).sum(axis=2))
    hidden, valid = sample.occluded_in | sample.occluded_out, sample.valid
    apart = nearest(boundary(hidden))
    depth = nearest(~hidden & valid)
    return {
        "all": np.ones_like(hidden),
        "noc": ~hidden,
        "occ": hidden,
        "occ-in": sample.occluded_in,
        "occ-out": sample.occluded_out,
        **{
            f"{name}{ending}": region & within
            for name, region in {
                "occ": hidden,
                "occ-in": sample.occluded_in,
                "occ-out": sample.occluded_out,
            }.items()
            for ending, within in {
                "<1": depth < 8,
                " 1-3": (depth >= 8) & (depth <= 24),
                ">3": depth > 24,
            }.items()
        },
        "matched": ~sample.unmatched,
        "unmatched": sample.unmatched,
        "s0-10": speed < 10,
        "s10-40": (speed >= 10) & (speed < 40),
        "s40+": speed >= 40,
        "d0-10": ~hidden & (apart < 10),
        "d10-60": ~hidden & (apart >= 10) & (apart < 60),
        "d60-140": ~hidden & (apart >= 60) & (apart < 140),
        "fg": sample.foreground,
        "bg": ~sample.foreground,
    }


def figures(cases: list[tuple[np.ndarray, FlowSample]], region: str) -> dict[str, float]:
    """All figures of a region over several pairs, from the pixels themselves."""
    errors, speeds = [], []
    for estimate, sample in cases:
        assert sample.flow is not None
        assert sample.valid is not None
        mask = regions(sample)[region] & sample.valid
        difference = estimate.astype(float) - sample.flow.astype(float)
        errors.append(np.sqrt((difference**2).sum(axis=2))[mask])
        speeds.append(np.sqrt((sample.flow.astype(float) ** 2).sum(axis=2))[mask])
    pooled, speed = np.concatenate(errors), np.concatenate(speeds)
    if not len(pooled):
        return dict.fromkeys(("pixels", "images", "px1", "px3", "px5", "fl"), math.nan)
    outlier = (pooled > 3) & (pooled / speed > 0.05)
    return {
        "pixels": pooled.mean(),
        "images": float(np.mean([e.mean() for e in errors if len(e)])),
        "px1": 100 * (pooled > 1).mean(),
        "px3": 100 * (pooled > 3).mean(),
        "px5": 100 * (pooled > 5).mean(),
        "fl": 100 * outlier.mean(),
    }
