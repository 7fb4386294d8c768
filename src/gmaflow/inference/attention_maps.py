"""What a pixel borrows motion from."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float32

from gmaflow.errors import FlowError
from gmaflow.inference.images import ImageArray, to_tensor
from gmaflow.inference.padding import Padding
from gmaflow.model import STRIDE, FlowNetwork


@torch.inference_mode()
def attention_maps(
    network: FlowNetwork,
    image: ImageArray,
    points: Sequence[tuple[float, float]],
    *,
    padding: Padding,
    device: torch.device,
) -> Float32[np.ndarray, "k h w"]:
    """Return for each point (x, y) how much it borrows from every pixel of the image.

    Raises:
        FlowError: The network has no attention, or a point lies outside the image.
    """
    if network.attention is None:
        raise FlowError("raft has no attention to show; use gma, gma-p or gma-p-only")
    check_points(points, *image.shape[:2])
    padded = padding.pad(to_tensor(image, device))
    rows, columns = padded.shape[-2] // STRIDE, padded.shape[-1] // STRIDE
    cells = [
        int(y + padding.top) // STRIDE * columns + int(x + padding.left) // STRIDE
        for x, y in points
    ]
    _, context = network.encode_context(padded)
    # Only a few rows are wanted, so the matrix is never made.
    weights = network.attention(context, store=False)
    maps = weights.rows(torch.tensor(cells, dtype=torch.long, device=device)).mean(dim=1)
    maps = maps.unflatten(2, (rows, columns))
    full = F.interpolate(maps, scale_factor=STRIDE, mode="bilinear", align_corners=False)
    return padding.crop(full)[0].float().cpu().numpy()


def check_points(points: Sequence[tuple[float, float]], height: int, width: int) -> None:
    """Refuse points outside the image."""
    for x, y in points:
        if not (0 <= x <= width - 1 and 0 <= y <= height - 1):
            raise FlowError(
                f"point {x:g},{y:g} is outside the image; x goes to {width - 1}, y to {height - 1}"
            )
