"""Warm start: carry the last pair's flow along itself, as a first guess for the next pair.

Legend: b batch, h w rows and columns at 1/8.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gmaflow.errors import FlowError
from gmaflow.inference.flow import Flow
from gmaflow.inference.images import Padding
from gmaflow.io.sizes import check_same_size
from gmaflow.model import STRIDE, pixel_grid

CHUNK = 2**24
"""Distances computed at once."""


def start_from(
    previous: Flow, shape: tuple[int, ...], padding: Padding, device: torch.device
) -> Float[Tensor, "1 2 h w"]:
    """Return the first guess that the flow of the pair before gives for images of this shape.

    Raises:
        FlowError: It is no flow, or of another size.
    """
    if not isinstance(previous, Flow):
        raise FlowError(
            f"the previous flow is a {type(previous).__name__}; give what an estimator returned, "
            "or Flow(array)"
        )
    check_same_size(
        {"the previous flow": previous.array, "the images": shape},
        remedy="a warm start needs the same size",
    )
    if previous.coarse is not None:
        coarse = torch.tensor(previous.coarse, device=device).permute(2, 0, 1)[None]
    else:
        full = torch.from_numpy(previous.array.astype(np.float32)).to(device)
        coarse = coarsen(padding.pad(full.permute(2, 0, 1)[None]))
    return forward_project(coarse)


def check_start(
    start: Float[Tensor, "b 2 h w"], images: Float[Tensor, "b 3 H W"]
) -> Float[Tensor, "b 2 h w"]:
    """Refuse a first guess that does not fit padded images; else return it, where they are."""
    if not isinstance(start, Tensor):
        raise FlowError(f"the first guess is a {type(start).__name__}; give a tensor")
    wanted = [len(images), 2, *(side // STRIDE for side in images.shape[-2:])]
    if list(start.shape) != wanted:
        raise FlowError(
            f"the first guess has the shape {list(start.shape)}; these images need {wanted}, as "
            "the coarse flow of another estimate has it"
        )
    return start.to(images)


def forward_project(flow: Float[Tensor, "b 2 h w"]) -> Float[Tensor, "b 2 h w"]:
    """Move every vector to where it points; each pixel takes the vector that landed nearest.

    As published (there with scipy's nearest-neighbour interpolation): vectors that leave the frame,
    or land on its very border, are dropped.
    """
    return torch.stack([project_one(single) for single in flow])


def project_one(flow: Float[Tensor, "2 h w"]) -> Float[Tensor, "2 h w"]:
    """Project the flow of one pair."""
    _, height, width = flow.shape
    grid = pixel_grid(flow[None])[0].flatten(1).T  # [h * w, 2]
    vectors = flow.flatten(1).T
    landed = grid + vectors
    limit = landed.new_tensor([width, height])
    kept = ((landed > 0) & (landed < limit)).all(dim=1)
    landed, vectors = landed[kept], vectors[kept]
    if len(landed) == 0:
        return torch.zeros_like(flow)
    nearest = [
        # Not by matrix products: their rounding picks wrong neighbours.
        torch.cdist(part, landed, compute_mode="donot_use_mm_for_euclid_dist").argmin(dim=1)
        for part in grid.split(max(1, CHUNK // len(landed)))
    ]
    return vectors[torch.cat(nearest)].T.reshape(flow.shape)


def coarsen(flow: Float[Tensor, "b 2 H W"]) -> Float[Tensor, "b 2 h w"]:
    """Return a full-size flow on the 1/8 grid, in that grid's pixels."""
    return torch.nn.functional.avg_pool2d(flow, STRIDE) / STRIDE
