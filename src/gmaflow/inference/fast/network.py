"""The network for inference: what `FlowNetwork` computes, arranged for speed.

- Batch norm is folded into the convolutions; weights are in the working type, channels last.
- What a convolution sees side by side is written side by side, never copied together.
- The weights that upsampling needs are computed once, after the last iteration.

In half precision these stay float32: flow and coordinates (half precision would round them to 1/16
px beyond 64 px), the statistics of instance norm and the sums of softmax (thousands of summands),
the sums in convolutions and products (tensor cores do so), and the upsampling of the flow.

Legend: b batch, H W rows and columns of the images (multiples of 8), h w = H / 8, W / 8.
"""

import copy
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from gmaflow.inference.fast.convolution import Convolution, Working
from gmaflow.inference.fast.encoder import FastEncoder
from gmaflow.inference.fast.operations import Map, Operations, PlainOperations, Targets
from gmaflow.model import STRIDE, FlowNetwork, MemoryPlan, Prediction
from gmaflow.model.aggregation import Aggregator, AttentionWeights
from gmaflow.model.network import STORE_ALL, check_images
from gmaflow.model.update import GRUPass
from gmaflow.model.upsample import ConvexUpsampler

TOGETHER_PIXELS = 2**20
"""Images of up to so many pixels are encoded two at a time; larger ones one by one, for memory."""


@dataclass(frozen=True)
class Frames:
    """What is known of a batch of first frames beside their features."""

    hidden: Map
    """The first recurrent state."""
    context: Map
    """What steers every refinement."""


@dataclass(frozen=True)
class State:
    """The maps that iterations write in place."""

    flow: Float32[Tensor, "b h w 2"]
    coords: Float32[Tensor, "b 2 h w"]
    flow_input: Map
    """The flow in the working type."""
    merged: Map
    """What the motion encoder merges: correlation's channels, then flow's."""
    seen: Map
    """What the gates see: state, then motion."""
    seen_reset: Map
    """What the candidate sees: the reset state, then motion."""
    motion: Targets
    """Where motion features go."""
    borrowed: Targets
    """Where global motion goes."""
    hidden: Map
    """The state once more, dense."""


