"""The steps of a fast network in plain torch, for any device.

`TritonOperations` computes the same with kernels. Maps are channels-last, `[b, h, w, c]`; a target
may be a slice of the channels of a wider map.

On a CPU `CachedLookup` looks up correlations a few pixels at a time, so that they fit in caches.

Legend: b batch, c channels, h w rows and columns at 1/8, n = h * w pixels of frame 1, m cells of
frame 2 on all levels together, l levels, k = 2 * radius + 1 the window's side, a heads, p pixels,
e channels compared, q some pixels.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from gmaflow.inference.fast.convolution import (
    ComputeSpec,
    Convolution,
    PackedProduct,
)
from gmaflow.model.aggregation import (
    AttentionWeights,
    DistanceBias,
    StoredAttention,
    StreamedAttention,
)
from gmaflow.model.correlation import correlate, pixel_grid, pyramid_rows
from gmaflow.model.update import convex_upsample

Map: TypeAlias = Float[Tensor, "_ _ _ _"]
"""Channels last: batch, rows, columns, channels."""
Heads: TypeAlias = Float[Tensor, "b a p e"]
"""Queries or keys of each head."""
Targets: TypeAlias = tuple[Tensor, Tensor]
"""Two tensors to write the same values to; may be the same one twice."""
Lookup: TypeAlias = Callable[[Float32[Tensor, "b 2 h w"]], Tensor]
"""Coordinates to the correlations around them, `[b, h, w, channels]`."""

SUMMED_ROWS = 1024
"""Rows that are summed in float32; the sums are then added in float64."""
NORMALIZED_ROWS = 2048
"""Rows that each thread normalises at once."""
SOFTMAX_BYTES = {"cpu": 4 * 2**20, "other": 32 * 2**20}
"""Softmax works on this much at once, so that there is never a second attention matrix. It fits in
the caches of a CPU."""
EPSILON = 1e-5
"""The default of torch's instance norm."""
ZERO_CELLS = 16
"""Zero cells after the last level, which positions outside the frame read. One would do; this many
keep rows aligned."""
LOOKUP_PIXELS = 512
"""Pixels that each thread looks up at once; their windows take some 2 MB."""


