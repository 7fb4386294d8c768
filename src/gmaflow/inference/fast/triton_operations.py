"""The steps of a fast network on a GPU: cuDNN's convolutions, and Triton kernels between them.

Imported only where Triton is installed.
"""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor

from gmaflow.inference.fast import map_kernels
from gmaflow.inference.fast.convolution import LANES, Convolution, Working
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
from gmaflow.model.aggregation import AttentionWeights, StoredAttention, StreamedAttention
from gmaflow.model.correlation import pyramid_rows
from gmaflow.model.upsample import SHARPNESS

FLASH_CHANNELS = 256
"""The largest heads that flash attention accepts."""


class TritonOperations(Operations):
    """The steps of `Operations`, in fewer and larger kernels."""

    def convolve(self, x: Map, layer: Convolution, *, relu: bool = False) -> Map:
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
        map_kernels.bias_relu(out, _bias(layer), (out, out))
        return out

    def convolve_into(self, x: Map, layer: Convolution, targets: Targets) -> None:
        map_kernels.bias_relu(raw_convolution(x, layer, None), _bias(layer), targets)

    def convolve_join(self, x: Map, layer: Convolution, shortcut: Map) -> Map:
        out = raw_convolution(x, layer, None)
        map_kernels.join(out, _bias(layer), shortcut)
        return out

    def convolve_norm(
        self, x: Map, layer: Convolution, *, relu: bool, shortcut: Map | None = None
    ) -> Map:
        out = raw_convolution(x, layer, None)
        map_kernels.instance_norm(out, relu=relu, shortcut=shortcut, epsilon=EPSILON)
        return out

    gate = staticmethod(map_kernels.gate)
    renew = staticmethod(map_kernels.renew)
    add_into = staticmethod(map_kernels.add)
    advance = staticmethod(map_kernels.advance)

    def correlate(
        self, features1: Map, features2: Map, *, num_levels: int, radius: int, store: bool
    ) -> Lookup:
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
            look_up = partial(correlation_kernels.stream_lookup, rows1, rows2.contiguous())
            return partial(look_up, radius=radius, num_levels=num_levels, out=out)
        # Rows whose length is not a multiple of 8 are slow to multiply.
        rows2 = F.pad(rows2, (0, 0, 0, -rows2.shape[1] % LANES))
        look_up = partial(correlation_kernels.lookup, rows1 @ rows2.transpose(1, 2))
        return partial(look_up, radius=radius, num_levels=num_levels, out=out)

    def attend(self, queries: Heads, keys: Heads, *, store: bool) -> AttentionWeights:
        if store:
            scores = queries @ keys.transpose(2, 3)
            map_kernels.softmax(scores)
            return StoredAttention(scores)
        if queries.dtype != torch.float32 and queries.shape[-1] <= FLASH_CHANNELS:
            return FlashAttention(queries.contiguous(), keys.contiguous())
        return StreamedAttention(queries, keys)

    def upsample(self, flow: Float32[Tensor, "b 2 h w"], logits: Map) -> Float32[Tensor, "b 2 H W"]:
        return upsample_kernels.upsample(flow, logits, sharpness=SHARPNESS)


class FlashAttention(StreamedAttention):
    """Queries and keys only; torch's fused attention never makes the matrix."""

    def aggregate(self, values: Float[Tensor, "b a p d"]) -> Float[Tensor, "b a p d"]:
        return F.scaled_dot_product_attention(self.queries, self.keys, values, scale=1.0)


def _bias(layer: Convolution) -> Tensor:
    assert layer.bias is not None
    return layer.bias
