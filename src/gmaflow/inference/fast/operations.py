"""What a fast network is made of, in plain torch: the meaning, and the way of every device.

`TritonOperations` does the same with kernels. Maps are channels-last, `[b, h, w, c]`; a target may
be a slice of a wider map's channels.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor

from gmaflow.inference.fast.cached_lookup import CachedLookup
from gmaflow.inference.fast.compact_attention import CompactAttention
from gmaflow.inference.fast.convolution import Convolution, Working
from gmaflow.model.aggregation import AttentionWeights, StoredAttention, StreamedAttention
from gmaflow.model.correlation import correlate
from gmaflow.model.upsample import SHARPNESS, convex_upsample, pixel_grid

Map: TypeAlias = Float[Tensor, "_ _ _ _"]
"""Channels last: batch, rows, columns, channels."""
Targets: TypeAlias = tuple[Tensor, Tensor]
"""Two places for the same values; the same place twice where one is enough."""
Lookup: TypeAlias = Callable[[Float32[Tensor, "b 2 h w"]], Tensor]
"""Coordinates to the correlations around them, `[b, h, w, channels]`."""

SUMMED_ROWS = 1024
"""Added up in float32 before float64 takes over."""
SOFTMAX_BYTES = 32 * 2**20
"""Softmax works on this much at once, so that there never is a second attention matrix."""
EPSILON = 1e-5
"""Of instance norm, torch's default."""


@runtime_checkable
class Operations(Protocol):
    """The steps between which a fast network is cut."""

    def convolve(self, x: Tensor, layer: Convolution, *, relu: bool = False) -> Tensor:
        """Return the convolution with its bias, perhaps with ReLU."""
        ...

    def convolve_into(self, x: Tensor, layer: Convolution, targets: Targets) -> None:
        """Write the ReLU of a convolution to both targets, as many channels as they have."""
        ...

    def convolve_join(self, x: Tensor, layer: Convolution, shortcut: Tensor) -> Tensor:
        """Return `relu(shortcut + relu(convolution))`, as the published blocks do."""
        ...

    def convolve_norm(
        self, x: Tensor, layer: Convolution, *, relu: bool, shortcut: Tensor | None = None
    ) -> Tensor:
        """Return a convolution with instance norm, perhaps ReLU, perhaps joined to a shortcut."""
        ...

    def gate(self, raw: Tensor, prepared: Tensor, hidden: Tensor, reset_hidden: Tensor) -> None:
        """Turn sums into gates: update in the first half of `raw`, reset times state as named."""
        ...

    def renew(
        self, raw: Tensor, prepared: Tensor, gates: Tensor, hidden: Tensor, dense: Tensor
    ) -> None:
        """Move the state towards the candidate, in place and in `dense`."""
        ...

    def add_into(self, one: Tensor, other: Tensor, targets: Targets) -> None:
        """Write a sum to both targets."""
        ...

    def advance(
        self,
        change: Tensor,
        bias: Tensor,
        flow: Tensor,
        coords: Tensor,
        flow_input: Tensor,
        targets: Targets,
    ) -> None:
        """Add the change to the flow, and write it wherever the next iteration reads it."""
        ...

    def correlate(
        self, features1: Tensor, features2: Tensor, *, num_levels: int, radius: int, store: bool
    ) -> Lookup:
        """Correlate two feature maps; return the way to look correlations up."""
        ...

    def attend(self, queries: Tensor, keys: Tensor, *, store: bool) -> AttentionWeights:
        """Return the attention of scaled queries and keys `[b, a, p, e]`."""
        ...

    def upsample(self, flow: Tensor, logits: Tensor) -> Tensor:
        """Return `[b, 2, h, w]` at full size, `[b, 2, H, W]`, by the logits of convex weights."""
        ...


