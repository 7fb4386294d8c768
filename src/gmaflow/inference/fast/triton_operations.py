"""The steps of a fast network on a GPU: cuDNN's convolutions, and Triton kernels between them."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor

from gmaflow.inference.fast import norm_kernels, rows_kernels, stream_kernels
from gmaflow.inference.fast.convolution import LANES, Convolution, Working
from gmaflow.inference.fast.operations import (
    EPSILON,
    Lookup,
    Map,
    PlainOperations,
    Targets,
    raw_convolution,
)
from gmaflow.model import lookup_kernels, upsample_kernels
from gmaflow.model.aggregation import AttentionWeights, StoredAttention, StreamedAttention
from gmaflow.model.correlation import pyramid_rows
from gmaflow.model.upsample import SHARPNESS

FLASH_CHANNELS = 256
"""Flash attention takes heads up to this size."""


class TritonOperations(PlainOperations):
    """The same steps as the plain ones, in fewer and larger kernels."""

    def convolve(self, x: Map, layer: Convolution, *, relu: bool = False) -> Map:
        """Return the convolution with its bias, perhaps with ReLU."""
        if not relu:
            return raw_convolution(x, layer, layer.bias)
        if x.is_cuda:  # cuDNN adds bias and ReLU itself
            out: Tensor = torch.cudnn_convolution_relu(
                x.permute(0, 3, 1, 2),
                layer.weight,
                layer.bias,
                layer.stride,
                layer.padding,
                (1, 1),
                1,
            )
            return out.permute(0, 2, 3, 1).contiguous()
        out = raw_convolution(x, layer, None)
        rows_kernels.bias_relu(out, _bias(layer), (out, out))
        return out

    def convolve_into(self, x: Map, layer: Convolution, targets: Targets) -> None:
        """Write the ReLU of a convolution to both targets, as many channels as they have."""
        rows_kernels.bias_relu(raw_convolution(x, layer, None), _bias(layer), targets)

    def convolve_join(self, x: Map, layer: Convolution, shortcut: Map) -> Map:
        """Return `relu(shortcut + relu(convolution))`, as the published blocks do."""
        out = raw_convolution(x, layer, None)
        rows_kernels.join(out, _bias(layer), shortcut)
        return out

    def convolve_norm(
        self, x: Map, layer: Convolution, *, relu: bool, shortcut: Map | None = None
    ) -> Map:
        """Return a convolution with instance norm, perhaps ReLU, perhaps joined to a shortcut."""
        out = raw_convolution(x, layer, None)
        norm_kernels.instance_norm(out, relu=relu, shortcut=shortcut, epsilon=EPSILON)
        return out

    def gate(self, raw: Map, prepared: Map, hidden: Map, reset_hidden: Map) -> None:
        """Turn sums into gates: update in the first half of `raw`, reset times state as named."""
        rows_kernels.gate(raw, prepared, hidden, reset_hidden)

    def renew(self, raw: Map, prepared: Map, gates: Map, hidden: Map, dense: Map) -> None:
        """Move the state towards the candidate, in place and in `dense`."""
        rows_kernels.renew(raw, prepared, gates, hidden, dense)

    def add_into(self, one: Map, other: Map, targets: Targets) -> None:
        """Write a sum to both targets."""
        rows_kernels.add(one, other, targets)

    def advance(
        self,
        change: Map,
        bias: Float[Tensor, " c"],
        flow: Float32[Tensor, "b h w 2"],
        coords: Float32[Tensor, "b 2 h w"],
        flow_input: Map,
        targets: Targets,
    ) -> None:
        """Add the change to the flow, and write it wherever the next iteration reads it."""
        rows_kernels.advance(change, bias, flow, coords, flow_input, targets)

    def correlate(
        self, features1: Map, features2: Map, *, num_levels: int, radius: int, store: bool
    ) -> Lookup:
        """Correlate two feature maps; return the way to look correlations up."""
        batch, height, width, channels = features1.shape
        # float16 rather than bfloat16 in half precision, as in the reference: correlations need
        # the digits, and features of a normalised network are far from its limits.
        dtype = torch.float32 if features1.dtype == torch.float32 else torch.float16
        rows1 = (features1.float() / channels**0.5).to(dtype).flatten(1, 2)
        rows2 = pyramid_rows(features2.to(dtype).permute(0, 3, 1, 2), num_levels=num_levels)
        working = Working(features1.device, features1.dtype)
        count = working.channels(num_levels * (2 * radius + 1) ** 2)
        out = features1.new_zeros(batch, height, width, count)
        if not store:
            return _Streamed(rows1, rows2.contiguous(), out, radius, num_levels)
        # Rows whose length is no multiple of 8 would be slow to multiply.
        rows2 = F.pad(rows2, (0, 0, 0, -rows2.shape[1] % LANES))
        return _Stored(rows1 @ rows2.transpose(1, 2), out, radius, num_levels)

    def attend(
        self,
        queries: Float[Tensor, "b a p e"],
        keys: Float[Tensor, "b a p e"],
        *,
        store: bool,
    ) -> AttentionWeights:
        """Return the attention of scaled queries and keys."""
        if store:
            scores = queries @ keys.transpose(2, 3)
            norm_kernels.softmax(scores)
            return StoredAttention(scores)
        if queries.dtype != torch.float32 and queries.shape[-1] <= FLASH_CHANNELS:
            return FlashAttention(queries.contiguous(), keys.contiguous())
        return StreamedAttention(queries, keys)

    def upsample(self, flow: Float32[Tensor, "b 2 h w"], logits: Map) -> Float32[Tensor, "b 2 H W"]:
        """Return the flow at full size, by the `logits` of convex upsampling."""
        return upsample_kernels.upsample(flow, logits, sharpness=SHARPNESS)


class FlashAttention(StreamedAttention):
    """Queries and keys only; torch's fused attention never makes the matrix."""

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        """Return for each pixel the mean of all values, weighted by attention."""
        return F.scaled_dot_product_attention(self.queries, self.keys, values, scale=1.0)


@dataclass(frozen=True)
class _Stored:
    """All correlations, and the map that every lookup writes."""

    volume: Float[Tensor, "b n m"]
    out: Map
    radius: int
    num_levels: int

    def __call__(self, coords: Float32[Tensor, "b 2 h w"]) -> Tensor:
        """Return the correlations around `coords`."""
        return lookup_kernels.lookup(
            self.volume, coords, radius=self.radius, num_levels=self.num_levels, out=self.out
        )


@dataclass(frozen=True)
class _Streamed:
    """Features, and the map that every lookup writes."""

    rows1: Float[Tensor, "b n c"]
    rows2: Float[Tensor, "b m c"]
    out: Map
    radius: int
    num_levels: int

    def __call__(self, coords: Float32[Tensor, "b 2 h w"]) -> Tensor:
        """Return the correlations around `coords`."""
        stream_kernels.stream_lookup(
            self.rows1,
            self.rows2,
            coords,
            self.out,
            radius=self.radius,
            num_levels=self.num_levels,
        )
        return self.out


def _bias(layer: Convolution) -> Tensor:
    assert layer.bias is not None
    return layer.bias
