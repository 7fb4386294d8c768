"""The steps of a fast network on a GPU: cuDNN's convolutions, and Triton kernels between them.

Imported only where Triton is installed.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
import triton
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from gmaflow.inference.fast import convolution_kernels, map_kernels
from gmaflow.inference.fast.convolution import LANES, ComputeSpec, Convolution
from gmaflow.inference.fast.operations import (
    EPSILON,
    Heads,
    Lookup,
    Map,
    Operations,
    Targets,
    raw_convolution,
)
from gmaflow.model import correlation_kernels, upsample_kernels
from gmaflow.model.aggregation import (
    FLOAT8_MIN_CELLS,
    AttentionWeights,
    StoredAttention,
    StreamedAttention,
)
from gmaflow.model.correlation import pyramid_rows
from gmaflow.runtime.device import has_float8

FLASH_CHANNELS = 256
"""The largest heads that flash attention accepts."""
SCORE_BYTES = 32 * 2**20
"""Attention scores that are computed at once, if the matrix is stored in float8."""


class TritonOperations(Operations):
    """The steps of `Operations`, in fewer and larger kernels."""

    def convolve(self, x: Map, layer: Convolution, *, relu: bool = False) -> Map:
        if not relu:
            return raw_convolution(x, layer, layer.bias)
        if (convolved := convolve_image(x, layer, layer.bias, relu=True)) is not None:
            return convolved
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
        map_kernels.bias_relu(out, _bias(layer), (out, out))
        return out

    def convolve_into(self, x: Map, layer: Convolution, targets: Targets, *, keep: int = 0) -> None:
        out = raw_convolution(x, layer, None)
        map_kernels.bias_relu(out, _bias(layer), targets, keep=keep)

    def convolve_residual(self, x: Map, layer: Convolution, shortcut: Map) -> Map:
        out = raw_convolution(x, layer, None)
        map_kernels.add_shortcut(out, _bias(layer), shortcut)
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
        head_hidden, head_out = layers
        if not _on_tensor_cores(hidden):
            super().convolve_advance(hidden, layers, flow, coords, flow_input, targets)
            return
        shares = convolution_kernels.share(
            hidden,
            head_hidden.taps,
            _bias(head_hidden),
            head_out.shares,
            kernel=head_hidden.kernel,
        )
        convolution_kernels.advance(shares, _bias(head_out), flow, coords, flow_input, targets)

    def convolve_flow(self, flow_input: Map, layer: Convolution) -> Map:
        if not _on_tensor_cores(flow_input):
            return super().convolve_flow(flow_input, layer)
        return convolution_kernels.convolve_pairs(
            flow_input,
            layer.pairs,
            _bias(layer),
            kernel=layer.kernel,
        )

    def prepare_images(self, images: Sequence[Float[Tensor, "b 3 H W"]], spec: ComputeSpec) -> Map:
        batch, _, height, width = images[0].shape
        channels = triton.next_power_of_2(spec.channels(3))
        out = torch.empty(
            len(images) * batch, height, width, channels,
            dtype=spec.dtype, device=images[0].device,
        )  # fmt: skip
        map_kernels.prepare_images(images, out)
        return out[..., : spec.channels(3)]

    def convolve_norm(
        self, x: Map, layer: Convolution, *, relu: bool, shortcut: Map | None = None
    ) -> Map:
        out = convolve_image(x, layer, None, relu=False)
        if out is None:
            out = raw_convolution(x, layer, None)
        map_kernels.instance_norm(out, relu=relu, shortcut=shortcut, epsilon=EPSILON)
        return out

    gate = staticmethod(map_kernels.gate)
    update_state = staticmethod(map_kernels.update_state)
    add_into = staticmethod(map_kernels.add)
    advance = staticmethod(map_kernels.advance)
    upsample = staticmethod(upsample_kernels.upsample)

    def correlate(
        self, features1: Map, features2: Map, *, num_levels: int, radius: int, store: bool
    ) -> Lookup:
        batch, height, width, channels = features1.shape
        # float16 rather than bfloat16 in half precision, as in the reference: correlations need
        # the digits, and features of a normalised network are far from its limits.
        dtype = torch.float32 if features1.dtype == torch.float32 else torch.float16
        rows1 = features1.to(dtype).flatten(1, 2)
        scale = channels**-0.5
        rows2 = pyramid_rows(features2.to(dtype).permute(0, 3, 1, 2), num_levels=num_levels)
        spec = ComputeSpec(features1.device, features1.dtype)
        count = spec.channels(num_levels * (2 * radius + 1) ** 2)
        out = features1.new_zeros(batch, height, width, count)
        if not store:
            look_up = partial(correlation_kernels.stream_lookup, rows1, rows2.contiguous())
            return partial(look_up, radius=radius, num_levels=num_levels, scale=scale, out=out)
        # Rows whose length is not a multiple of 8 are slow to multiply.
        rows2 = F.pad(rows2, (0, 0, 0, -rows2.shape[1] % LANES))
        volume = rows1.new_empty(batch, rows1.shape[1], rows2.shape[1])
        # Sums are scaled before they are rounded.
        torch.baddbmm(volume, rows1, rows2.transpose(1, 2), beta=0, alpha=scale, out=volume)
        look_up = partial(correlation_kernels.lookup, volume)
        return partial(look_up, radius=radius, num_levels=num_levels, out=out)

    def attend(self, queries: Heads, keys: Heads, *, store: bool) -> AttentionWeights:
        half = queries.dtype != torch.float32
        if store and half and has_float8(queries.device) and queries.shape[2] >= FLOAT8_MIN_CELLS:
            return Float8Attention.of(queries, keys)
        if store:
            scores = queries @ keys.transpose(2, 3)
            map_kernels.softmax(scores)
            return StoredAttention(scores)
        if half and queries.shape[-1] <= FLASH_CHANNELS:
            return FlashAttention(queries.contiguous(), keys.contiguous())
        return StreamedAttention(queries, keys)


class FlashAttention(StreamedAttention):
    """Queries and keys only; torch's fused attention never makes the matrix."""

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        return F.scaled_dot_product_attention(self.queries, self.keys, values, scale=1.0)


