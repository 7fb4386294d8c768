"""The parts of an image that benchmarks judge by themselves."""

import numpy as np
from jaxtyping import Bool

from gmaflow.data import FlowSample
from gmaflow.evaluation.distance import boundary_of, distance_to

Mask = Bool[np.ndarray, "h w"]

REGIONS = {
    "all": "every pixel whose truth is known",
    "noc": "visible in the second frame too",
    "occ": "not visible in the second frame: hidden, or out of it",
    "occ-in": "hidden in the second frame, inside it",
    "occ-out": "moved out of the second frame",
    "matched": "visible, by the data set's own mask alone",
    "unmatched": "not visible, by the data set's own mask alone",
    "s0-10": "moving less than 10 px",
    "s10-40": "moving 10 to 40 px",
    "s40+": "moving 40 px or more",
    "d0-10": "visible, less than 10 px from an occlusion boundary",
    "d10-60": "visible, 10 to 60 px from an occlusion boundary",
    "d60-140": "visible, 60 to 140 px from an occlusion boundary",
    "fg": "moving objects (KITTI's foreground)",
    "bg": "everything but moving objects",
}
"""Names of the regions, and what they are."""

NEED_OCCLUSION = ("noc", "occ", "occ-in", "d0-10", "d10-60", "d60-140")
NEED_FOREGROUND = ("fg", "bg")
_SPEEDS = {"s0-10": (0, 10), "s10-40": (10, 40), "s40+": (40, np.inf)}
_DISTANCES = {"d0-10": (0, 10), "d10-60": (10, 60), "d60-140": (60, 140)}


def find_regions(sample: FlowSample) -> dict[str, Mask]:
    """Return the regions of a pair that its truth and masks can tell, as masks.

    Without an occlusion mask there are no `NEED_OCCLUSION`; `occ-out` follows from the truth alone.
    """
    assert sample.flow is not None
    assert sample.valid is not None
    valid = sample.valid
    speed = np.hypot(*np.moveaxis(sample.flow.astype(np.float64), 2, 0))
    regions = {"all": valid}
    for name, (least, below) in _SPEEDS.items():
        regions[name] = valid & (speed >= least) & (speed < below)
    if sample.occluded_out is not None:
        regions["occ-out"] = valid & sample.occluded_out
    if sample.occluded_in is not None and sample.occluded is not None:
        regions["noc"] = valid & ~sample.occluded
        regions["occ"] = valid & sample.occluded
        regions["occ-in"] = valid & sample.occluded_in
        distance = distance_to(boundary_of(sample.occluded), limit=140)
        for name, (least, below) in _DISTANCES.items():
            # Visible pixels alone is our reading: Sintel's own code for these is not published.
            regions[name] = regions["noc"] & (distance >= least) & (distance < below)
    if sample.unmatched is not None:
        regions["matched"] = valid & ~sample.unmatched
        regions["unmatched"] = valid & sample.unmatched
    if sample.foreground is not None:
        regions["fg"] = valid & sample.foreground
        regions["bg"] = valid & ~sample.foreground
    return regions
