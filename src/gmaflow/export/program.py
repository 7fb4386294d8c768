"""What is exported: images as cameras and files give them in, flow in their pixels out.

Legend: b batch, H W rows and columns of the images, of any number.
"""

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from gmaflow.export.carrying import carry
from gmaflow.inference.images import Padding
from gmaflow.inference.warm_start import coarsen
from gmaflow.model import STRIDE, EncodedFrame, FlowNetwork

SMALLEST_FREE = 128
"""Smallest side of images whose size is left open: smaller ones have fewer pyramid levels, and the
number of levels is part of the program."""
TRACED_SIZE = (136, 200)
"""What a program of open size is traced with; any size that is not special in some way."""
TRACED_BATCH = 2
"""What a program of open batch is traced with; a batch of one would be taken for all there is."""


class FlowProgram(nn.Module):
    """A network, with all that callers would have to know of it inside."""

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

        With the flow of the pair before it is a warm start; a flow of zeros is none.
        """
        height, width = image1.shape[-2:]
        padding = Padding.to_stride(height, width)
        # Padding and cropping are written as picking rows and columns: the sizes of a pad or a
        # slice could not be left open.
        rows = positions_in_padded(height, padding.top)
        columns = positions_in_padded(width, padding.left)
        # To floats first of all: some runtimes know nothing else to do with bytes. Joined, so that
        # inputs of two sizes are refused where the program has no other way to say so.
        inputs = [image1.float() / 255, image2.float() / 255]
        if previous is not None:
            inputs.append(previous)
        joined = pick(torch.cat(inputs, dim=1), rows, columns)
        padded1, padded2, *before = joined.split([part.shape[1] for part in inputs], dim=1)
        # Both images at once; not by `chunk`, since ONNX cannot split a batch that is left open.
        features = self.network.encode(torch.cat([padded1, padded2])).unflatten(0, (2, -1))
        first = EncodedFrame(features[0], *self.network.encode_context(padded1))
        start = carry(coarsen(before[0])) if before else None
        flow = self.network.match(first, features[1], iters=self.iters, flow_init=start).flow
        return pick(flow, torch.arange(height) + padding.top, torch.arange(width) + padding.left)


def positions_in_padded(side: int, before: int) -> Int64[Tensor, " n"]:
    """Return which row or column each of the padded ones repeats; `before` are put in front."""
    padded = STRIDE * ((side + STRIDE - 1) // STRIDE)
    return (torch.arange(padded) - before).clamp(0, side - 1)


def pick(
    image: Float32[Tensor, "b c _ _"], rows: Int64[Tensor, " y"], columns: Int64[Tensor, " x"]
) -> Float32[Tensor, "b c y x"]:
    """Return the given rows and columns of an image."""
    return image.index_select(-2, rows).index_select(-1, columns)


def trace(
    program: FlowProgram,
    *,
    batch: int | None,
    size: tuple[int, int] | None,
    warm_start: bool = False,
) -> ExportedProgram:
    """Return a program's graph.

    Args:
        program: What to trace.
        batch: Pairs at a time; None for any number.
        size: Height and width of the images; None for any from `SMALLEST_FREE` on.
        warm_start: Whether it takes the flow of the pair before.
    """
    traced_batch = TRACED_BATCH if batch is None else batch
    images = torch.zeros(2, traced_batch, 3, *(size or TRACED_SIZE), dtype=torch.uint8).unbind()
    inputs = (*images, *([images[0][:, :2].float()] if warm_start else []))
    sides = {axis: Dim.DYNAMIC(min=SMALLEST_FREE) for axis in (2, 3)} if size is None else {}
    pairs = {0: Dim.DYNAMIC} if batch is None else {}
    with torch.no_grad():
        return torch.export.export(
            program, inputs, dynamic_shapes=tuple({**pairs, **sides} for _ in inputs)
        )
