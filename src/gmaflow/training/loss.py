"""The sequence loss, and the end-point errors of a step.

The loss counts every iteration, with higher weights for later ones. The errors are defined as in
`gmaflow.evaluation`; a test compares the two. They are implemented again here because a training
step must not wait for the CPU or use float64.

Legend: b batch, h w rows and columns, s sums.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from gmaflow.geometry import outside_frame
from gmaflow.model import STRIDE, pixel_grid
from gmaflow.model.continuation import Continued

MAX_FLOW = 400.0
"""Pixels with larger motion do not count in the loss, as published."""
CONTINUATION_WEIGHT = 0.1
"""Weight of `continuation_loss`, relative to the sequence loss."""
VISIBLE_WEIGHT = 0.1
"""Weight of visible cells in the error of continued motion; hidden cells have 1."""
TRUST_WEIGHT = 0.2
"""Weight of the cross entropy of trust, relative to the error of continued motion."""
TRUSTED_ERROR = 2.0
"""Flow with a smaller error, in pixels, deserves trust."""

THRESHOLDS = (1.0, 3.0, 5.0)
REGIONS = ("all", "noc", "occ", "occ-in", "occ-out")
SUMS = 2 * len(REGIONS) + len(THRESHOLDS)
"""For each region its pixels and their end-point errors, then the pixels above each threshold."""


def loss_weights(
    flow: Float[Tensor, "b 2 h w"],
    valid: Bool[Tensor, "b h w"],
    occluded: Bool[Tensor, "b h w"],
    occluded_weight: Float[Tensor, ""],
) -> Float[Tensor, "b h w"]:
    """Return the weight of each pixel: 0 where the true flow is unknown or too large.

    The weight of occluded pixels is a tensor, so that it can change without recording the step
    again.
    """
    counts = valid & (flow.square().sum(dim=1) < MAX_FLOW**2)
    return torch.where(occluded, occluded_weight, 1.0) * counts


def sequence_loss(
    flows: Sequence[Float[Tensor, "b 2 h w"]],
    truth: Float[Tensor, "b 2 h w"],
    weights: Float[Tensor, "b h w"],
    *,
    gamma: float,
    robust: float = 0.0,
) -> Float[Tensor, ""]:
    """Return the sum over iterations of gamma^(iterations to come) times the mean error.

    As published, the mean is over all pixels and both channels, including pixels of weight 0.
    """
    weights = weights[:, None]
    # Pixels of weight 0 may hold any value, and 0 times infinity is not 0.
    truth = torch.where(weights > 0, truth, 0.0)
    loss = truth.new_zeros(())
    for remaining, flow in enumerate(reversed(flows)):
        loss = loss + gamma**remaining * weighted_error(flow, truth, weights, robust)
    return loss


def weighted_error(
    flow: Float[Tensor, "b 2 h w"],
    truth: Float[Tensor, "b 2 h w"],
    weights: Float[Tensor, "b 1 h w"],
    robust: float = 0.0,
) -> Float[Tensor, ""]:
    """Return the mean L1 error of one iteration's flow.

    With `robust` = r an error e counts r log(1 + e / r): its gradient is 1 at 0 and a half at r.
    """
    error = (flow - truth).abs()
    if robust:
        error = robust * torch.log1p(error / robust)
    return (weights * error).mean()


def continuation_loss(
    continued: Sequence[Continued],
    truth: Float[Tensor, "b 2 h w"],
    valid: Bool[Tensor, "b h w"],
    occluded: Bool[Tensor, "b h w"],
    *,
    gamma: float,
) -> Float[Tensor, ""]:
    """Return the loss of the continued motion, over all iterations that continue motion.

    It is the L1 error of the continued flow in pixels, mostly of hidden cells, plus the cross
    entropy between trust and whether the flow is right. The truth of a cell is that of its pixel
    (4, 4).
    """
    middle = slice(STRIDE // 2, None, STRIDE)
    truth, valid, occluded = (x[..., middle, middle] for x in (truth, valid, occluded))
    counts = (valid & (truth.square().sum(dim=1) < MAX_FLOW**2))[:, None]
    weights = torch.where(occluded[:, None], 1.0, VISIBLE_WEIGHT) * counts
    truth = torch.where(counts, truth, 0.0)
    loss = truth.new_zeros(())
    for remaining, step in enumerate(reversed(continued)):
        distance = (STRIDE * step.before - truth).norm(dim=1, keepdim=True)
        target = (distance < TRUSTED_ERROR).float()
        trust = F.binary_cross_entropy_with_logits(step.trust, target, reduction="none")
        error = (weights * (STRIDE * step.flow - truth).abs()).mean()
        loss = loss + gamma**remaining * (error + TRUST_WEIGHT * (counts * trust).mean())
    return loss


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
