"""The network for inference: what `FlowNetwork` computes, arranged for speed.

- Batch norm is folded into the convolutions; weights are in the compute dtype, channels last.
- Inputs of a convolution are written into slices of one map instead of being concatenated.
- The weights of the upsampling are computed once, after the last iteration.

In half precision these stay float32: flow and coordinates (half precision would round them to 1/16
px beyond 64 px), the statistics of instance norm and the sums of softmax (thousands of terms), the
accumulators of convolutions and products (as tensor cores have them), the fits of the continuation,
and the upsampling of the flow.

Legend: b batch, c channels, a heads, H W rows and columns of the images (multiples of 8),
h w = H / 8, W / 8.
"""

import copy
import math
from dataclasses import dataclass
from functools import partial
from typing import Unpack, cast

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from gmaflow.inference.fast.convolution import (
    PLAIN_CPU,
    TYPICAL_SIZE,
    ComputeSpec,
    Convolution,
    PackedProduct,
)
from gmaflow.inference.fast.operations import Lookup, Map, MixedOperations, Operations, Targets
from gmaflow.model import (
    EncodedFrame,
    FlowNetwork,
    MatchOptions,
    MemoryPlan,
    OnIteration,
    Prediction,
)
from gmaflow.model.aggregation import Aggregator, AttentionWeights
from gmaflow.model.continuation import FIRST_ITERATION, Continuation
from gmaflow.model.encoder import BottleneckBlock, Encoder, ResidualBlock
from gmaflow.model.network import STORE_ALL, check_images, to_signed
from gmaflow.model.settling import Refined, refine_until_settled
from gmaflow.model.update import ConvexUpsampler, GRUPass
from gmaflow.runtime.device import release_freed_memory

TOGETHER_PIXELS = 2**20
"""Images of up to this many pixels are encoded two at a time; larger ones one by one, to save
memory."""
MANY_CELLS = 4096
"""From this many cells of the 1/8 grid on, freed memory is returned to the system during a call on
a CPU. The maps of smaller images are small, and returning them takes longer than computing some of
them."""


@dataclass(frozen=True)
class FastLayer:
    """A convolution, and the instance norm after it if there is one; batch norm is folded in."""

    convolution: Convolution
    instance_norm: bool

    @classmethod
    def of(cls, layer: nn.Module, norm: nn.Module, spec: ComputeSpec) -> "FastLayer":
        """Convert a convolution and its norm."""
        assert isinstance(layer, nn.Conv2d)
        folded = Convolution.of(layer, spec, norm=norm)
        return cls(folded, isinstance(norm, nn.InstanceNorm2d))

    def __call__(self, x: Map, operations: Operations, *, relu: bool) -> Tensor:
        """Return the normalised convolution, optionally with ReLU."""
        if self.instance_norm:
            return operations.convolve_norm(x, self.convolution, relu=relu)
        return operations.convolve(x, self.convolution, relu=relu)

    def with_shortcut(self, x: Map, shortcut: Map, operations: Operations) -> Tensor:
        """Return the normalised convolution with ReLU, added to a shortcut."""
        if self.instance_norm:
            return operations.convolve_norm(x, self.convolution, relu=True, shortcut=shortcut)
        return operations.convolve_residual(x, self.convolution, shortcut)


@dataclass(frozen=True)
class FastBlock:
    """Layers around a shortcut."""

    layers: tuple[FastLayer, ...]
    shortcut: FastLayer | None

    @classmethod
    def of(cls, block: ResidualBlock | BottleneckBlock, spec: ComputeSpec) -> "FastBlock":
        pairs = [(block.conv1, block.norm1), (block.conv2, block.norm2)]
        if isinstance(block, BottleneckBlock):
            pairs.append((block.conv3, block.norm3))
        shortcut = None
        if isinstance(block.shortcut, nn.Sequential):
            shortcut = FastLayer.of(block.shortcut[0], block.shortcut[1], spec)
        return cls(tuple(FastLayer.of(conv, norm, spec) for conv, norm in pairs), shortcut)

    def __call__(self, x: Map, operations: Operations) -> Tensor:
        """Refine the features, and halve their size if the stride is 2."""
        y = x
        for layer in self.layers[:-1]:
            y = layer(y, operations, relu=True)
        short = x if self.shortcut is None else self.shortcut(x, operations, relu=False)
        return self.layers[-1].with_shortcut(y, short, operations)