class Operations:
    """The steps in torch, for any device."""

    def convolve(self, x: Map, layer: Convolution, *, relu: bool = False) -> Map:
        """Return the convolution with its bias, optionally with ReLU."""
        return raw_convolution(x, layer, layer.bias, relu=relu)

    def convolve_into(self, x: Map, layer: Convolution, targets: Targets, *, keep: int = 0) -> None:
        """Write the ReLU of a convolution to both targets, to all but the last `keep` channels."""
        channels = targets[0].shape[-1] - keep
        first, second = targets
        distinct = [first] if second is first else [first, second]
        values = self.convolve(x, layer, relu=True)[..., :channels]
        _copy(values, [target[..., :channels] for target in distinct])

    def convolve_residual(self, x: Map, layer: Convolution, shortcut: Map) -> Map:
        """Return `relu(shortcut + relu(convolution))`, as the published blocks do."""
        return self.convolve(x, layer, relu=True).add_(shortcut).relu_()

    def convolve_norm(
        self, x: Map, layer: Convolution, *, relu: bool, shortcut: Map | None = None
    ) -> Map:
        """Return a convolution with instance norm, then optionally ReLU and a shortcut."""
        out = raw_convolution(x, layer, None)
        for i, rows in enumerate(out.flatten(1, 2)):
            short = None if shortcut is None else shortcut[i].flatten(0, 1)
            normalize(rows, relu=relu, shortcut=short)
        return out

    def convolve_advance(
        self,
        hidden: Map,
        layers: tuple[Convolution, Convolution],
        flow: Float32[Tensor, "b h w 2"],
        coords: Float32[Tensor, "b 2 h w"],
        flow_input: Map,
        targets: Targets,
    ) -> None:
        """Apply the flow head to the state, and add its output to the flow as `advance` does."""
        head_hidden, head_out = layers
        assert head_out.bias is not None
        change = self.convolve(
            self.convolve(hidden, head_hidden, relu=True), replace(head_out, bias=None)
        )
        # `advance` adds the bias, in float32.
        self.advance(change, head_out.bias, flow, coords, flow_input, targets)

    def convolve_flow(self, flow_input: Map, layer: Convolution) -> Map:
        """Return the ReLU of a convolution of the flow, which has two channels."""
        return self.convolve(flow_input, layer, relu=True)

    def prepare_images(self, images: Sequence[Float[Tensor, "b 3 H W"]], spec: ComputeSpec) -> Map:
        """Return images in 0..1 as one map in -1..1, its channels padded to suit convolutions."""
        batch, _, height, width = images[0].shape
        shape = (len(images) * batch, height, width, spec.channels(3))
        signed = torch.zeros(shape, device=images[0].device, dtype=spec.dtype)
        for part, image in zip(signed.split(batch), images, strict=True):
            part[..., :3] = (2 * image - 1).permute(0, 2, 3, 1)
        return signed

    def gate(self, raw: Map, context_terms: Map, hidden: Map, reset_hidden: Map) -> None:
        """Apply the gates: `update` in half of `raw`, `reset * hidden` in `reset_hidden`."""
        channels = hidden.shape[-1]
        raw.add_(context_terms[..., : 2 * channels]).sigmoid_()
        torch.mul(raw[..., channels:], hidden, out=reset_hidden)

    def update_state(
        self, raw: Map, context_terms: Map, gates: Map, hidden: Map, dense: Map
    ) -> None:
        """Move the state towards the candidate, in place and in `dense`."""
        channels = hidden.shape[-1]
        fast_tanh_(raw.add_(context_terms[..., 2 * channels :]))
        hidden.lerp_(raw, gates[..., :channels])
        dense.copy_(hidden)

    def add_into(self, one: Map, other: Map, targets: Targets) -> None:
        """Write a sum to both targets."""
        torch.add(one, other, out=targets[0])
        _copy(targets[0], targets[1:])

    def advance(
        self,
        change: Map,
        bias: Float[Tensor, " c"],
        flow: Float32[Tensor, "b h w 2"],
        coords: Float32[Tensor, "b 2 h w"],
        flow_input: Map,
        targets: Targets,
    ) -> None:
        """Add the change to the flow, and write it to where the next iteration reads it."""
        flow.add_(change[..., :2].float() + bias[:2].float())
        torch.add(pixel_grid(coords), flow.permute(0, 3, 1, 2), out=coords)
        _copy(flow, (flow_input[..., :2], *targets))

    def correlate(
        self, features1: Map, features2: Map, *, num_levels: int, radius: int, store: bool
    ) -> Lookup:
        """Correlate two feature maps; return a function that looks correlations up."""
        if store and features1.device.type == "cpu":
            return CachedLookup(features1, features2, num_levels=num_levels, radius=radius)
        correlation = correlate(
            features1.permute(0, 3, 1, 2),
            features2.permute(0, 3, 1, 2),
            num_levels=num_levels,
            radius=radius,
            store=store,
        )
        spec = ComputeSpec(features1.device, features1.dtype)

        def look_up(coords: Float32[Tensor, "b 2 h w"]) -> Tensor:
            correlations = correlation.lookup(coords).to(features1.dtype).permute(0, 2, 3, 1)
            padding = spec.channels(correlations.shape[-1]) - correlations.shape[-1]
            return F.pad(correlations, (0, padding)) if padding else correlations

        return look_up

    def attend(self, queries: Heads, keys: Heads, *, store: bool) -> AttentionWeights:
        """Return the attention of scaled queries and keys."""
        if not store:
            return StreamedAttention(queries, keys)
        return self._attend_stored(queries, keys, queries.dtype)

    def _attend_stored(self, queries: Heads, keys: Heads, dtype: torch.dtype) -> "BlockedAttention":
        each_head = zip(queries.flatten(0, 1), keys.flatten(0, 1), strict=True)
        blocks = [
            softmax_blocks(head_queries, head_keys, dtype) for head_queries, head_keys in each_head
        ]
        return BlockedAttention(blocks, queries.shape[1])

    def attend_with_bias(
        self, queries: Heads, keys: Heads, bias: DistanceBias, *, store: bool
    ) -> AttentionWeights:
        """Return the attention of scaled queries and keys, with a bias that falls with distance.

        Its products with float32 values are float32, whatever the dtype of queries and keys.
        """
        streamed = StreamedAttention(queries, keys, bias)
        if not store:
            return streamed
        batch, heads, pixels, _ = queries.shape
        weights = queries.new_empty(batch, heads, pixels, pixels)
        rows = softmax_rows(queries.device, batch * heads * pixels)
        row_chunks = torch.arange(pixels, device=queries.device).split(rows)
        for block, row_indices in zip(weights.split(rows, dim=2), row_chunks, strict=True):
            block.copy_(streamed.rows(row_indices))
        if weights.device.type != "cpu":
            return StoredAttention(weights)
        return BlockedAttention([[matrix] for matrix in weights.flatten(0, 1)], heads)

    def upsample(self, flow: Float32[Tensor, "b 2 h w"], logits: Map) -> Float32[Tensor, "b 2 H W"]:
        """Return the flow at full size, by the `logits` of convex upsampling."""
        return convex_upsample(flow, logits.permute(0, 3, 1, 2))


