"""From which pixels each pixel of a frame borrows motion."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor

from gmaflow.errors import FlowError
from gmaflow.inference.images import ImageArray, Padding, PaddingKind, to_tensor
from gmaflow.model import STRIDE, AttentionWeights, FlowNetwork
from gmaflow.runtime.device import computing


@dataclass(frozen=True, eq=False)
class FrameAttention:
    """The attention among the pixels of one frame.

    The frame is encoded once. The matrix of all weights is never computed, only rows of it.
    """

    weights: AttentionWeights
    padding: Padding
    height: int
    width: int
    device: torch.device

    @classmethod
    def of(
        cls,
        network: FlowNetwork,
        image: ImageArray,
        device: torch.device,
        padding: PaddingKind,
        context: Float[Tensor, "1 c h w"] | None = None,
    ) -> "FrameAttention":
        """Encode a frame, or take the context of an encoded one."""
        if network.attention is None:
            raise FlowError("this network has no attention; use gma or another gma model")
        height, width = image.shape[:2]
        pads = Padding.of_kind(padding, height, width)
        with torch.inference_mode(), computing(device, (1, 3, height, width)):
            if context is None:
                _, context = network.encode_context(pads.pad(to_tensor(image, device)))
            weights = network.attention(context.to(network.dtype), store=False)
            return cls(weights, pads, height, width, device)

    @torch.inference_mode()
    def cells(self, points: Sequence[tuple[float, float]]) -> Float[Tensor, "k h w"]:
        """Return for each point (x, y) its weights on the padded 1/8 grid, which sum to 1.

        Heads are averaged.
        """
        for x, y in points:
            if not (0 <= x <= self.width - 1 and 0 <= y <= self.height - 1):
                raise FlowError(
                    f"point {x:g},{y:g} is outside the image; x goes to {self.width - 1}, y to "
                    f"{self.height - 1}"
                )
        columns = (self.padding.left + self.width + self.padding.right) // STRIDE
        flat = [
            int(y + self.padding.top) // STRIDE * columns + int(x + self.padding.left) // STRIDE
            for x, y in points
        ]
        with computing(self.device, (1, 3, self.height, self.width)):
            rows = self.weights.rows(torch.tensor(flat, dtype=torch.long, device=self.device))
        return rows.mean(dim=1)[0].unflatten(1, (-1, columns)).float()

    @torch.inference_mode()
    def maps(self, points: Sequence[tuple[float, float]]) -> Float32[np.ndarray, "k H W"]:
        """Return the weights of each point at the image's size."""
        full = F.interpolate(
            self.cells(points)[:, None], scale_factor=STRIDE, mode="bilinear", align_corners=False
        )
        return self.padding.crop(full)[:, 0].cpu().numpy()