@dataclass(frozen=True)
class FastEncoder:
    """An encoder, from prepared images to channels-last features."""

    first: FastLayer
    blocks: tuple[FastBlock, ...]
    last: Convolution

    @classmethod
    def of(cls, encoder: Encoder, spec: ComputeSpec) -> "FastEncoder":
        """Convert an encoder in evaluation mode."""
        blocks = [block for stage in encoder.stages for block in cast(nn.Sequential, stage)]
        return cls(
            FastLayer.of(encoder.conv_in, encoder.norm_in, spec),
            tuple(
                FastBlock.of(cast(ResidualBlock | BottleneckBlock, block), spec) for block in blocks
            ),
            Convolution.of(encoder.conv_out, spec.exact),
        )

    def __call__(self, images: Map, operations: Operations) -> Tensor:
        """Return the features of prepared images, `[b, h, w, c]`."""
        x = self.first(images, operations, relu=True)
        for block in self.blocks:
            x = block(x, operations)
        return operations.convolve(x, self.last)


@dataclass(frozen=True)
class State:
    """The maps that iterations write in place."""

    flow: Float32[Tensor, "b h w 2"]
    coords: Float32[Tensor, "b 2 h w"]
    flow_input: Map
    """The flow in the compute dtype."""
    merge_input: Map
    """Input of the motion encoder's last layer: correlation features, then flow features."""
    gate_input: Map
    """Input of the gates: state, then motion."""
    candidate_input: Map
    """Input of the candidate: the reset state, then motion."""
    motion: Targets
    """Where motion features go."""
    aggregated: Targets
    """Where global motion goes."""
    hidden: Map
    """A contiguous copy of the state."""


