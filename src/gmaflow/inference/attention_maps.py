"""What a pixel borrows motion from, as maps to look at."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float32

from gmaflow.errors import FlowError
from gmaflow.inference.images import ImageArray, to_tensor
from gmaflow.inference.padding import Padding, PaddingKind
from gmaflow.model import STRIDE, FlowNetwork


@torch.inference_mode()
def attention_maps(
    network: FlowNetwork,
    image: ImageArray,
    points: Sequence[tuple[float, float]],
    *,
    padding: PaddingKind,
) -> Float32[np.ndarray, "k h w"]:
    """Return for each point (x, y) how much it borrows from every pixel of the image.

    The maps are at the image's size and sum to 1 on the 1/8 grid; heads are averaged.

    Raises:
        FlowError: The network has no attention, or a point lies outside the image.
    """
    if network.attention is None:
        raise FlowError("raft has no attention to show; use gma, gma-p or gma-p-only")
    height, width = image.shape[:2]
    for x, y in points:
        if not (0 <= x <= width - 1 and 0 <= y <= height - 1):
            raise FlowError(
                f"point {x:g},{y:g} is outside the image; x goes to {width - 1}, y to {height - 1}"
            )
    device = network.features.conv_in.weight.device
    border = Padding.of_kind(padding, height, width)
    padded = border.pad(to_tensor(image, device))
    rows, columns = padded.shape[-2] // STRIDE, padded.shape[-1] // STRIDE
    cells = [
        int(y + border.top) // STRIDE * columns + int(x + border.left) // STRIDE for x, y in points
    ]
    _, context = network.encode_context(padded)
    # Only a few rows are wanted, so the matrix is never made.
    weights = network.attention(context, store=False)
    maps = weights.rows(torch.tensor(cells, dtype=torch.long, device=device)).mean(dim=1)
    maps = maps.unflatten(2, (rows, columns))
    full = F.interpolate(maps, scale_factor=STRIDE, mode="bilinear", align_corners=False)
    return border.crop(full)[0].float().cpu().numpy()