class PlainOperations:
    """All of it in torch, on any device."""

    def convolve(self, x: Map, layer: Convolution, *, relu: bool = False) -> Map:
        """Return the convolution with its bias, perhaps with ReLU."""
        out = raw_convolution(x, layer, layer.bias)
        return out.relu_() if relu else out

    def convolve_into(self, x: Map, layer: Convolution, targets: Targets) -> None:
        """Write the ReLU of a convolution to both targets, as many channels as they have."""
        channels = targets[0].shape[-1]
        _copy(self.convolve(x, layer, relu=True)[..., :channels], targets)

    def convolve_join(self, x: Map, layer: Convolution, shortcut: Map) -> Map:
        """Return `relu(shortcut + relu(convolution))`, as the published blocks do."""
        return self.convolve(x, layer, relu=True).add_(shortcut).relu_()

    def convolve_norm(
        self, x: Map, layer: Convolution, *, relu: bool, shortcut: Map | None = None
    ) -> Map:
        """Return a convolution with instance norm, perhaps ReLU, perhaps joined to a shortcut."""
        out = raw_convolution(x, layer, None)
        for rows in out.view(len(out), -1, out.shape[-1]):
            normalize(rows)
        out = out.relu_() if relu else out
        return out if shortcut is None else out.add_(shortcut).relu_()

    def gate(self, raw: Map, prepared: Map, hidden: Map, reset_hidden: Map) -> None:
        """Turn sums into gates: update in the first half of `raw`, reset times state as named."""
        channels = hidden.shape[-1]
        raw.add_(prepared[..., : 2 * channels]).sigmoid_()
        torch.mul(raw[..., channels:], hidden, out=reset_hidden)

    def renew(self, raw: Map, prepared: Map, gates: Map, hidden: Map, dense: Map) -> None:
        """Move the state towards the candidate, in place and in `dense`."""
        channels = hidden.shape[-1]
        raw.add_(prepared[..., 2 * channels :]).tanh_()
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
        """Add the change to the flow, and write it wherever the next iteration reads it."""
        flow.add_(change[..., :2].float() + bias[:2].float())
        torch.add(pixel_grid(coords), flow.permute(0, 3, 1, 2), out=coords)
        _copy(flow, (flow_input[..., :2], *targets))

    def correlate(
        self, features1: Map, features2: Map, *, num_levels: int, radius: int, store: bool
    ) -> Lookup:
        """Correlate two feature maps; return the way to look correlations up."""
        if store and features1.device.type == "cpu":
            return CachedLookup(features1, features2, num_levels=num_levels, radius=radius)
        found = correlate(
            features1.permute(0, 3, 1, 2),
            features2.permute(0, 3, 1, 2),
            num_levels=num_levels,
            radius=radius,
            store=store,
        )
        working = Working(features1.device, features1.dtype)

        def look_up(coords: Float32[Tensor, "b 2 h w"]) -> Tensor:
            seen = found.lookup(coords).to(features1.dtype).permute(0, 2, 3, 1)
            missing = working.channels(seen.shape[-1]) - seen.shape[-1]
            return F.pad(seen, (0, missing)) if missing else seen

        return look_up

    def attend(
        self,
        queries: Float[Tensor, "b a p e"],
        keys: Float[Tensor, "b a p e"],
        *,
        store: bool,
    ) -> AttentionWeights:
        """Return the attention of scaled queries and keys."""
        if not store:
            return StreamedAttention(queries, keys)
        if queries.device.type == "cpu":
            return CompactAttention.of(queries, keys)
        scores = queries @ keys.transpose(2, 3)
        columns = scores.shape[-1]
        rows = max(1, SOFTMAX_BYTES // (columns * 4))
        for part in scores.view(-1, columns).split(rows):
            torch.softmax(part, dim=-1, out=part)
        return StoredAttention(scores)

    def upsample(self, flow: Float32[Tensor, "b 2 h w"], logits: Map) -> Float32[Tensor, "b 2 H W"]:
        """Return the flow at full size, by the `logits` of convex upsampling."""
        return convex_upsample(flow, logits.permute(0, 3, 1, 2), SHARPNESS)


def raw_convolution(x: Map, layer: Convolution, bias: Tensor | None) -> Tensor:
    """Return a convolution of a channels-last map as such a map."""
    if layer.is_pointwise:
        return F.linear(x, layer.weight.flatten(1), bias)
    if layer.winograd is not None:
        return layer.winograd(x, bias)
    out = F.conv2d(x.permute(0, 3, 1, 2), layer.weight, bias, layer.stride, layer.padding)
    return out.permute(0, 2, 3, 1).contiguous()


def normalize(rows: Float[Tensor, "p c"]) -> None:
    """Bring every channel to mean 0 and variance 1, in place.

    torch's instance norm takes six times as long on channels-last maps, and makes another map.
    """
    mean, variance = measure(rows)
    scale = (variance + EPSILON).rsqrt()
    torch.addcmul(-mean * scale, rows, scale, out=rows)


def measure(rows: Float[Tensor, "p c"]) -> tuple[Float32[Tensor, " c"], Float32[Tensor, " c"]]:
    """Return mean and variance of every channel.

    On a CPU torch adds row after row: a hundred thousand of them lose three digits, which the
    layers that follow make a hundredth of a pixel of. So it adds few at a time there.
    """
    parts = rows.split(SUMMED_ROWS) if rows.device.type == "cpu" else (rows,)
    found = [torch.batch_norm_update_stats(part, None, None, momentum=0.0) for part in parts]
    if len(found) == 1:  # on CUDA always: what follows could not be recorded
        mean, variance = found[0]
        return mean.float(), variance.float()
    means, variances = (torch.stack(values).double() for values in zip(*found, strict=True))
    shares = means.new_tensor([len(part) / len(rows) for part in parts])
    mean = shares @ means
    variance = shares @ (variances + (means - mean).square())
    return mean.float(), variance.float()


def _copy(values: Tensor, targets: Sequence[Tensor]) -> None:
    written: Tensor | None = None
    for target in targets:
        if target is not written:
            target.copy_(values)
        written = target
