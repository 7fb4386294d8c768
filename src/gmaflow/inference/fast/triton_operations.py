"""The steps of a fast network on a GPU: cuDNN's convolutions, and Triton kernels between them.

Imported only where Triton is installed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
import triton
from jaxtyping import Float, Float32
from torch import Tensor

from gmaflow.inference.fast import convolution_kernels, map_kernels
from gmaflow.inference.fast.convolution import LANES, Convolution, Working
from gmaflow.inference.fast.convolution_kernels import Tile
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


ALL = frozenset(("point", "into", "join", "gate", "head", "flow", "aside", "take", "norm"))


class TritonOperations(Operations):
    """The steps of `Operations`, in fewer and larger kernels."""

    def __init__(self, fused: frozenset[str] = ALL) -> None:
        self.fused = fused
        self._side: torch.cuda.Stream | None = None

    def _fuses(self, what: str, x: Map) -> bool:
        """Tell whether to use our own convolution: not on a GPU in float32."""
        return what in self.fused and not (x.is_cuda and x.dtype == torch.float32)

    def tile(self, x: Map, layer: Convolution) -> Tile:
        return Tile(64, 128, 4, 4) if layer.weight.shape[0] > 64 else Tile(64, 64, 4, 4)

    def convolve(self, x: Map, layer: Convolution, *, relu: bool = False) -> Map:
        if not relu:
            return raw_convolution(x, layer, layer.bias)
        if layer.is_pointwise and self._fuses("point", x):
            out = x.new_empty(*x.shape[:3], layer.weight.shape[0])
            self._convolve(x, layer, (out, out))
            return out
        if x.is_cuda:  # cuDNN adds bias and ReLU itself
            out = torch.cudnn_convolution_relu(
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

    def _convolve(
        self, x: Map, layer: Convolution, targets: Targets, shortcut: Map | None = None
    ) -> None:
        convolution_kernels.convolve(
            x,
            layer.taps,
            _bias(layer),
            targets,
            kernel=layer.kernel,
            relu=True,
            shortcut=shortcut,
            tile=self.tile(x, layer),
        )

    def convolve_into(self, x: Map, layer: Convolution, targets: Targets) -> None:
        if self._fuses("into", x):
            self._convolve(x, layer, targets)
        else:
            map_kernels.bias_relu(raw_convolution(x, layer, None), _bias(layer), targets)

    def convolve_join(self, x: Map, layer: Convolution, shortcut: Map) -> Map:
        if self._fuses("join", x):
            out = torch.empty_like(shortcut)
            self._convolve(x, layer, (out, out), shortcut)
            return out
        out = raw_convolution(x, layer, None)
        map_kernels.join(out, _bias(layer), shortcut)
        return out

    def convolve_gate(
        self, seen: Map, layer: Convolution, prepared: Map, hidden: Map, reset_hidden: Map
    ) -> Map:
        if not self._fuses("gate", seen):
            return super().convolve_gate(seen, layer, prepared, hidden, reset_hidden)
        return convolution_kernels.gate(
            seen,
            layer.taps,
            prepared,
            hidden,
            reset_hidden,
            kernel=layer.kernel,
            tile=self.tile(seen, layer),
        )

    def convolve_renew(
        self, seen: Map, layer: Convolution, prepared: Map, gates: Map, hidden: Map, dense: Map
    ) -> None:
        if not self._fuses("gate", seen):
            super().convolve_renew(seen, layer, prepared, gates, hidden, dense)
            return
        convolution_kernels.renew(
            seen,
            layer.taps,
            prepared,
            gates,
            hidden,
            dense,
            kernel=layer.kernel,
            tile=self.tile(seen, layer),
        )

    def convolve_advance(
        self,
        hidden: Map,
        layers: tuple[Convolution, Convolution],
        flow: Float32[Tensor, "b h w 2"],
        coords: Float32[Tensor, "b 2 h w"],
        flow_input: Map,
        targets: Targets,
    ) -> None:
        decide, change = layers
        if not self._fuses("head", hidden):
            super().convolve_advance(hidden, layers, flow, coords, flow_input, targets)
            return
        shares = convolution_kernels.share(
            hidden,
            decide.taps,
            _bias(decide),
            change.shares,
            kernel=decide.kernel,
            tile=self.tile(hidden, decide),
        )
        convolution_kernels.advance(shares, _bias(change), flow, coords, flow_input, targets)

    def convolve_flow(self, flow_input: Map, layer: Convolution) -> Map:
        if not self._fuses("flow", flow_input):
            return super().convolve_flow(flow_input, layer)
        return convolution_kernels.convolve_pairs(
            flow_input,
            layer.pairs,
            _bias(layer),
            kernel=layer.kernel,
            tile=Tile(64, 128, 4, 1),
        )

    def take_in(self, images: Sequence[Float[Tensor, "b 3 H W"]], working: Working) -> Map:
        if "take" not in self.fused:
            return super().take_in(images, working)
        batch, _, height, width = images[0].shape
        channels = triton.next_power_of_2(working.channels(3))
        out = torch.empty(
            len(images) * batch, height, width, channels,
            dtype=working.dtype, device=images[0].device,
        )  # fmt: skip
        map_kernels.take_in(images, out)
        return out[..., : working.channels(3)]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Use a second stream, if this is being recorded."""
        if "aside" not in self.fused or not _recording():
            yield
            return
        self._side = self._side or torch.cuda.Stream()
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            yield

    def join(self) -> None:
        if self._side is not None and "aside" in self.fused and _recording():
            torch.cuda.current_stream().wait_stream(self._side)

    def convolve_norm(
        self, x: Map, layer: Convolution, *, relu: bool, shortcut: Map | None = None
    ) -> Map:
        if self._fuses("norm", x) and x.shape[-1] >= 32:
            down = layer.stride[0]
            size = -(-x.shape[1] // down), -(-x.shape[2] // down)
            tile = Tile(128, 64, 4, 4) if layer.weight.shape[0] <= 64 else Tile(64, 128, 4, 4)
            out, found = convolution_kernels.convolve_measure(
                x, layer.taps, size, kernel=layer.kernel, stride=down, tile=tile
            )
            map_kernels.normalize(
                out, found, tile.pixels, relu=relu, shortcut=shortcut, epsilon=EPSILON
            )
            return out
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


def _recording() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