class FastNetwork:
    """A `FlowNetwork` in eval mode, taken over for inference; gives the same flow.

    It holds nothing of the pairs it has seen, so threads may share it.

    Args:
        network: The network; its weights are copied.
        dtype: The type to compute in.
        operations: How to do the single steps; plain torch by default.
    """

    def __init__(
        self,
        network: FlowNetwork,
        *,
        dtype: torch.dtype = torch.float32,
        operations: Operations | None = None,
    ) -> None:
        working = Working(network.features.conv_in.weight.device, dtype)
        self.config = network.config
        self.working = working
        self.operations: Operations = PlainOperations() if operations is None else operations
        self.features = FastEncoder.of(network.features, working)
        self.context = FastEncoder.of(network.context, working)
        self.attention = copy.deepcopy(network.attention)
        if self.attention is not None:
            self.attention = self.attention.to(dtype)
        self.mixing = None
        if network.aggregate is not None:
            self.mixing = mixing_matrix(network.aggregate).to(dtype)

        self.see_correlation = _convolutions(network.motion.correlation, working)
        self.see_flow = _convolutions(network.motion.flow, working)
        self.merge = Convolution.of(
            cast(nn.Conv2d, network.motion.merge[0]), working, pad_output=True
        )
        passes = [cast(GRUPass, gru) for gru in network.update.passes]
        self.prepare = [Convolution.of(gru.context, working) for gru in passes]
        self.gates = [Convolution.of(gru.gates, working) for gru in passes]
        self.candidates = [Convolution.of(gru.candidate, working) for gru in passes]
        first, last = (cast(nn.Conv2d, network.update.flow_head[i]) for i in (0, 2))
        self.decide = Convolution.of(first, working)
        self.change = Convolution.of(last, working, pad_output=True)
        self.upsampler = network.upsample
        self.weigh: list[Convolution] = []
        if isinstance(network.upsample, ConvexUpsampler):
            first, last = (cast(nn.Conv2d, network.upsample.weights[i]) for i in (0, 2))
            self.weigh = [
                Convolution.of(first, working),
                Convolution.of(last, working, scale=0.25),  # see ConvexUpsampler
            ]

    def __call__(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        *,
        iters: int = 12,
        flow_init: Float[Tensor, "b 2 h w"] | None = None,
        plan: MemoryPlan = STORE_ALL,
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`, as `FlowNetwork` does."""
        check_images(image1, image2)
        frames = self.encode_context(image1)
        features1, features2 = self.encode_both(image1, image2)
        return self.solve(
            features1, features2, frames, iters=iters, flow_init=flow_init, plan=plan
        )

    def encode(self, image: Float[Tensor, "b 3 H W"]) -> Map:
        """Return the features by which frames are matched; each depends on its frame alone."""
        return self.features(image, self.operations)

    def encode_both(
        self, image1: Float[Tensor, "b 3 H W"], image2: Float[Tensor, "b 3 H W"]
    ) -> tuple[Map, Map]:
        """Return the features of both frames."""
        if image1.is_cuda and image1[:, 0].numel() <= TOGETHER_PIXELS:
            features1, features2 = self.encode(torch.cat([image1, image2])).chunk(2)
            return features1, features2
        return self.encode(image1), self.encode(image2)

    def encode_context(self, image1: Float[Tensor, "b 3 H W"]) -> Frames:
        """Return the first recurrent state and the context of first frames."""
        channels = [self.config.hidden_channels, self.config.context_channels]
        hidden, context = self.context(image1, self.operations).split(channels, dim=-1)
        return Frames(torch.tanh(hidden), torch.relu(context))

    def solve(
        self,
        features1: Map,
        features2: Map,
        frames: Frames,
        *,
        iters: int,
        flow_init: Float[Tensor, "b 2 h w"] | None,
        plan: MemoryPlan,
    ) -> Prediction:
        """Estimate the flow between frames that are encoded already."""
        attention = self._attend(frames.context, store=plan.store_attention)
        prepared = [self.operations.convolve(frames.context, layer) for layer in self.prepare]
        look_up = self.operations.correlate(
            features1,
            features2,
            num_levels=self.config.correlation_levels,
            radius=self.config.correlation_radius,
            store=plan.store_correlation,
        )
        state = self._begin(frames.hidden, flow_init)
        for _ in range(iters):
            self._see_motion(state, look_up(state.coords))
            self._borrow_motion(state, attention)
            self._update(state, prepared)
        low = state.flow.permute(0, 3, 1, 2)
        return Prediction([self._upsample(state)], low.contiguous())

    def _attend(self, context: Map, *, store: bool) -> AttentionWeights | None:
        if self.attention is None:
            return None
        queries, keys = self.attention.queries_and_keys(context.permute(0, 3, 1, 2))
        return self.operations.attend(queries, keys, store=store)

    def _begin(self, hidden: Map, flow_init: Float[Tensor, "b 2 h w"] | None) -> State:
        batch, height, width, channels = hidden.shape
        config = self.config

        def make(count: int) -> Tensor:
            return hidden.new_zeros(batch, height, width, self.working.channels(count))

        motion = config.motion_channels
        both = config.aggregates and config.combination == "concatenate"
        seen, seen_reset = (make(channels + motion * (1 + both)) for _ in range(2))
        seen[..., :channels] = hidden
        end = channels + motion
        local: Targets = (seen[..., channels:end], seen_reset[..., channels:end])
        borrowed = local
        if both:
            borrowed = (seen[..., end : end + motion], seen_reset[..., end : end + motion])
        elif config.aggregates:
            alone = make(motion)
            local = (alone, alone)
        flow = torch.zeros(batch, height, width, 2, device=hidden.device)
        if flow_init is not None:
            flow.copy_(flow_init.permute(0, 2, 3, 1))
        widths = self.see_correlation[-1].weight.shape[0] + self.see_flow[-1].weight.shape[0]
        state = State(
            flow=flow,
            coords=torch.empty(batch, 2, height, width, device=hidden.device),
            flow_input=make(2),
            merged=make(widths),
            seen=seen,
            seen_reset=seen_reset,
            motion=local,
            borrowed=borrowed,
            hidden=hidden.contiguous(),
        )
        nothing = torch.zeros_like(flow)
        self._advance(state, nothing, nothing[0, 0, 0])
        return state

    def _advance(self, state: State, change: Map, bias: Float[Tensor, " c"]) -> None:
        targets = (state.motion[0][..., -2:], state.motion[1][..., -2:])
        self.operations.advance(
            change, bias, state.flow, state.coords, state.flow_input, targets
        )

    def _see_motion(self, state: State, seen: Map) -> None:
        """Encode the current flow together with the correlations found around it."""
        split = self.see_correlation[-1].weight.shape[0]
        for layers, x, target in (
            (self.see_correlation, seen, state.merged[..., :split]),
            (self.see_flow, state.flow_input, state.merged[..., split:]),
        ):
            for layer in layers[:-1]:
                x = self.operations.convolve(x, layer, relu=True)
            self.operations.convolve_into(x, layers[-1], (target, target))
        # The last two channels are the flow itself.
        targets = (state.motion[0][..., :-2], state.motion[1][..., :-2])
        self.operations.convolve_into(state.merged, self.merge, targets)

    def _borrow_motion(self, state: State, attention: AttentionWeights | None) -> None:
        """Carry motion along the attention."""
        if attention is None or self.mixing is None:
            return
        motion = state.motion[0]
        batch, height, width, channels = motion.shape
        values = (motion.flatten(0, 2) @ self.mixing).view(batch, height * width, -1, channels)
        borrowed = attention.aggregate(values.transpose(1, 2))
        borrowed = borrowed[:, 0] if self.config.num_heads == 1 else borrowed.sum(dim=1)
        borrowed = borrowed.unflatten(1, (height, width))
        if self.config.residual:
            self.operations.add_into(borrowed, motion, state.borrowed)
        else:
            for target in state.borrowed:
                target.copy_(borrowed)

    def _update(self, state: State, prepared: list[Tensor]) -> None:
        """Renew the recurrent state, and read a change of flow off it."""
        channels = state.hidden.shape[-1]
        hidden, reset_hidden = state.seen[..., :channels], state.seen_reset[..., :channels]
        for i, context in enumerate(prepared):
            gates = self.operations.convolve(state.seen, self.gates[i])
            self.operations.gate(gates, context, hidden, reset_hidden)
            candidate = self.operations.convolve(state.seen_reset, self.candidates[i])
            self.operations.renew(candidate, context, gates, hidden, state.hidden)
        decided = self.operations.convolve(state.hidden, self.decide, relu=True)
        assert self.change.bias is not None
        change = self.operations.convolve(decided, without_bias(self.change))
        self._advance(state, change, self.change.bias)

    def _upsample(self, state: State) -> Float[Tensor, "b 2 H W"]:
        if not self.weigh:
            channels_first = (x.permute(0, 3, 1, 2) for x in (state.flow, state.hidden))
            return self.upsampler(*channels_first)
        first, last = self.weigh
        weights = self.operations.convolve(state.hidden, first, relu=True)
        return self.operations.upsample(state.flow, self.operations.convolve(weights, last))


def without_bias(layer: Convolution) -> Convolution:
    """Return the layer, its bias left to whoever comes next."""
    return Convolution(layer.weight, None, layer.stride, layer.padding)


def mixing_matrix(aggregate: Aggregator) -> Float[Tensor, "c ac"]:
    """Return the matrix from motion to what can be borrowed of it, for one head after the other.

    Attention is a weighted mean over pixels and commutes with what is done to each pixel alone: the
    projection after it and alpha are taken into the values before it.
    """
    values = aggregate.to_value.weight.detach().double()[..., 0, 0]
    values = values.unflatten(0, (aggregate.num_heads, -1))
    project = torch.eye(values.shape[1], dtype=torch.float64, device=values.device)[None]
    if isinstance(aggregate.project, nn.Conv2d):
        weight = aggregate.project.weight.detach().double()[..., 0, 0]
        project = weight.unflatten(1, (aggregate.num_heads, -1)).transpose(0, 1)
    mixed = project @ values
    if aggregate.alpha is not None:
        mixed = mixed * aggregate.alpha.detach().double()
    return mixed.flatten(0, 1).T.contiguous()


def _convolutions(layers: nn.Sequential, working: Working) -> list[Convolution]:
    return [Convolution.of(layer, working) for layer in layers if isinstance(layer, nn.Conv2d)]
