"""The sequence loss: the error of every iteration, with higher weights for later ones.

Legend: b batch, h w rows and columns.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MAX_FLOW = 400.0
"""Pixels with larger motion do not count in the loss, as published."""


def loss_weights(
    flow: Float[Tensor, "b 2 h w"],
    valid: Bool[Tensor, "b h w"],
    occluded: Bool[Tensor, "b h w"],
    occluded_weight: Float[Tensor, ""],
) -> Float[Tensor, "b h w"]:
    """Return the weight of each pixel: 0 where the true flow is unknown or too large.

    Args:
        flow: True flow.
        valid: Where it is known.
        occluded: Pixels not visible in the second frame.
        occluded_weight: Weight of occluded pixels; a tensor, so that it can change while a recorded
            step stays the same.
    """
    counts = valid & (flow.square().sum(dim=1) < MAX_FLOW**2)
    return torch.where(occluded, occluded_weight, 1.0) * counts


def sequence_loss(
    flows: Sequence[Float[Tensor, "b 2 h w"]],
    truth: Float[Tensor, "b 2 h w"],
    weights: Float[Tensor, "b h w"],
    *,
    gamma: float,
) -> Float[Tensor, ""]:
    """Return the sum over iterations of gamma^(iterations to come) times the mean L1 error.

    As published, the mean is over all pixels and both channels, including pixels of weight 0.
    """
    weights = weights[:, None]
    # Pixels of weight 0 may hold any value, and 0 times infinity is not 0.
    truth = torch.where(weights > 0, truth, 0.0)
    loss = truth.new_zeros(())
    for to_come, flow in enumerate(reversed(flows)):
        loss = loss + gamma**to_come * weighted_error(flow, truth, weights)
    return loss


def weighted_error(
    flow: Float[Tensor, "b 2 h w"],
    truth: Float[Tensor, "b 2 h w"],
    weights: Float[Tensor, "b 1 h w"],
) -> Float[Tensor, ""]:
    """Return the mean L1 error of one iteration's flow."""
    return (weights * (flow - truth).abs()).mean()
