"""The exported program: uint8 images in, flow in pixels out.

Legend: b batch, H W rows and columns of the images of any size, h w rows and columns at 1/8,
n = h * w.
"""

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from gmaflow.inference.images import Padding
from gmaflow.inference.warm_start import coarsen
from gmaflow.model import STRIDE, EncodedFrame, FlowNetwork, pixel_grid

MIN_DYNAMIC_SIDE = 128
"""Smallest side of images of dynamic size: smaller ones have fewer pyramid levels, and their number
is part of the program."""
TRACED_SIZE = (136, 200)
"""The size that a dynamic size is traced with; any size without special properties."""
TRACED_BATCH = 2
"""The batch that a dynamic batch is traced with; a batch of 1 would be specialized."""
FAR = 1e6
"""Vectors that must not be the nearest are moved here, in cells of the 1/8 grid."""


class FlowProgram(nn.Module):
    """A network with scaling, padding and cropping inside."""

    def __init__(self, network: FlowNetwork, *, iters: int) -> None:
        super().__init__()
        self.network = network
        self.iters = iters

    def forward(
        self,
        image1: UInt8[Tensor, "b 3 H W"],
        image2: UInt8[Tensor, "b 3 H W"],
        previous: Float32[Tensor, "b 2 H W"] | None = None,
    ) -> Float32[Tensor, "b 2 H W"]:
        """Estimate the flow from `image1` to `image2`, RGB in 0..255.

        The flow of the previous pair gives a warm start; a flow of zeros gives none.
        """
        height, width = image1.shape[-2:]
        padding = Padding.to_stride(height, width)
        # Padding and cropping are written as index selections: the sizes of a pad or a slice could
        # not be dynamic.
        rows = positions_in_padded(height, padding.top)
        columns = positions_in_padded(width, padding.left)
        # Convert to float first: some runtimes support no other operation on bytes. Concatenate, so
        # that inputs of different sizes are refused.
        inputs = [image1.float() / 255, image2.float() / 255]
        if previous is not None:
            inputs.append(previous)
        joined = pick(torch.cat(inputs, dim=1), rows, columns)
        padded1, padded2, *padded_previous = joined.split([part.shape[1] for part in inputs], dim=1)
        # Both images at once; without `chunk`, since ONNX cannot split a dynamic batch.
        features = self.network.encode(torch.cat([padded1, padded2])).unflatten(0, (2, -1))
        first = EncodedFrame(features[0], *self.network.encode_context(padded1))
        start = traceable_warm_start(coarsen(padded_previous[0])) if padded_previous else None
        flow = self.network.match(first, features[1], iters=self.iters, flow_init=start).flow
        return pick(flow, torch.arange(height) + padding.top, torch.arange(width) + padding.left)


def positions_in_padded(side: int, added_before: int) -> Int64[Tensor, " n"]:
    """Return the index that each padded row or column repeats; `added_before` are in front."""
    padded = STRIDE * ((side + STRIDE - 1) // STRIDE)
    return (torch.arange(padded) - added_before).clamp(0, side - 1)


def pick(
    image: Float32[Tensor, "b c _ _"], rows: Int64[Tensor, " y"], columns: Int64[Tensor, " x"]
) -> Float32[Tensor, "b c y x"]:
    """Return the given rows and columns of an image."""
    return image.index_select(-2, rows).index_select(-1, columns)


def traceable_warm_start(flow: Float32[Tensor, "b 2 h w"]) -> Float32[Tensor, "b 2 h w"]:
    """Move every vector to where it points; each pixel takes the vector that landed nearest.

    This is `forward_project` with shapes that do not depend on the values, as tracing needs:
    vectors that leave the frame are moved far away instead of being dropped, and all distances are
    computed at once.
    """
    height, width = flow.shape[-2:]
    grid = pixel_grid(flow)
    x, y = (grid + flow).flatten(2).unbind(1)
    inside = (x > 0) & (x < width) & (y > 0) & (y < height)
    x = torch.where(inside, x, FAR)
    # If all are far away, the nearest one must be zero.
    vectors = torch.where(inside[:, None], flow.flatten(2), 0)
    grid_x, grid_y = grid.flatten(2)[..., None].unbind(1)  # [1, n, 1]
    distance = (grid_x - x[:, None]) ** 2 + (grid_y - y[:, None]) ** 2  # [b, n, n]
    nearest = distance.argmin(dim=2)[:, None].expand(-1, 2, -1)
    return vectors.gather(2, nearest).unflatten(2, (height, width))


def trace(
    program: FlowProgram,
    *,
    batch: int | None,
    size: tuple[int, int] | None,
    warm_start: bool = False,
) -> ExportedProgram:
    """Return a program's graph.

    A batch of None is any number, a size of None any from `MIN_DYNAMIC_SIDE` up.
    """
    traced_batch = TRACED_BATCH if batch is None else batch
    images = torch.zeros(2, traced_batch, 3, *(size or TRACED_SIZE), dtype=torch.uint8).unbind()
    inputs = (*images, *([images[0][:, :2].float()] if warm_start else []))
    sides = {axis: Dim.DYNAMIC(min=MIN_DYNAMIC_SIDE) for axis in (2, 3)} if size is None else {}
    pairs = {0: Dim.DYNAMIC} if batch is None else {}
    with torch.no_grad():
        return torch.export.export(
            program, inputs, dynamic_shapes=tuple({**pairs, **sides} for _ in inputs)
        )