class Float8Attention:
    """A stored attention matrix in float8, for large frames.

    Every iteration reads the whole matrix, at the memory's bandwidth: half the bytes take half the
    time. Each row of the weights, and each channel of the values, has its own scale. The tensor
    cores of an H200 sum the products to about 14 bits. The flow changes by about a thousandth of a
    pixel where motion is found.
    """

    def __init__(
        self, weights: Float[Tensor, "i p q"], scale: Float32[Tensor, "i p"], num_heads: int
    ) -> None:
        self.weights = weights
        """For all heads of all pairs; padded with zero columns, since tensor cores need multiples
        of 16."""
        self.scale = scale
        self.num_heads = num_heads

    @classmethod
    def of(cls, queries: Heads, keys: Heads) -> "Float8Attention":
        """Make the matrix a few rows at a time, so that scores stay in the cache."""
        batch, heads, pixels, _ = queries.shape
        size = batch * heads, pixels, padded(pixels)
        weights = torch.empty(size, dtype=torch.float8_e4m3fn, device=queries.device)
        scale = torch.empty(size[:2], dtype=torch.float32, device=queries.device)
        rows = max(1, SCORE_BYTES // (pixels * queries.element_size()))
        each_head = zip(queries.flatten(0, 1), keys.flatten(0, 1), weights, scale, strict=True)
        for head_queries, head_keys, head_weights, head_scale in each_head:
            chunks = zip(
                *(x.split(rows) for x in (head_queries, head_weights, head_scale)), strict=True
            )
            for query_chunk, weight_chunk, scale_chunk in chunks:
                map_kernels.softmax_float8(query_chunk @ head_keys.mT, weight_chunk, scale_chunk)
        return cls(weights, scale, heads)

    def rows(self, queries: Int64[Tensor, " q"]) -> Float[Tensor, "b a q p"]:
        pixels = self.weights.shape[1]
        # As bytes: not every version of torch can index float8.
        weights = self.weights.view(torch.uint8)[:, queries, :pixels].view(self.weights.dtype)
        weights = weights.float() * self.scale[:, queries, None]
        return weights.unflatten(0, (-1, self.num_heads))

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        rows = values.flatten(0, 1).mT.contiguous()  # tensor cores need contiguous pixels
        items, channels, pixels = rows.shape
        size = items, padded(channels), self.weights.shape[2]
        quantized = torch.empty(size, dtype=self.weights.dtype, device=values.device)
        channel_scale = map_kernels.quantize(rows, quantized)
        one = torch.ones((), device=values.device)
        sums = torch.empty(items, pixels, size[1], device=values.device)
        for weights, head_values, head_sums in zip(self.weights, quantized, sums, strict=True):
            torch._scaled_mm(
                weights, head_values.mT, one, one, out_dtype=torch.float32, out=head_sums
            )
        out = rows.new_empty(items, pixels, channels)
        map_kernels.dequantize(sums, self.scale, channel_scale, out)
        return out.unflatten(0, (-1, self.num_heads))


def padded(count: int) -> int:
    """Return the next multiple of 16."""
    return -(-count // 16) * 16


def _bias(layer: Convolution) -> Tensor:
    assert layer.bias is not None
    return layer.bias


def convolve_image(x: Map, layer: Convolution, bias: Tensor | None, *, relu: bool) -> Map | None:
    """Return the first convolution of an encoder, if the kernel supports it."""
    down, right = layer.stride
    if layer.is_pointwise or down != right or not _on_tensor_cores(x) or layer.rows is None:
        return None
    return convolution_kernels.convolve_image(
        x, layer.rows, bias, kernel=layer.kernel, stride=down, relu=relu
    )


def _on_tensor_cores(x: Tensor) -> bool:
    """Return whether these convolutions are faster than cuDNN's: not on a GPU in float32."""
    return not (x.is_cuda and x.dtype == torch.float32)
