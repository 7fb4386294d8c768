"""What is exported: images as cameras and files give them in, flow in their pixels out.

Legend: b batch, H W rows and columns of the images, of any number.
"""

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from gmaflow.inference.padding import Padding
from gmaflow.model import STRIDE, FlowNetwork

SMALLEST_FREE = 128
"""Smallest side of images whose size is left open: smaller ones have fewer pyramid levels, and the
number of levels is part of the program."""
TRACED_SIZE = (136, 200)
"""What a program of open size is traced with; any size that is not special in some way."""


class FlowProgram(nn.Module):
    """A network, with all that callers would have to know of it inside."""

    def __init__(self, network: FlowNetwork, *, iters: int) -> None:
        super().__init__()
        self.network = network
        self.iters = iters

    def forward(
        self, image1: UInt8[Tensor, "b 3 H W"], image2: UInt8[Tensor, "b 3 H W"]
    ) -> Float32[Tensor, "b 2 H W"]:
        """Estimate the flow from `image1` to `image2`, RGB in 0..255."""
        height, width = image1.shape[-2:]
        padding = Padding.to_stride(height, width)
        # Padding and cropping are written as picking rows and columns: the sizes of a pad or a
        # slice could not be left open.
        rows = positions_in_padded(height, padding.top)
        columns = positions_in_padded(width, padding.left)
        # To floats first of all: some runtimes know nothing else to do with bytes. Joined, so that
        # images of two sizes are refused where the program has no other way to say so.
        both = torch.cat([image1.float(), image2.float()]) / 255
        padded1, padded2 = pick(both, rows, columns).chunk(2)
        flow = self.network(padded1, padded2, iters=self.iters).flow
        return pick(flow, torch.arange(height) + padding.top, torch.arange(width) + padding.left)


def positions_in_padded(side: int, before: int) -> Int64[Tensor, " n"]:
    """Return which row or column each of the padded ones repeats; `before` are put in front."""
    padded = STRIDE * ((side + STRIDE - 1) // STRIDE)
    return (torch.arange(padded) - before).clamp(0, side - 1)


def pick(
    image: Float32[Tensor, "b c _ _"], rows: Int64[Tensor, " y"], columns: Int64[Tensor, " x"]
) -> Float32[Tensor, "b c y x"]:
    """Return the given rows and columns of an image."""
    return image.index_select(2, rows).index_select(3, columns)


def trace(program: FlowProgram, *, batch: int, size: tuple[int, int] | None) -> ExportedProgram:
    """Return a program's graph, for images of one size, or of any from `SMALLEST_FREE` on."""
    images = torch.zeros(2, batch, 3, *(size or TRACED_SIZE), dtype=torch.uint8).unbind()
    sides = None
    if size is None:
        sides = {axis: Dim.DYNAMIC(min=SMALLEST_FREE) for axis in (2, 3)}
    with torch.no_grad():
        return torch.export.export(program, images, dynamic_shapes=(sides, sides))
