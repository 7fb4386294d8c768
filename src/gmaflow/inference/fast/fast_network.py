"""The network for inference: what `FlowNetwork` computes, arranged for speed.

- Batch norm is folded into the convolutions; weights are in the working type, channels last.
- What a convolution sees side by side is written side by side, never copied together.
- The weights of the upsampling are computed once, after the last iteration.

In half precision these stay float32: flow and coordinates (half precision would round them to 1/16
px beyond 64 px), the statistics of instance norm and the sums of softmax (thousands of summands),
the sums in convolutions and products (tensor cores do so), the fits of the continuation, and the
upsampling of the flow.

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
    Convolution,
    PackedProduct,
    Working,
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
from gmaflow.model.update import GRUPass
from gmaflow.model.upsample import ConvexUpsampler
from gmaflow.runtime.device import give_back_freed

TOGETHER_PIXELS = 2**20
"""Images of up to this many pixels are encoded two at a time; larger ones one by one, to save
memory."""
MANY_CELLS = 4096
"""From this many cells of the 1/8 grid on, a CPU gives freed memory back to the system during a
call. The maps of smaller images are small, and giving them back takes longer than computing some of
them."""


@dataclass(frozen=True)
class FastLayer:
    """A convolution, and the instance norm after it if there is one; batch norm is folded in."""

    convolution: Convolution
    instance_norm: bool

    @classmethod
    def of(cls, layer: nn.Module, norm: nn.Module, working: Working) -> "FastLayer":
        """Convert a convolution and its norm."""
        assert isinstance(layer, nn.Conv2d)
        folded = Convolution.of(layer, working, norm=norm)
        return cls(folded, isinstance(norm, nn.InstanceNorm2d))

    def __call__(self, x: Map, operations: Operations, *, relu: bool) -> Tensor:
        """Return the normalised convolution, with ReLU where asked for."""
        if self.instance_norm:
            return operations.convolve_norm(x, self.convolution, relu=relu)
        return operations.convolve(x, self.convolution, relu=relu)

    def join(self, x: Map, shortcut: Map, operations: Operations) -> Tensor:
        """Return the normalised convolution with ReLU, joined to a shortcut."""
        if self.instance_norm:
            return operations.convolve_norm(x, self.convolution, relu=True, shortcut=shortcut)
        return operations.convolve_join(x, self.convolution, shortcut)


@dataclass(frozen=True)
class FastBlock:
    """Layers around a shortcut."""

    layers: tuple[FastLayer, ...]
    shortcut: FastLayer | None

    @classmethod
    def of(cls, block: ResidualBlock | BottleneckBlock, working: Working) -> "FastBlock":
        pairs = [(block.conv1, block.norm1), (block.conv2, block.norm2)]
        if isinstance(block, BottleneckBlock):
            pairs.append((block.conv3, block.norm3))
        shortcut = None
        if isinstance(block.shortcut, nn.Sequential):
            shortcut = FastLayer.of(block.shortcut[0], block.shortcut[1], working)
        return cls(tuple(FastLayer.of(conv, norm, working) for conv, norm in pairs), shortcut)

    def __call__(self, x: Map, operations: Operations) -> Tensor:
        """Refine the features, and halve their size if the stride is 2."""
        y = x
        for layer in self.layers[:-1]:
            y = layer(y, operations, relu=True)
        short = x if self.shortcut is None else self.shortcut(x, operations, relu=False)
        return self.layers[-1].join(y, short, operations)


@dataclass(frozen=True)
class FastEncoder:
    """An encoder, from images that were taken in to channels-last features."""

    first: FastLayer
    blocks: tuple[FastBlock, ...]
    last: Convolution

    @classmethod
    def of(cls, encoder: Encoder, working: Working) -> "FastEncoder":
        """Convert an encoder in evaluation mode."""
        blocks = [block for stage in encoder.stages for block in cast(nn.Sequential, stage)]
        return cls(
            FastLayer.of(encoder.conv_in, encoder.norm_in, working),
            tuple(
                FastBlock.of(cast(ResidualBlock | BottleneckBlock, block), working)
                for block in blocks
            ),
            Convolution.of(encoder.conv_out, working.exact),
        )

    def __call__(self, images: Map, operations: Operations) -> Tensor:
        """Return the features of images that were taken in, `[b, h, w, c]`."""
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


class FastRefinement:
    """The motion encoder, the aggregation, the recurrent unit and its head, for inference."""

    def __init__(self, network: FlowNetwork, working: Working, operations: Operations) -> None:
        self.config = network.config
        self.working = working
        self.operations = operations
        self.mix: PackedProduct | None = None
        if network.aggregate is not None:
            mixing = mixing_matrix(network.aggregate).to(working.dtype)
            self.mix = PackedProduct(mixing.T, rows=math.prod(TYPICAL_SIZE))

        self.see_correlation = _convolutions(network.motion.correlation, working)
        self.see_flow = _convolutions(network.motion.flow, working)
        # bfloat16 would round the flow to whole pixels beyond 128 px.
        self.see_flow[0] = Convolution.of(cast(nn.Conv2d, network.motion.flow[0]), working.exact)
        self.merge = Convolution.of(
            cast(nn.Conv2d, network.motion.merge[0]), working, pad_output=True
        )
        passes = [cast(GRUPass, gru) for gru in network.update.passes]
        self.share_context = [Convolution.of(gru.context, working) for gru in passes]
        self.gates = [Convolution.of(gru.gates, working) for gru in passes]
        self.candidates = [Convolution.of(gru.candidate, working) for gru in passes]
        first, last = (cast(nn.Conv2d, network.update.flow_head[i]) for i in (0, 2))
        self.decide = Convolution.of(first, working)
        self.change = Convolution.of(last, working.exact, pad_output=True)

    def prepare(self, context: Map) -> list[Tensor]:
        """Compute the context's share of every recurrent pass, once for all iterations."""
        return [self.operations.convolve(context, layer) for layer in self.share_context]

    def begin(self, hidden: Map, flow_init: Float[Tensor, "b 2 h w"] | None) -> State:
        """Make the maps of a pair, and write the initial flow to where iterations read it."""
        batch, height, width, channels = hidden.shape
        config = self.config

        def make(count: int, working: Working = self.working) -> Tensor:
            shape = (batch, height, width, working.channels(count))
            return torch.zeros(shape, dtype=working.dtype, device=hidden.device)

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
            replaced = make(motion)
            local = (replaced, replaced)
        flow = hidden.new_zeros(batch, height, width, 2, dtype=torch.float32)
        if flow_init is not None:
            flow.copy_(flow_init.permute(0, 2, 3, 1))
        widths = self.see_correlation[-1].weight.shape[0] + self.see_flow[-1].weight.shape[0]
        state = State(
            flow=flow,
            coords=hidden.new_empty(batch, 2, height, width, dtype=torch.float32),
            flow_input=make(2, self.working.exact),
            merged=make(widths),
            seen=seen,
            seen_reset=seen_reset,
            motion=local,
            borrowed=borrowed,
            hidden=hidden.clone(memory_format=torch.contiguous_format),
        )
        self._share_flow(state)
        return state

    def put(self, state: State, flow: Float32[Tensor, "b 2 h w"]) -> None:
        state.flow.copy_(flow.permute(0, 2, 3, 1))
        self._share_flow(state)

    def _share_flow(self, state: State) -> None:
        """Write the flow to where iterations read it."""
        nothing = torch.zeros_like(state.flow_input)
        self.operations.advance(
            nothing,
            nothing[0, 0, 0],
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
        prepared: list[Tensor],
    ) -> None:
        """Refine the flow once, by the correlations found around it."""
        self._see_motion(state, look_up)
        self._borrow_motion(state, attention)
        self._update(state, prepared)

    def _see_motion(self, state: State, look_up: Lookup) -> None:
        """Encode the current flow together with the correlations found around it."""
        split = self.see_correlation[-1].weight.shape[0]
        self._run_layers(self.see_correlation, look_up(state.coords), state.merged[..., :split])
        seen = self.operations.convolve_flow(state.flow_input, self.see_flow[0])
        self._run_layers(self.see_flow[1:], seen, state.merged[..., split:])
        # The last two channels are the flow itself.
        self.operations.convolve_into(state.merged, self.merge, state.motion, keep=2)

    def _run_layers(self, layers: list[Convolution], x: Map, target: Map) -> None:
        for layer in layers[:-1]:
            x = self.operations.convolve(x, layer, relu=True)
        self.operations.convolve_into(x, layers[-1], (target, target))

    def _borrow_motion(self, state: State, attention: AttentionWeights | None) -> None:
        """Carry motion along the attention."""
        if attention is None or self.mix is None:
            return
        motion = state.motion[0]
        batch, height, width, channels = motion.shape
        values = self.mix(motion.flatten(0, 2)).view(batch, height * width, -1, channels)
        borrowed = attention.aggregate(values.transpose(1, 2))
        borrowed = borrowed[:, 0] if self.config.num_heads == 1 else borrowed.sum(dim=1)
        borrowed = borrowed.unflatten(1, (height, width))
        if self.config.residual:
            self.operations.add_into(borrowed, motion, state.borrowed)
        else:
            for target in state.borrowed:
                target.copy_(borrowed)

    def _update(self, state: State, prepared: list[Tensor]) -> None:
        """Update the recurrent state, and compute the change of flow from it."""
        channels = state.hidden.shape[-1]
        hidden, reset_hidden = state.seen[..., :channels], state.seen_reset[..., :channels]
        for i, context in enumerate(prepared):
            gates = self.operations.convolve(state.seen, self.gates[i])
            self.operations.gate(gates, context, hidden, reset_hidden)
            candidate = self.operations.convolve(state.seen_reset, self.candidates[i])
            self.operations.renew(candidate, context, gates, hidden, state.hidden)
            del gates, candidate  # before the next ones are made
        self.operations.convolve_advance(
            state.hidden,
            (self.decide, self.change),
            state.flow,
            state.coords,
            state.flow_input,
            flow_targets(state),
        )


