"""The algorithm of the published code, for comparison in `gmaflow bench --against published`.

It has the same weights and gives the same flow as `FlowNetwork`, without its optimizations: all
correlations are stored as a list of pooled volumes and looked up with `grid_sample`, the attention
matrix is stored, the recurrent unit convolves the context again in every iteration, and the flow of
every iteration is upsampled, although only the last is needed.

Legend: b batch, c channels, H W rows and columns of the images, h w = H / 8, W / 8, p = h * w
pixels, a heads, d channels of a head, k the lookup window's side, l levels.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.errors import FlowError
from gmaflow.model.aggregation import Attention, StoredAttention, aggregate_values, offset_table
from gmaflow.model.correlation import pixel_grid
from gmaflow.model.network import FlowNetwork, Prediction, check_images
from gmaflow.model.update import GRUPass

PUBLISHED_MIN_SIDE = 128
"""With smaller images the coarsest level is one cell wide, and the lookup divides by zero."""


class PublishedNetwork(nn.Module):
    """The weights of a `FlowNetwork`, computed with the published algorithm.

    All weights are shared except those of the recurrent unit.
    """

    def __init__(self, network: FlowNetwork) -> None:
        super().__init__()
        if network.config.continues:
            raise FlowError(
                "the published code has no gma-affine; measure it without the published code"
            )
        self.network = network
        self.passes = nn.ModuleList(
            UndividedPass(gru) for gru in network.update.passes if isinstance(gru, GRUPass)
        )

    def forward(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        *,
        iters: int = 12,
        flow_init: Float[Tensor, "b 2 h w"] | None = None,
    ) -> Prediction:
        """Estimate the flow of every iteration; see `FlowNetwork.forward`."""
        check_images(image1, image2)
        network = self.network
        features1, features2 = network.encode(torch.cat([image1, image2])).chunk(2)
        pyramid = correlation_pyramid(
            features1, features2, num_levels=network.config.correlation_levels
        )
        hidden, context = network.encode_context(image1)
        attention = None
        if network.attention is not None:
            attention = StoredAttention(attention_matrix(network.attention, context))

        grid = pixel_grid(features1)
        flow = torch.zeros_like(grid).repeat(len(image1), 1, 1, 1)
        if flow_init is not None:
            flow = flow + flow_init
        flows = []
        for _ in range(iters):
            flow = flow.detach()
            correlations = lookup(pyramid, grid + flow, radius=network.config.correlation_radius)
            motion = network.motion(flow, correlations)
            values = None if network.aggregate is None else network.aggregate.values(motion)
            inputs = torch.cat(
                [context, network.joined(motion, aggregate_values(attention, values))], dim=1
            )
            for gru in self.passes:
                hidden = gru(hidden, inputs)
            flow = flow + network.update.flow_head(hidden).float()
            flows.append(network.upsample(flow, hidden))
        return Prediction(flows, flow)


class UndividedPass(nn.Module):
    """One pass of the recurrent unit: three convolutions of (state, context, inputs)."""

    def __init__(self, divided: GRUPass) -> None:
        super().__init__()
        hidden = divided.candidate.out_channels
        rows, columns = divided.candidate.kernel_size
        self.padding = (rows // 2, columns // 2)
        shares = (*divided.gates.weight.split(hidden), divided.candidate.weight)
        self.weights = nn.ParameterList(
            torch.cat([share[:, :hidden], context, share[:, hidden:]], dim=1).detach()
            for share, context in zip(shares, divided.context.weight.split(hidden), strict=True)
        )
        assert divided.context.bias is not None
        self.biases = nn.ParameterList(
            bias.detach().clone() for bias in divided.context.bias.split(hidden)
        )

    def forward(
        self, hidden: Float[Tensor, "b c h w"], inputs: Float[Tensor, "b e h w"]
    ) -> Float[Tensor, "b c h w"]:
        """Return the new state."""
        both = torch.cat([hidden, inputs], dim=1)
        update = torch.sigmoid(self._convolve(0, both))
        reset = torch.sigmoid(self._convolve(1, both))
        candidate = torch.tanh(self._convolve(2, torch.cat([reset * hidden, inputs], dim=1)))
        return (1 - update) * hidden + update * candidate

    def _convolve(self, which: int, x: Float[Tensor, "b e h w"]) -> Float[Tensor, "b c h w"]:
        return F.conv2d(x, self.weights[which], self.biases[which], padding=self.padding)


def correlation_pyramid(
    features1: Float[Tensor, "b c h w"], features2: Float[Tensor, "b c h w"], *, num_levels: int
) -> list[Float[Tensor, "bp 1 _ _"]]:
    """Return all correlations in float32: an image for each pixel, at every level."""
    batch, channels, height, width = features1.shape
    with torch.autocast(features1.device.type, enabled=False):
        rows1 = features1.float().flatten(2).transpose(1, 2)
        volume = rows1 @ features2.float().flatten(2) / channels**0.5
        pyramid = [volume.reshape(batch * height * width, 1, height, width)]
        for _ in range(num_levels - 1):
            pyramid.append(F.avg_pool2d(pyramid[-1], 2))
    return pyramid


def lookup(
    pyramid: list[Float[Tensor, "bp 1 _ _"]], coords: Float[Tensor, "b 2 h w"], *, radius: int
) -> Float[Tensor, "b lkk h w"]:
    """Sample a window around `coords` (x, y) from every level."""
    batch, _, height, width = coords.shape
    steps = torch.arange(-radius, radius + 1, device=coords.device, dtype=coords.dtype)
    # The first window axis moves x, the second y, as the published weights expect.
    window = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), dim=-1)
    centre = coords.permute(0, 2, 3, 1).reshape(batch * height * width, 1, 1, 2)
    sampled = []
    for level, volume in enumerate(pyramid):
        rows, columns = volume.shape[-2:]
        largest = torch.tensor([columns - 1, rows - 1], device=coords.device, dtype=coords.dtype)
        points = 2 * (centre / 2**level + window) / largest - 1
        window_values = F.grid_sample(volume, points, align_corners=True)
        sampled.append(window_values.view(batch, height, width, -1))
    return torch.cat(sampled, dim=-1).permute(0, 3, 1, 2).contiguous()


def attention_matrix(
    attention: Attention, context: Float[Tensor, "b c h w"]
) -> Float[Tensor, "b a p p"]:
    """Return how much every pixel attends to every other."""
    height, width = context.shape[-2:]
    queries, keys = (
        part.flatten(2).unflatten(1, (attention.num_heads, -1)).transpose(2, 3)
        for part in attention.to_query_key(context).chunk(2, dim=1)
    )
    queries = queries * attention.scale
    if attention.kind == "content":
        return (queries @ keys.transpose(2, 3)).softmax(dim=-1)
    grid = queries.unflatten(2, (height, width))
    rows = offset_table(attention.row_offsets, height)
    columns = offset_table(attention.column_offsets, width)
    by_row = torch.einsum("baijd,ikd->baijk", grid, rows)
    by_column = torch.einsum("baijd,jkd->baijk", grid, columns)
    position = (by_row[..., :, None] + by_column[..., None, :]).flatten(4).flatten(2, 3)
    if attention.kind == "position":
        return position.softmax(dim=-1)
    return (queries @ keys.transpose(2, 3) + position).softmax(dim=-1)