class FastRefinement:
    """The motion encoder, the aggregation, the recurrent unit and its head, for inference."""

    def __init__(self, network: FlowNetwork, spec: ComputeSpec, operations: Operations) -> None:
        self.config = network.config
        self.spec = spec
        self.operations = operations
        self.mix: PackedProduct | None = None
        if network.aggregate is not None:
            mixing = mixing_matrix(network.aggregate).to(spec.dtype)
            self.mix = PackedProduct(mixing.T, rows=math.prod(TYPICAL_SIZE))

        self.correlation_layers = _convolutions(network.motion.correlation, spec)
        self.flow_layers = _convolutions(network.motion.flow, spec)
        # bfloat16 would round the flow to whole pixels beyond 128 px.
        self.flow_layers[0] = Convolution.of(cast(nn.Conv2d, network.motion.flow[0]), spec.exact)
        self.merge = Convolution.of(cast(nn.Conv2d, network.motion.merge[0]), spec, pad_output=True)
        passes = [cast(GRUPass, gru) for gru in network.update.passes]
        self.context_layers = [Convolution.of(gru.context, spec) for gru in passes]
        self.gates = [Convolution.of(gru.gates, spec) for gru in passes]
        self.candidates = [Convolution.of(gru.candidate, spec) for gru in passes]
        first, last = (cast(nn.Conv2d, network.update.flow_head[i]) for i in (0, 2))
        self.head_hidden = Convolution.of(first, spec)
        self.head_out = Convolution.of(last, spec.exact, pad_output=True)

    def prepare_context(self, context: Map) -> list[Tensor]:
        """Compute the context's share of every recurrent pass, once for all iterations."""
        return [self.operations.convolve(context, layer) for layer in self.context_layers]

    def begin(self, hidden: Map, flow_init: Float[Tensor, "b 2 h w"] | None) -> State:
        """Make the maps of a pair, and write the initial flow to where iterations read it."""
        batch, height, width, channels = hidden.shape
        config = self.config

        def make_map(count: int, spec: ComputeSpec = self.spec) -> Tensor:
            shape = (batch, height, width, spec.channels(count))
            return torch.zeros(shape, dtype=spec.dtype, device=hidden.device)

        motion = config.motion_channels
        both = config.aggregates and config.combination == "concatenate"
        gate_input, candidate_input = (make_map(channels + motion * (1 + both)) for _ in range(2))
        gate_input[..., :channels] = hidden
        end = channels + motion
        local_motion: Targets = (gate_input[..., channels:end], candidate_input[..., channels:end])
        aggregated = local_motion
        if both:
            aggregated = (
                gate_input[..., end : end + motion],
                candidate_input[..., end : end + motion],
            )
        elif config.aggregates:
            replaced = make_map(motion)
            local_motion = (replaced, replaced)
        flow = hidden.new_zeros(batch, height, width, 2, dtype=torch.float32)
        if flow_init is not None:
            flow.copy_(flow_init.permute(0, 2, 3, 1))
        widths = self.correlation_layers[-1].weight.shape[0] + self.flow_layers[-1].weight.shape[0]
        state = State(
            flow=flow,
            coords=hidden.new_empty(batch, 2, height, width, dtype=torch.float32),
            flow_input=make_map(2, self.spec.exact),
            merge_input=make_map(widths),
            gate_input=gate_input,
            candidate_input=candidate_input,
            motion=local_motion,
            aggregated=aggregated,
            hidden=hidden.clone(memory_format=torch.contiguous_format),
        )
        self._write_flow(state)
        return state

    def set_flow(self, state: State, flow: Float32[Tensor, "b 2 h w"]) -> None:
        state.flow.copy_(flow.permute(0, 2, 3, 1))
        self._write_flow(state)

    def _write_flow(self, state: State) -> None:
        """Write the flow to where iterations read it."""
        zero_change = torch.zeros_like(state.flow_input)
        self.operations.advance(
            zero_change,
            zero_change[0, 0, 0],
            state.flow,
            state.coords,
            state.flow_input,
            flow_targets(state),
        )

    def __call__(
        self,
        state: State,
        look_up: Lookup,
        attention: AttentionWeights | None,
        context_terms: list[Tensor],
    ) -> None:
        """Refine the flow once, from the correlations around it."""
        self._encode_motion(state, look_up)
        self._aggregate_motion(state, attention)
        self._update(state, context_terms)

    def _encode_motion(self, state: State, look_up: Lookup) -> None:
        """Encode the current flow together with the correlations around it."""
        split = self.correlation_layers[-1].weight.shape[0]
        self._run_layers(
            self.correlation_layers, look_up(state.coords), state.merge_input[..., :split]
        )
        flow_features = self.operations.convolve_flow(state.flow_input, self.flow_layers[0])
        self._run_layers(self.flow_layers[1:], flow_features, state.merge_input[..., split:])
        # The last two channels are the flow itself.
        self.operations.convolve_into(state.merge_input, self.merge, state.motion, keep=2)

    def _run_layers(self, layers: list[Convolution], x: Map, target: Map) -> None:
        for layer in layers[:-1]:
            x = self.operations.convolve(x, layer, relu=True)
        self.operations.convolve_into(x, layers[-1], (target, target))

    def _aggregate_motion(self, state: State, attention: AttentionWeights | None) -> None:
        """Propagate motion by attention."""
        if attention is None or self.mix is None:
            return
        motion = state.motion[0]
        batch, height, width, channels = motion.shape
        values = self.mix(motion.flatten(0, 2)).view(batch, height * width, -1, channels)
        aggregated = attention.aggregate(values.transpose(1, 2))
        aggregated = aggregated[:, 0] if self.config.num_heads == 1 else aggregated.sum(dim=1)
        aggregated = aggregated.unflatten(1, (height, width))
        if self.config.residual:
            self.operations.add_into(aggregated, motion, state.aggregated)
        else:
            for target in state.aggregated:
                target.copy_(aggregated)

    def _update(self, state: State, context_terms: list[Tensor]) -> None:
        """Update the recurrent state, and compute the change of flow from it."""
        channels = state.hidden.shape[-1]
        hidden, reset_hidden = (
            state.gate_input[..., :channels],
            state.candidate_input[..., :channels],
        )
        for i, context in enumerate(context_terms):
            gates = self.operations.convolve(state.gate_input, self.gates[i])
            self.operations.gate(gates, context, hidden, reset_hidden)
            candidate = self.operations.convolve(state.candidate_input, self.candidates[i])
            self.operations.update_state(candidate, context, gates, hidden, state.hidden)
            del gates, candidate  # before the next ones are made
        self.operations.convolve_advance(
            state.hidden,
            (self.head_hidden, self.head_out),
            state.flow,
            state.coords,
            state.flow_input,
            flow_targets(state),
        )