def flow_targets(state: State) -> Targets:
    """Return where the flow is part of motion features: their last two channels."""
    first, second = state.motion
    return first[..., -2:], second[..., -2:]


@dataclass
class Refining:
    """A batch between two iterations: what `FastNetwork.begin` makes and `advance` changes."""

    state: State
    before: Float32[Tensor, "b h w 2"]
    """The flow before the last iteration."""
    look_up: Lookup
    attention: AttentionWeights | None
    prepared: list[Tensor]
    context: Float[Tensor, "b d h w"]
    plan: MemoryPlan
    done: int = 0
    continuing: AttentionWeights | None = None
    """The attention of the continuation, from the first iteration that needs it on."""
    ends: tuple[Float[Tensor, ""], ...] = ()
    """The lowest and the highest value of each image."""

    def view(self) -> Refined:
        """Return the batch as the network does, without a copy."""
        maps = (self.state.flow, self.before, self.state.hidden)
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


def _convolutions(layers: nn.Sequential, working: Working) -> list[Convolution]:
    return [Convolution.of(layer, working) for layer in layers if isinstance(layer, nn.Conv2d)]


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
        working = Working(network.features.conv_in.weight.device, dtype)
        self.config = network.config
        self.working = working
        if operations is None:
            mixed = working.device.type == "cpu" and dtype != torch.float32
            operations = MixedOperations() if mixed else Operations()
        self.operations = operations
        self.features = FastEncoder.of(network.features, working)
        self.context: FastEncoder | Encoder = FastEncoder.of(network.context, working)
        if network.attention is not None and working == PLAIN_CPU:
            # Attention is the softmax of large dot products of context features. Rounding them in
            # another order moves sharp attention, and the flow by up to 0.005 px.
            self.context = copy.deepcopy(network.context)
        self.attention = copy.deepcopy(network.attention)
        if self.attention is not None:
            self.attention = self.attention.to(working.exact.dtype)
        self.refine = FastRefinement(network, working, self.operations)
        # In float32 in any working type; its layers compute in the type of their inputs.
        self.continuation: Continuation | None = copy.deepcopy(network.continuation)
        self.upsampler = network.upsample
        self.weigh: list[Convolution] = []
        if isinstance(network.upsample, ConvexUpsampler):
            first, last = (cast(nn.Conv2d, network.upsample.weights[i]) for i in (0, 2))
            self.weigh = [Convolution.of(layer, working.exact) for layer in (first, last)]

    def __call__(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        **options: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`, as `FlowNetwork` does."""
        check_images(image1, image2)
        # No name for the batch: its correlations are large, and free before upsampling begins.
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
    ) -> Refining:
        """Do everything that comes before the first iteration."""
        ends = (*torch.aminmax(image1), *torch.aminmax(image2))
        fast = isinstance(self.context, FastEncoder)
        if fast and image1.is_cuda and image1[:, 0].numel() <= TOGETHER_PIXELS:
            first, features2 = self._encode_together(image1, image2)
        else:
            hidden, context = self._encode_context(image1)
            first = EncodedFrame(self._encode(image1), hidden, context)
            features2 = self._encode(image2)
        batch = self.begin_match(first, features2, **options)
        batch.ends = ends
        return batch

    def _encode_together(
        self, image1: Float[Tensor, "b 3 H W"], image2: Float[Tensor, "b 3 H W"]
    ) -> tuple[EncodedFrame, Float[Tensor, "b c h w"]]:
        encode_context = cast(FastEncoder, self.context)
        both = self.operations.take_in((image1, image2), self.working)
        seen = encode_context(both[: len(image1)], self.operations)
        hidden, context = self._split_context(seen.permute(0, 3, 1, 2))
        features1, features2 = self.features(both, self.operations).permute(0, 3, 1, 2).chunk(2)
        return EncodedFrame(features1, hidden, context), features2

    def begin_match(
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        **options: Unpack[MatchOptions],
    ) -> Refining:
        """Do the same for images that are encoded already."""
        plan = options.get("plan", STORE_ALL)
        on_cpu = features2.device.type == "cpu"
        large = on_cpu and features2[:, 0].numel() >= MANY_CELLS
        attend = partial(self._attend, first.context, store=plan.store_attention)
        # On a CPU first: its blocks take the memory of the encoders' maps.
        attention = attend() if on_cpu else None
        if large:
            give_back_freed()  # what is left of them, before the largest tensor is made
        look_up = self.operations.correlate(
            channels_last(first.features),
            channels_last(features2),
            num_levels=self.config.correlation_levels,
            radius=self.config.correlation_radius,
            store=plan.store_correlation,
        )
        if not on_cpu:
            attention = attend()
        prepared = self.refine.prepare(channels_last(first.context))
        state = self.refine.begin(channels_last(first.hidden), options.get("flow_init"))
        if large:
            give_back_freed()  # the encoders' maps, small pieces of which are still in use
        before = torch.empty_like(state.flow)
        return Refining(state, before, look_up, attention, prepared, first.context, plan)

    def advance(
        self, batch: Refining, iters: int, on_iteration: OnIteration | None = None
    ) -> Refined:
        """Refine a batch some more times."""
        state = batch.state
        for left in reversed(range(iters)):
            if left == 0:
                batch.before.copy_(state.flow)
            self.refine(state, batch.look_up, batch.attention, batch.prepared)
            if self.continuation is not None and batch.done >= FIRST_ITERATION:
                if batch.continuing is None:
                    batch.continuing = self._attend_near(batch)
                flow, hidden = (x.permute(0, 3, 1, 2) for x in (state.flow, state.hidden))
                moved, _ = self.continuation(hidden, flow, batch.continuing)
                self.refine.put(state, moved)
            batch.done += 1
            if on_iteration is not None:
                on_iteration(batch.done, *copies(state))
        return batch.view()

    def finish(self, batch: Refining) -> Prediction:
        return self._upsampled(batch.state, (), batch.ends)

    def _run(
        self, batch: Refining, options: MatchOptions
    ) -> tuple[State, tuple[int, ...], tuple[Float[Tensor, ""], ...]]:
        """Refine a batch as often as the options say.

        Returns its state, the iterations of each pair, and the ends of its images.
        """
        iters, settled = options.get("iters", 12), options.get("settled")
        watch = options.get("on_iteration")
        if settled is None:
            self.advance(batch, iters, watch)
            return batch.state, (), batch.ends
        used = refine_until_settled(
            lambda more: self.advance(batch, more, watch), iters=iters, threshold=settled
        )
        return batch.state, used, batch.ends

    def _encode(self, image: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        taken_in = self.operations.take_in((image,), self.working)
        return self.features(taken_in, self.operations).permute(0, 3, 1, 2)

    def _encode_context(
        self, image1: Float[Tensor, "b 3 H W"]
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b d h w"]]:
        if isinstance(self.context, Encoder):
            return self._split_context(self.context(to_signed(image1)))
        taken_in = self.operations.take_in((image1,), self.working)
        return self._split_context(self.context(taken_in, self.operations).permute(0, 3, 1, 2))

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

    def _attend_near(self, batch: Refining) -> AttentionWeights:
        assert self.continuation is not None
        hidden = batch.state.hidden.permute(0, 3, 1, 2)
        queries, keys = self.continuation.queries_and_keys(batch.context, hidden)
        bias = self.continuation.distances(batch.context)
        store = batch.plan.store_attention
        return self.operations.attend_near(queries, keys, bias, store=store)

    def _upsampled(
        self, state: State, used: tuple[int, ...], ends: tuple[Float[Tensor, ""], ...]
    ) -> Prediction:
        low = state.flow.permute(0, 3, 1, 2).contiguous()
        if self.weigh:
            first, last = self.weigh
            seen = self.operations.convolve(state.hidden, first, relu=True)
            fine = self.operations.upsample(low, self.operations.convolve(seen, last))
        else:
            fine = self.upsampler(low, state.hidden.permute(0, 3, 1, 2))
        both = torch.stack([*torch.aminmax(fine), *(end.to(fine) for end in ends)])
        return Prediction([fine], low, iterations=used, ends=both)


def channels_last(x: Float[Tensor, "b c h w"]) -> Map:
    """Return `[b, h, w, c]`, dense; a no-op for what comes from a `FastNetwork`."""
    return x.permute(0, 2, 3, 1).contiguous()


def copies(state: State) -> tuple[Float32[Tensor, "b 2 h w"], Float32[Tensor, "b c h w"]]:
    """Return copies of the flow and the recurrent state, which the next iteration overwrites."""
    flow, hidden = (x.permute(0, 3, 1, 2).float() for x in (state.flow, state.hidden))
    return flow.contiguous().clone(), hidden.clone()
