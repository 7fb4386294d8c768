"""One refinement of the flow after another, on maps that are made once for a pair.

Legend: b batch, c channels, h w rows and columns at 1/8, a heads.
"""

from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from gmaflow.inference.fast.convolution import Convolution, Working
from gmaflow.inference.fast.operations import Lookup, Map, Operations, Targets
from gmaflow.model import FlowNetwork
from gmaflow.model.aggregation import Aggregator, AttentionWeights
from gmaflow.model.update import GRUPass


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
    """The motion encoder, the aggregation, the recurrent unit and its head, taken over."""

    def __init__(self, network: FlowNetwork, working: Working, operations: Operations) -> None:
        self.config = network.config
        self.working = working
        self.operations = operations
        self.mixing = None
        if network.aggregate is not None:
            self.mixing = mixing_matrix(network.aggregate).to(working.dtype)

        self.see_correlation = _convolutions(network.motion.correlation, working)
        self.see_flow = _convolutions(network.motion.flow, working)
        self.merge = Convolution.of(
            cast(nn.Conv2d, network.motion.merge[0]), working, pad_output=True
        )
        passes = [cast(GRUPass, gru) for gru in network.update.passes]
        self.share_context = [Convolution.of(gru.context, working) for gru in passes]
        self.gates = [Convolution.of(gru.gates, working) for gru in passes]
        self.candidates = [Convolution.of(gru.candidate, working) for gru in passes]
        first, last = (cast(nn.Conv2d, network.update.flow_head[i]) for i in (0, 2))
        self.decide = Convolution.of(first, working)
        self.change = Convolution.of(last, working, pad_output=True)

    def prepare(self, context: Map) -> list[Tensor]:
        """Compute the context's share of every recurrent pass, once for all iterations."""
        return [self.operations.convolve(context, layer) for layer in self.share_context]

    def begin(self, hidden: Map, flow_init: Float[Tensor, "b 2 h w"] | None) -> State:
        """Make the maps for a pair, and write the first guess wherever it is read."""
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
        flow = hidden.new_zeros(batch, height, width, 2, dtype=torch.float32)
        if flow_init is not None:
            flow.copy_(flow_init.permute(0, 2, 3, 1))
        widths = self.see_correlation[-1].weight.shape[0] + self.see_flow[-1].weight.shape[0]
        state = State(
            flow=flow,
            coords=hidden.new_empty(batch, 2, height, width, dtype=torch.float32),
            flow_input=make(2),
            merged=make(widths),
            seen=seen,
            seen_reset=seen_reset,
            motion=local,
            borrowed=borrowed,
            hidden=torch.empty_like(hidden, memory_format=torch.contiguous_format),
        )
        nothing = make(2)
        self._advance(state, nothing, nothing[0, 0, 0])
        return state

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

    def _advance(self, state: State, change: Map, bias: Float[Tensor, " c"]) -> None:
        targets = (state.motion[0][..., -2:], state.motion[1][..., -2:])
        self.operations.advance(change, bias, state.flow, state.coords, state.flow_input, targets)

    def _see_motion(self, state: State, look_up: Lookup) -> None:
        """Encode the current flow together with the correlations found around it."""
        split = self.see_correlation[-1].weight.shape[0]
        self._run_layers(self.see_correlation, look_up(state.coords), state.merged[..., :split])
        self._run_layers(self.see_flow, state.flow_input, state.merged[..., split:])
        # The last two channels are the flow itself.
        targets = (state.motion[0][..., :-2], state.motion[1][..., :-2])
        self.operations.convolve_into(state.merged, self.merge, targets)

    def _run_layers(self, layers: list[Convolution], x: Map, target: Map) -> None:
        for layer in layers[:-1]:
            x = self.operations.convolve(x, layer, relu=True)
        self.operations.convolve_into(x, layers[-1], (target, target))

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
            del gates, candidate  # before the next ones are made
        decided = self.operations.convolve(state.hidden, self.decide, relu=True)
        assert self.change.bias is not None
        change = self.operations.convolve(decided, without_bias(self.change))
        self._advance(state, change, self.change.bias)


def without_bias(layer: Convolution) -> Convolution:
    """Return the layer, its bias left to whoever comes next."""
    return replace(layer, bias=None)


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
