"""Where pixels go and where a frame ends: out of frame, distances, warping and composing flow.

In the paper's code a target (x, y) is out of frame (occ-out) beyond 0..width or 0..height, although
the centres of the last pixels are at width - 1 and height - 1. This is asymmetric, but the
published figures for occ-in and occ-out are computed this way, so it is used everywhere.
"""

from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from gmaflow.errors import FlowError

Array = TypeVar("Array", np.ndarray, Tensor)

CELL = 8
"""Pixels along a cell of the grid that networks match on."""


def outside_frame(x: Array, y: Array, *, height: int, width: int) -> Array:
    """Return which points are outside a frame; for numpy and torch."""
    return (x < 0) | (x > width) | (y < 0) | (y > height)


def leaves_frame(flow: Float32[np.ndarray, "h w 2"]) -> Bool[np.ndarray, "h w"]:
    """Return which pixels have their target outside the second frame."""
    height, width = flow.shape[:2]
    return outside_frame(*targets(flow), height=height, width=width)


def targets(
    flow: Float32[np.ndarray, "h w 2"],
) -> tuple[Float32[np.ndarray, "h w"], Float32[np.ndarray, "h w"]]:
    """Return the x and y of the point that each pixel moves to."""
    height, width = flow.shape[:2]
    rows, columns = np.arange(height, dtype=np.float32), np.arange(width, dtype=np.float32)
    return flow[..., 0] + columns, flow[..., 1] + rows[:, None]


def hole_depths(
    visible: Bool[np.ndarray, "h w"], *, limit: int = 128
) -> Float32[np.ndarray, "h w"]:
    """Return the distance to the nearest visible pixel in cells, at most `limit` pixels."""
    return distance_to(torch.from_numpy(visible)[None], limit)[0].numpy() / CELL


def distance_to(mask: Bool[Tensor, "n h w"], limit: int) -> Float[Tensor, "n h w"]:
    """Return the Euclidean distance to the nearest pixel of each mask, `limit` if it is larger.

    Squared distances add up over the two axes, so each axis is searched separately.
    """
    # Sums of two squares up to 128 fit 16 bits, which is much faster.
    whole = torch.int16 if limit <= 128 else torch.int32
    along_row = torch.where(mask, 0, limit).to(whole)
    # Steps of 1, 2, 4, ... pixels together reach up to the limit.
    reach = 1
    while reach < limit:
        further = along_row + reach
        nearer = along_row.clone()
        torch.minimum(nearer[..., reach:], further[..., :-reach], out=nearer[..., reach:])
        torch.minimum(nearer[..., :-reach], further[..., reach:], out=nearer[..., :-reach])
        along_row = nearer
        reach *= 2
    squared = along_row * along_row
    nearest = squared.clone()
    height = mask.shape[-2]
    for step in range(1, min(limit, height)):
        further = squared + step * step
        torch.minimum(nearest[:, step:], further[:, :-step], out=nearest[:, step:])
        torch.minimum(nearest[:, :-step], further[:, step:], out=nearest[:, :-step])
    return nearest.float().sqrt()


def sample(
    image: Float[Tensor, "b c h w"], points: Float[Tensor, "b *n 2"]
) -> Float[Tensor, "b c *n"]:
    """Sample images at points (x, y) in pixels, bilinearly; beyond the border, its nearest pixel.

    It is differentiable in both arguments.
    """
    check_float_tensor("image", image, "[b, channels, h, w]", dims=4)
    if not image.shape[-1] * image.shape[-2]:
        raise FlowError(f"the image is {tuple(image.shape)}, which is empty")
    check_float_tensor("tensor of points", points, "[b, ..., 2], x before y")
    if points.ndim < 2 or len(points) != len(image) or points.shape[-1] != 2:
        raise FlowError(
            f"the points are {tuple(points.shape)} and the image {tuple(image.shape)}; use points "
            "[b, ..., 2], x before y"
        )
    if points.device != image.device:
        raise FlowError(
            f"the points or the flow are on {points.device} and the image on {image.device}; put "
            "both on one device"
        )
    height, width = image.shape[-2:]
    x, y = at_least_float32(points).flatten(1, -2)[:, None].unbind(dim=-1)
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1)
    pixels = at_least_float32(image)
    sampled = sample_grid(pixels, grid.to(pixels.dtype))
    return sampled[:, :, 0].unflatten(2, points.shape[1:-1]).to(image.dtype)


def sample_grid(
    image: Float[Tensor, "b c h w"],
    grid: Float[Tensor, "b y x 2"],
    *,
    mode: str = "bilinear",
    align_corners: bool = False,
) -> Float[Tensor, "b c y x"]:
    """`F.grid_sample` with padding "border"; on the CPU for MPS, which lacks it in torch 2.9."""
    device = image.device
    if device.type == "mps":
        image, grid = image.cpu(), grid.cpu()
    found = F.grid_sample(image, grid, mode, padding_mode="border", align_corners=align_corners)
    return found.to(device)


def at_least_float32(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Convert half precision to float32: it would round coordinates to pixels and more."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def check_float_tensor(name: str, value: object, expected: str, *, dims: int | None = None) -> None:
    """Raise a `FlowError` unless a value is a float tensor with `dims` dimensions (any if None)."""
    if not isinstance(value, Tensor):
        raise FlowError(f"the {name} is {type(value).__name__}; use a float tensor {expected}")
    if not value.is_floating_point() or dims not in (None, value.ndim):
        raise FlowError(
            f"the {name} is {tuple(value.shape)} of {value.dtype}; use a float tensor {expected}"
        )


def warp(
    image: Float[Tensor, "b c h w"], flow: Float[Tensor, "b 2 h w"]
) -> Float[Tensor, "b c h w"]:
    """Sample images at the targets of a flow, bilinearly; beyond the border, its nearest pixel.

    With the second frames and the flow from first to second, this is the first frames as far as
    they are visible. It is differentiable in both arguments.
    """
    check_float_tensor("image", image, "[b, channels, h, w]", dims=4)
    check_float_tensor("flow", flow, "[b, 2, h, w]", dims=4)
    batch, _, height, width = image.shape
    if flow.shape != (batch, 2, height, width):
        raise FlowError(
            f"the flow is {tuple(flow.shape)} and the image {tuple(image.shape)}; use a flow "
            "[b, 2, h, w] of the image's size"
        )
    flow = at_least_float32(flow)
    columns = torch.arange(width, device=flow.device, dtype=flow.dtype)
    rows = torch.arange(height, device=flow.device, dtype=flow.dtype)[:, None]
    return sample(image, torch.stack([columns + flow[:, 0], rows + flow[:, 1]], dim=-1))


def compose(
    flow_ab: Float[Tensor, "b 2 h w"], flow_bc: Float[Tensor, "b 2 h w"]
) -> Float[Tensor, "b 2 h w"]:
    """Return the flow from a to c, by following a to b and then b to c."""
    check_float_tensor("first flow", flow_ab, "[b, 2, h, w]", dims=4)
    check_float_tensor("second flow", flow_bc, "[b, 2, h, w]", dims=4)
    if flow_ab.shape != flow_bc.shape or flow_ab.shape[1] != 2:
        raise FlowError(
            f"the flows are {tuple(flow_ab.shape)} and {tuple(flow_bc.shape)}; use two flows "
            "[b, 2, h, w] of one size"
        )
    return flow_ab + warp(flow_bc, flow_ab)