class MixedOperations(Operations):
    """The steps in bfloat16 on a CPU, with float32 where digits matter.

    bfloat16 has 8 bits of precision, enough for convolutions and the product with the attention
    matrix. Correlation, flow, the recurrent state (`dense`), statistics of instance norm, softmax
    and upsampling are float32.
    """

    def update_state(
        self, raw: Map, context_terms: Map, gates: Map, hidden: Map, dense: Map
    ) -> None:
        """Move the state towards the candidate, in `dense`, and round it to `hidden`."""
        channels = hidden.shape[-1]
        candidate = torch.add(raw, context_terms[..., 2 * channels :]).float()
        fast_tanh_(candidate)
        dense.lerp_(candidate, gates[..., :channels].float())
        hidden.copy_(dense)

    def correlate(
        self, features1: Map, features2: Map, *, num_levels: int, radius: int, store: bool
    ) -> Lookup:
        """Correlate two feature maps in float32."""
        maps = features1.float(), features2.float()
        return super().correlate(*maps, num_levels=num_levels, radius=radius, store=store)

    def attend(self, queries: Heads, keys: Heads, *, store: bool) -> AttentionWeights:
        """Return the attention of scaled queries and keys; only its weights are bfloat16."""
        if not store:
            return ExactAttention(queries, keys)
        return self._attend_stored(queries, keys, torch.bfloat16)


class ExactAttention(StreamedAttention):
    """Streamed attention in float32, for values of any dtype."""

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        return super().aggregate(values.float()).to(values.dtype)


def softmax_blocks(
    queries: Float[Tensor, "p e"], keys: Float[Tensor, "p e"], dtype: torch.dtype
) -> list[Float[Tensor, "_ p"]]:
    """Return the softmax of all products of one head, in blocks of a few rows."""
    rows = softmax_rows(queries.device, len(keys))
    product = PackedProduct(keys, rows=rows)
    chunks = queries.split(rows)
    return [product(chunk.contiguous()).softmax(dim=-1).to(dtype) for chunk in chunks]


