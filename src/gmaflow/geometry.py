"""Where pixels go: warping and composing flow tensors, and the paper's definition of out of frame.

In the paper's code a target (x, y) is out of frame beyond 0..width or 0..height, although the
centres of the last pixels are at width - 1 and height - 1. This is asymmetric, but the published
figures for occ-in and occ-out are computed this way.
"""

from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from gmaflow.errors import FlowError

Array = TypeVar("Array", np.ndarray, Tensor)


def outside_frame(x: Array, y: Array, *, height: int, width: int) -> Array:
    """Return which points are outside a frame; for numpy and torch."""
    return (x < 0) | (x > width) | (y < 0) | (y > height)


def leaves_frame(flow: Float32[np.ndarray, "h w 2"]) -> Bool[np.ndarray, "h w"]:
    """Return which pixels have their target outside the second frame."""
    height, width = flow.shape[:2]
    x = flow[..., 0] + np.arange(width, dtype=np.float32)
    y = flow[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    return outside_frame(x, y, height=height, width=width)


def warp(
    image: Float[Tensor, "b c h w"], flow: Float[Tensor, "b 2 h w"]
) -> Float[Tensor, "b c h w"]:
    """Sample images at the targets of a flow, bilinearly; beyond the border, its nearest pixel.

    With the second frames and the flow from first to second, this is the first frames as far as
    they are visible. It is differentiable in both arguments.

    Raises:
        FlowError: They are not tensors `[b, c, h, w]` and `[b, 2, h, w]` of one size.
    """
    for name, value in (("image", image), ("flow", flow)):
        if not isinstance(value, Tensor) or value.ndim != 4 or not value.is_floating_point():
            found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise FlowError(f"the {name} is {found}; use a float tensor [b, channels, h, w]")
    batch, _, height, width = image.shape
    if flow.shape != (batch, 2, height, width):
        raise FlowError(
            f"the flow is {tuple(flow.shape)} and the image {tuple(image.shape)}; use a flow "
            "[b, 2, h, w] of the image's size"
        )
    columns = torch.arange(width, device=flow.device, dtype=flow.dtype)
    rows = torch.arange(height, device=flow.device, dtype=flow.dtype)[:, None]
    x, y = columns + flow[:, 0], rows + flow[:, 1]
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1)
    return F.grid_sample(image, grid.to(image.dtype), padding_mode="border", align_corners=False)


def compose(
    flow_ab: Float[Tensor, "b 2 h w"], flow_bc: Float[Tensor, "b 2 h w"]
) -> Float[Tensor, "b 2 h w"]:
    """Return the flow from a to c, by following a to b and then b to c.

    Raises:
        FlowError: They are not tensors `[b, 2, h, w]` of one size.
    """
    return flow_ab + warp(flow_bc, flow_ab)