def flow_targets(state: State) -> Targets:
    """Return the slices of the motion features that hold the flow: their last two channels."""
    first, second = state.motion
    return first[..., -2:], second[..., -2:]


@dataclass
class RefinementState:
    """A batch between two iterations; `FastNetwork.begin` makes it and `advance` updates it."""

    state: State
    previous_flow: Float32[Tensor, "b h w 2"]
    """The flow before the last iteration."""
    look_up: Lookup
    attention: AttentionWeights | None
    context_terms: list[Tensor]
    context: Float[Tensor, "b d h w"]
    plan: MemoryPlan
    done: int = 0
    continuation_attention: AttentionWeights | None = None
    """The attention of the continuation, from the first iteration that needs it on."""
    minmax: tuple[Float[Tensor, ""], ...] = ()
    """Minimum and maximum of each image."""

    def view(self) -> Refined:
        """Return the batch as the network does, without a copy."""
        maps = (self.state.flow, self.previous_flow, self.state.hidden)
        return Refined(*(x.permute(0, 3, 1, 2) for x in maps))


def mixing_matrix(aggregate: Aggregator) -> Float[Tensor, "c ac"]:
    """Return the matrix from motion features to the values that attention averages, head by head.

    Attention is a weighted mean over pixels, which commutes with linear maps of each pixel. So the
    projection and alpha, which follow it, are folded into the values.
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


def _convolutions(layers: nn.Sequential, spec: ComputeSpec) -> list[Convolution]:
    return [Convolution.of(layer, spec) for layer in layers if isinstance(layer, nn.Conv2d)]


class FastNetwork:
    """A `FlowNetwork` in evaluation mode, rebuilt for inference; gives the same flow.

    It keeps no state between calls, so threads may share it. Weights are copied. `operations`
    compute the single steps, by default in plain torch.
    """

    def __init__(
        self,
        network: FlowNetwork,
        *,
        dtype: torch.dtype = torch.float32,
        operations: Operations | None = None,
    ) -> None:
        spec = ComputeSpec(network.features.conv_in.weight.device, dtype)
        self.config = network.config
        self.spec = spec
        if operations is None:
            mixed = spec.device.type == "cpu" and dtype != torch.float32
            operations = MixedOperations() if mixed else Operations()
        self.operations = operations
        self.features = FastEncoder.of(network.features, spec)
        self.context: FastEncoder | Encoder = FastEncoder.of(network.context, spec)
        if network.attention is not None and spec == PLAIN_CPU:
            # Attention is the softmax of large dot products of context features. Rounding them in
            # another order moves sharp attention, and the flow by up to 0.005 px.
            self.context = copy.deepcopy(network.context)
        self.attention = copy.deepcopy(network.attention)
        if self.attention is not None:
            self.attention = self.attention.to(spec.exact.dtype)
        self.refine = FastRefinement(network, spec, self.operations)
        # Always in float32; its layers compute in the dtype of their inputs.
        self.continuation: Continuation | None = copy.deepcopy(network.continuation)
        self.upsampler = network.upsample
        self.upsample_layers: list[Convolution] = []
        if isinstance(network.upsample, ConvexUpsampler):
            first, last = (cast(nn.Conv2d, network.upsample.weights[i]) for i in (0, 2))
            self.upsample_layers = [Convolution.of(layer, spec.exact) for layer in (first, last)]

    def __call__(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        **options: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`, as `FlowNetwork` does."""
        check_images(image1, image2)
        # The batch has no name here, so that its large correlations are freed before upsampling.
        return self._upsampled(*self._run(self.begin(image1, image2, **options), options))

    def encode_frame(self, image: Float[Tensor, "b 3 H W"]) -> EncodedFrame:
        check_images(image, image)
        hidden, context = self._encode_context(image)
        return EncodedFrame(self._encode(image), hidden, context)

    def match(
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        **options: Unpack[MatchOptions],
    ) -> Prediction:
        return self._upsampled(*self._run(self.begin_match(first, features2, **options), options))

    def begin(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        **options: Unpack[MatchOptions],
    ) -> RefinementState:
        """Do everything before the first iteration."""
        minmax = (*torch.aminmax(image1), *torch.aminmax(image2))
        fast = isinstance(self.context, FastEncoder)
        if fast and image1.is_cuda and image1[:, 0].numel() <= TOGETHER_PIXELS:
            first, features2 = self._encode_together(image1, image2)
        else:
            hidden, context = self._encode_context(image1)
            first = EncodedFrame(self._encode(image1), hidden, context)
            features2 = self._encode(image2)
        batch = self.begin_match(first, features2, **options)
        batch.minmax = minmax
        return batch

    def _encode_together(
        self, image1: Float[Tensor, "b 3 H W"], image2: Float[Tensor, "b 3 H W"]
    ) -> tuple[EncodedFrame, Float[Tensor, "b c h w"]]:
        encode_context = cast(FastEncoder, self.context)
        both = self.operations.prepare_images((image1, image2), self.spec)
        context_features = encode_context(both[: len(image1)], self.operations)
        hidden, context = self._split_context(context_features.permute(0, 3, 1, 2))
        features1, features2 = self.features(both, self.operations).permute(0, 3, 1, 2).chunk(2)
        return EncodedFrame(features1, hidden, context), features2

    def begin_match(
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        **options: Unpack[MatchOptions],
    ) -> RefinementState:
        """Do the same for images that are encoded already."""
        plan = options.get("plan", STORE_ALL)
        on_cpu = features2.device.type == "cpu"
        large = on_cpu and features2[:, 0].numel() >= MANY_CELLS
        attend = partial(self._attend, first.context, store=plan.store_attention)
        # On a CPU first: its blocks reuse the memory of the encoders' maps.
        attention = attend() if on_cpu else None
        if large:
            release_freed_memory()  # the rest of it, before the largest tensor is allocated
        look_up = self.operations.correlate(
            channels_last(first.features),
            channels_last(features2),
            num_levels=self.config.correlation_levels,
            radius=self.config.correlation_radius,
            store=plan.store_correlation,
        )
        if not on_cpu:
            attention = attend()
        context_terms = self.refine.prepare_context(channels_last(first.context))
        state = self.refine.begin(channels_last(first.hidden), options.get("flow_init"))
        if large:
            release_freed_memory()  # the encoders' maps, parts of which were still in use
        previous_flow = torch.empty_like(state.flow)
        return RefinementState(
            state, previous_flow, look_up, attention, context_terms, first.context, plan
        )

    def advance(
        self, batch: RefinementState, iters: int, on_iteration: OnIteration | None = None
    ) -> Refined:
        """Refine a batch `iters` more times."""
        state = batch.state
        for remaining in reversed(range(iters)):
            if remaining == 0:
                batch.previous_flow.copy_(state.flow)
            self.refine(state, batch.look_up, batch.attention, batch.context_terms)
            if self.continuation is not None and batch.done >= FIRST_ITERATION:
                if batch.continuation_attention is None:
                    batch.continuation_attention = self._attend_with_bias(batch)
                flow, hidden = (x.permute(0, 3, 1, 2) for x in (state.flow, state.hidden))
                moved, _ = self.continuation(hidden, flow, batch.continuation_attention)
                self.refine.set_flow(state, moved)
            batch.done += 1
            if on_iteration is not None:
                on_iteration(batch.done, *copies(state))
        return batch.view()

    def finish(self, batch: RefinementState) -> Prediction:
        return self._upsampled(batch.state, (), batch.minmax)

    def _run(
        self, batch: RefinementState, options: MatchOptions
    ) -> tuple[State, tuple[int, ...], tuple[Float[Tensor, ""], ...]]:
        """Refine a batch as often as the options say.

        Returns its state, the iterations of each pair, and the minimum and maximum of its images.
        """
        iters, settled = options.get("iters", 12), options.get("settled")
        watch = options.get("on_iteration")
        if settled is None:
            self.advance(batch, iters, watch)
            return batch.state, (), batch.minmax
        iterations = refine_until_settled(
            lambda more: self.advance(batch, more, watch), iters=iters, threshold=settled
        )
        return batch.state, iterations, batch.minmax

    def _encode(self, image: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        inputs = self.operations.prepare_images((image,), self.spec)
        return self.features(inputs, self.operations).permute(0, 3, 1, 2)

    def _encode_context(
        self, image1: Float[Tensor, "b 3 H W"]
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b d h w"]]:
        if isinstance(self.context, Encoder):
            return self._split_context(self.context(to_signed(image1)))
        inputs = self.operations.prepare_images((image1,), self.spec)
        return self._split_context(self.context(inputs, self.operations).permute(0, 3, 1, 2))

    def _split_context(
        self, both: Float[Tensor, "b _ h w"]
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b d h w"]]:
        channels = [self.config.hidden_channels, self.config.context_channels]
        hidden, context = both.split(channels, dim=1)
        return torch.tanh(hidden), torch.relu(context)

    def _attend(self, context: Float[Tensor, "b c h w"], *, store: bool) -> AttentionWeights | None:
        if self.attention is None:
            return None
        queries, keys = self.attention.queries_and_keys(context)
        return self.operations.attend(queries, keys, store=store)

    def _attend_with_bias(self, batch: RefinementState) -> AttentionWeights:
        assert self.continuation is not None
        hidden = batch.state.hidden.permute(0, 3, 1, 2)
        queries, keys = self.continuation.queries_and_keys(batch.context, hidden)
        bias = self.continuation.distances(batch.context)
        store = batch.plan.store_attention
        return self.operations.attend_with_bias(queries, keys, bias, store=store)

    def _upsampled(
        self, state: State, iterations: tuple[int, ...], minmax: tuple[Float[Tensor, ""], ...]
    ) -> Prediction:
        low = state.flow.permute(0, 3, 1, 2).contiguous()
        if self.upsample_layers:
            first, last = self.upsample_layers
            features = self.operations.convolve(state.hidden, first, relu=True)
            fine = self.operations.upsample(low, self.operations.convolve(features, last))
        else:
            fine = self.upsampler(low, state.hidden.permute(0, 3, 1, 2))
        flow_minmax = torch.stack([*torch.aminmax(fine), *(value.to(fine) for value in minmax)])
        return Prediction([fine], low, iterations=iterations, minmax=flow_minmax)


def channels_last(x: Float[Tensor, "b c h w"]) -> Map:
    """Return `[b, h, w, c]`, dense; a no-op for what comes from a `FastNetwork`."""
    return x.permute(0, 2, 3, 1).contiguous()


def copies(state: State) -> tuple[Float32[Tensor, "b 2 h w"], Float32[Tensor, "b c h w"]]:
    """Return copies of the flow and the recurrent state, which the next iteration overwrites."""
    flow, hidden = (x.permute(0, 3, 1, 2).float() for x in (state.flow, state.hidden))
    return flow.contiguous().clone(), hidden.clone()