def softmax_rows(device: torch.device, columns: int) -> int:
    """Return how many rows of an attention matrix to compute at once."""
    limit = SOFTMAX_BYTES["cpu" if device.type == "cpu" else "other"]
    return max(1, limit // (columns * 4))


class BlockedAttention:
    """A stored attention matrix in blocks of rows, whose products oneDNN computes on a CPU.

    Blocks fit into the memory that the encoders have freed and the C library keeps. A whole matrix
    would be newly mapped memory, and its page faults take as long as a product.
    """

    def __init__(self, blocks: list[list[Float[Tensor, "_ p"]]], num_heads: int) -> None:
        self.blocks = blocks
        """For each head of each pair; all blocks but the last have equally many rows."""
        self.num_heads = num_heads

    def rows(self, queries: Int64[Tensor, " q"]) -> Float[Tensor, "b a q p"]:
        size = len(self.blocks[0][0])
        positions = [divmod(query, size) for query in queries.tolist()]
        head_rows = [torch.stack([parts[i][j] for i, j in positions]) for parts in self.blocks]
        return torch.stack(head_rows).unflatten(0, (-1, self.num_heads))

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        out = torch.empty_like(values, memory_format=torch.contiguous_format)
        each_head = (x.flatten(0, 1) for x in (values, out))
        for blocks, head_values, head_out in zip(self.blocks, *each_head, strict=True):
            product = PackedProduct(head_values.mT, rows=len(blocks[0]))
            for block, part in zip(blocks, head_out.split(len(blocks[0])), strict=True):
                part.copy_(product(block))
        return out


def raw_convolution(
    x: Map, layer: Convolution, bias: Tensor | None, *, relu: bool = False
) -> Tensor:
    """Convolve a channels-last map, in the dtype of the layer."""
    x = x.to(layer.weight.dtype)
    if layer.faster is not None:
        return layer.faster(x, bias, relu=relu)
    if layer.is_pointwise:
        out = F.linear(x, layer.weight.flatten(1), bias)
    else:
        out = F.conv2d(x.permute(0, 3, 1, 2), layer.weight, bias, layer.stride, layer.padding)
        out = out.permute(0, 2, 3, 1).contiguous()
    return out.relu_() if relu else out


def normalize(
    rows: Float[Tensor, "p c"], *, relu: bool = False, shortcut: Float[Tensor, "p c"] | None = None
) -> None:
    """Bring every channel to mean 0 and variance 1, in place; then ReLU and a shortcut.

    torch's instance norm takes six times as long on channels-last maps, and makes another map.
    """
    mean, variance = channel_statistics(rows)
    scale = (variance + EPSILON).rsqrt()
    shift = -mean * scale
    # All steps on a few rows at a time, which fit in the caches of a CPU.
    at_once = NORMALIZED_ROWS * torch.get_num_threads() if rows.device.type == "cpu" else len(rows)
    for first in range(0, len(rows), at_once):
        part = rows[first : first + at_once]
        torch.addcmul(shift, part, scale, out=part)
        if relu:
            part.relu_()
        if shortcut is not None:
            part.add_(shortcut[first : first + at_once]).relu_()


def channel_statistics(
    rows: Float[Tensor, "p c"],
) -> tuple[Float32[Tensor, " c"], Float32[Tensor, " c"]]:
    """Return mean and variance of every channel.

    On a CPU torch adds row after row. A hundred thousand rows lose three digits, which the layers
    that follow turn into a hundredth of a pixel. So few rows are added at a time there.
    """
    parts = rows.split(SUMMED_ROWS) if rows.device.type == "cpu" else (rows,)
    statistics = [torch.batch_norm_update_stats(part, None, None, momentum=0.0) for part in parts]
    if len(statistics) == 1:  # always on CUDA, where the code below could not be recorded
        mean, variance = statistics[0]
        return mean.float(), variance.float()
    means, variances = (torch.stack(values).double() for values in zip(*statistics, strict=True))
    shares = means.new_tensor([len(part) / len(rows) for part in parts])
    mean = shares @ means
    variance = shares @ (variances + (means - mean).square())
    return mean.float(), variance.float()


def fast_tanh_(x: Float[Tensor, "..."]) -> None:
    """Replace values by their tanh.

    On a CPU torch's tanh takes several times as long as its sigmoid. In half precision, used only
    on GPUs, the sigmoid would lose digits near 0.
    """
    if x.device.type == "cpu":
        x.mul_(2).sigmoid_().mul_(2).sub_(1)
    else:
        x.tanh_()


def _copy(values: Tensor, targets: Sequence[Tensor]) -> None:
    written: Tensor | None = None
    for target in targets:
        if target is not written:
            target.copy_(values)
        written = target


class CachedLookup:
    """All correlations, looked up as `StoredCorrelation` does."""

    def __init__(
        self,
        features1: Float[Tensor, "b h w c"],
        features2: Float[Tensor, "b h w c"],
        *,
        num_levels: int,
        radius: int,
    ) -> None:
        rows1 = (features1 / features1.shape[-1] ** 0.5).flatten(1, 2)
        rows2 = pyramid_rows(features2.permute(0, 3, 1, 2), num_levels=num_levels)
        rows2 = F.pad(rows2, (0, 0, 0, ZERO_CELLS))
        pairs = zip(rows1, rows2, strict=True)
        # A matrix [n, m] for each pair.
        self.volumes = [PackedProduct(cells, rows=len(rows))(rows) for rows, cells in pairs]
        height, width = features1.shape[1:3]
        level = torch.arange(num_levels, device=features1.device)
        self.scale = 2.0 ** -level.float()
        self.sides = torch.stack([width // 2**level, height // 2**level])  # x first, as in coords
        cells = self.sides.prod(dim=0)
        self.level_start = cells.cumsum(0) - cells
        self.radius = radius

    def __call__(self, coords: Float32[Tensor, "b 2 h w"]) -> Tensor:
        """Return the correlations around `coords`, `[b, h, w, lkk]`."""
        batch, _, height, width = coords.shape
        side = 2 * self.radius + 1
        out = coords.new_empty(batch, height * width, len(self.scale), side, side)
        at_once = LOOKUP_PIXELS * torch.get_num_threads()
        for item in range(batch):
            points = coords[item].flatten(1)
            for first in range(0, height * width, at_once):
                chunk = slice(first, first + at_once)
                self._look_up(self.volumes[item][chunk], points[:, chunk], out[item, chunk])
        return out.view(batch, height, width, -1)

    def _look_up(
        self,
        volume: Float[Tensor, "q m"],
        coords: Float32[Tensor, "2 q"],
        out: Float32[Tensor, "q l k k"],
    ) -> None:
        points = coords[..., None] * self.scale
        corner = points.floor().nan_to_num()  # NaN must not become an index
        right, down = (points - corner)[..., None, None]
        steps = torch.arange(-self.radius, self.radius + 2, device=coords.device)
        whole = corner[..., None] + steps
        inside = (whole >= 0) & (whole < self.sides[:, None, :, None])
        column, row = torch.where(inside, whole, 0).long()
        outside_x, outside_y = ~inside
        # A position outside on either axis gives the last cell or beyond; clamped to the last.
        zero_cell = volume.shape[1] - 1
        start = self.level_start[:, None] + row * self.sides[0][:, None]
        start.masked_fill_(outside_y, zero_cell)
        column.masked_fill_(outside_x, zero_cell)
        index = (start[..., None, :] + column[..., :, None]).clamp_(max=zero_cell)
        values = volume.gather(1, index.flatten(1)).view(index.shape)
        # The first window axis moves x, the second y: RAFT's order, see `Window.around`.
        values = torch.lerp(values[..., :-1, :], values[..., 1:, :], right)
        torch.lerp(values[..., :-1], values[..., 1:], down, out=out)
