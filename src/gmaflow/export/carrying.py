"""The warm start within an exported program.

Legend: b batch, h w rows and columns at 1/8, n = h * w.
"""

import torch
from jaxtyping import Float32
from torch import Tensor

from gmaflow.model import pixel_grid

FAR = 1e6
"""Where vectors are put that must not be found, in cells of the 1/8 grid."""


def carry(flow: Float32[Tensor, "b 2 h w"]) -> Float32[Tensor, "b 2 h w"]:
    """Move every vector to where it points; each pixel takes the vector that landed nearest.

    It is `forward_project`, but no shape depends on the numbers, as a program must have it: vectors
    that leave the frame are put far away, and not dropped. All distances are there at once.
    """
    height, width = flow.shape[-2:]
    grid = pixel_grid(flow)
    x, y = (grid + flow).flatten(2).unbind(1)
    kept = (x > 0) & (x < width) & (y > 0) & (y < height)
    x = torch.where(kept, x, FAR)
    # If all are far away, the one that is found must be none.
    vectors = torch.where(kept[:, None], flow.flatten(2), 0)
    grid_x, grid_y = grid.flatten(2)[..., None].unbind(1)  # [1, n, 1]
    distance = (grid_x - x[:, None]) ** 2 + (grid_y - y[:, None]) ** 2  # [b, n, n]
    nearest = distance.argmin(dim=2)[:, None].expand(-1, 2, -1)
    return vectors.gather(2, nearest).unflatten(2, (height, width))
