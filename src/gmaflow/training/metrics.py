"""Errors as sums that can be added up over steps, processes and data sets.

What they mean is what `gmaflow.evaluation` measures, and a test holds the two together. They are
counted a second time here since a training step can wait for neither the CPU nor float64.

Legend: b batch, h w rows and columns, s sums.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gmaflow.geometry import outside_frame
from gmaflow.model import pixel_grid

THRESHOLDS = (1.0, 3.0, 5.0)
REGIONS = ("all", "noc", "occ", "occ-in", "occ-out")
SUMS = 2 * len(REGIONS) + len(THRESHOLDS)
"""For each region its pixels and their end-point errors, then the pixels beyond each threshold."""


@torch.no_grad()
def error_sums(
    estimate: Float[Tensor, "b 2 h w"],
    truth: Float[Tensor, "b 2 h w"],
    valid: Bool[Tensor, "b h w"],
    occluded: Bool[Tensor, "b h w"],
) -> Float[Tensor, " s"]:
    """Sum end-point errors over pixels and regions, all on the device."""
    error = (estimate - truth).float().square().sum(dim=1).sqrt()
    error = torch.where(valid, error, 0.0)
    out = occluded & leaves_frame(truth)
    sums = []
    for region in (
        valid,
        valid & ~occluded,
        valid & occluded,
        valid & occluded & ~out,
        valid & out,
    ):
        sums += [region.sum(), torch.where(region, error, 0.0).sum()]
    sums += [(error > threshold).sum() for threshold in THRESHOLDS]
    return torch.stack([value.float() for value in sums])


def leaves_frame(flow: Float[Tensor, "b 2 h w"]) -> Bool[Tensor, "b h w"]:
    """Tell which pixels' targets lie outside the second frame."""
    height, width = flow.shape[-2:]
    x, y = (pixel_grid(flow) + flow).unbind(dim=1)
    return outside_frame(x, y, height=height, width=width)


def mean_errors(sums: Float[Tensor, " s"]) -> dict[str, float]:
    """Return sums as means by name; a region without pixels is left out. Waits for the device."""
    values = sums.tolist()
    pixels, errors = values[0 : 2 * len(REGIONS) : 2], values[1 : 2 * len(REGIONS) : 2]
    means = {}
    for region, count, error in zip(REGIONS, pixels, errors, strict=True):
        if count:
            means["epe" if region == "all" else f"epe-{region}"] = error / count
    for threshold, count in zip(THRESHOLDS, values[2 * len(REGIONS) :], strict=True):
        if pixels[0]:
            means[f"{threshold:.0f}px"] = 1 - count / pixels[0]
    return means
