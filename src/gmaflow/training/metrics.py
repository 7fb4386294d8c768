"""End-point errors in training: sums over steps and processes, and their means.

The definitions are those of `gmaflow.evaluation`; a test compares the two. They are implemented
again here because a training step must not wait for the CPU or use float64.

Legend: b batch, h w rows and columns, s sums.
"""

import time
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gmaflow.geometry import outside_frame
from gmaflow.model import pixel_grid
from gmaflow.training.distributed import World

if TYPE_CHECKING:
    from gmaflow.training.step import StepResult

THRESHOLDS = (1.0, 3.0, 5.0)
REGIONS = ("all", "noc", "occ", "occ-in", "occ-out")
SUMS = 2 * len(REGIONS) + len(THRESHOLDS)
"""For each region its pixels and their end-point errors, then the pixels above each threshold."""


@torch.no_grad()
def error_sums(
    estimate: Float[Tensor, "b 2 h w"],
    truth: Float[Tensor, "b 2 h w"],
    valid: Bool[Tensor, "b h w"],
    occluded: Bool[Tensor, "b h w"],
) -> Float[Tensor, " s"]:
    """Sum end-point errors over pixels by region, without waiting for the device."""
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
    """Return which pixels have a target outside the second frame."""
    height, width = flow.shape[-2:]
    x, y = (pixel_grid(flow) + flow).unbind(dim=1)
    return outside_frame(x, y, height=height, width=width)


def mean_errors(sums: Float[Tensor, " s"]) -> dict[str, float]:
    """Return the means by name, without empty regions. Waits for the device."""
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


class Meter:
    """Means over the steps since the last reading, accumulated on the device."""

    def __init__(self, device: torch.device, world: World) -> None:
        self.world = world
        # Loss, gradient norm, number of steps, then the sums of errors.
        self.sums = torch.zeros(3 + SUMS, device=device)
        self.pairs = 0
        self.started = time.monotonic()

    def add(self, result: "StepResult", pairs: int) -> None:
        """Add a step; skipped steps do not count."""
        counted = (~result.skipped).float()
        head = torch.stack([result.loss, result.gradient_norm, counted])
        self.sums += torch.cat([head, result.errors]).masked_fill(result.skipped, 0.0)
        self.pairs += pairs

    def read(self) -> dict[str, float]:
        """Return the means by name and start again. Waits for the device."""
        values = self.world.sum(self.sums.clone()).cpu()
        means = mean_errors(values[3:])
        if counted := float(values[2]):
            means |= {"loss": float(values[0]) / counted, "gradient": float(values[1]) / counted}
        means["pairs/s"] = self.pairs / max(time.monotonic() - self.started, 1e-9)
        self.sums.zero_()
        self.pairs, self.started = 0, time.monotonic()
        return means
