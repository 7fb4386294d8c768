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
from typing import cast

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from gmaflow.inference.fast.convolution import Convolution, Working
from gmaflow.inference.fast.encoder import FastEncoder
from gmaflow.inference.fast.operations import Lookup, Map, Operations, PlainOperations
from gmaflow.inference.fast.refinement import FastRefinement, State
from gmaflow.model import EncodedFrame, FlowNetwork, MemoryPlan, OnIteration, Prediction
from gmaflow.model.aggregation import AttentionWeights
from gmaflow.model.network import STORE_ALL, check_images
from gmaflow.model.upsample import ConvexUpsampler
from gmaflow.runtime.memory import give_back_freed

TOGETHER_PIXELS = 2**20
"""Images of up to so many pixels are encoded two at a time; larger ones one by one, for memory."""


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
        self.refine = FastRefinement(network, working, self.operations)
        self.upsampler = network.upsample
        self.weigh: list[Convolution] = []
        if isinstance(network.upsample, ConvexUpsampler):
            first, last = (cast(nn.Conv2d, network.upsample.weights[i]) for i in (0, 2))
            self.weigh = [
                Convolution.of(first, working),
                Convolution.of(last, working),
            ]

    def __call__(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        *,
        iters: int = 12,
        flow_init: Float[Tensor, "b 2 h w"] | None = None,
        plan: MemoryPlan = STORE_ALL,
        on_iteration: OnIteration | None = None,
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`, as `FlowNetwork` does."""
        check_images(image1, image2)
        hidden, context = self._encode_context(image1)
        look_up = self._correlate(*self._encode_both(image1, image2), plan)
        state = self._iterate(
            look_up, hidden, context, flow_init, iters=iters, plan=plan, told=on_iteration
        )
        del look_up  # large, and not needed any more
        return self._upsampled(state)

    def encode_frame(self, image: Float[Tensor, "b 3 H W"]) -> EncodedFrame:
        """Return all that the network needs of an image, for the pairs before and after it."""
        check_images(image, image)
        hidden, context = self._encode_context(image)
        return EncodedFrame(self._encode(image), hidden, context)

    def match(
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        *,
        iters: int = 12,
        flow_init: Float[Tensor, "b 2 h w"] | None = None,
        plan: MemoryPlan = STORE_ALL,
        on_iteration: OnIteration | None = None,
    ) -> Prediction:
        """Estimate the flow between images that are encoded already."""
        features1, hidden, context = first
        look_up = self._correlate(features1, features2, plan)
        state = self._iterate(
            look_up, hidden, context, flow_init, iters=iters, plan=plan, told=on_iteration
        )
        del look_up  # large, and not needed any more
        return self._upsampled(state)

    def _correlate(
        self,
        features1: Float[Tensor, "b c h w"],
        features2: Float[Tensor, "b c h w"],
        plan: MemoryPlan,
    ) -> Lookup:
        return self.operations.correlate(
            channels_last(features1),
            channels_last(features2),
            num_levels=self.config.correlation_levels,
            radius=self.config.correlation_radius,
            store=plan.store_correlation,
        )

    def _iterate(
        self,
        look_up: Lookup,
        hidden: Float[Tensor, "b c h w"],
        context: Float[Tensor, "b d h w"],
        flow_init: Float[Tensor, "b 2 h w"] | None,
        *,
        iters: int,
        plan: MemoryPlan,
        told: OnIteration | None,
    ) -> State:
        attention = self._attend(context, store=plan.store_attention)
        prepared = self.refine.prepare(channels_last(context))
        state = self.refine.begin(channels_last(hidden), flow_init)
        if context.device.type == "cpu":
            give_back_freed()  # the encoders' maps, of which small pieces are still in use
        for iteration in range(iters):
            self.refine(state, look_up, attention, prepared)
            if told is not None:
                told(iteration + 1, *copies(state))
        return state

    def _encode(self, image: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        return self.features(image, self.operations).permute(0, 3, 1, 2)

    def _encode_both(
        self, image1: Float[Tensor, "b 3 H W"], image2: Float[Tensor, "b 3 H W"]
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b c h w"]]:
        if image1.is_cuda and image1[:, 0].numel() <= TOGETHER_PIXELS:
            features1, features2 = self._encode(torch.cat([image1, image2])).chunk(2)
            return features1, features2
        return self._encode(image1), self._encode(image2)

    def _encode_context(
        self, image1: Float[Tensor, "b 3 H W"]
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b d h w"]]:
        channels = [self.config.hidden_channels, self.config.context_channels]
        both = self.context(image1, self.operations).permute(0, 3, 1, 2)
        hidden, context = both.split(channels, dim=1)
        return torch.tanh(hidden), torch.relu(context)

    def _attend(self, context: Float[Tensor, "b c h w"], *, store: bool) -> AttentionWeights | None:
        if self.attention is None:
            return None
        queries, keys = self.attention.queries_and_keys(context)
        return self.operations.attend(queries, keys, store=store)

    def _upsampled(self, state: State) -> Prediction:
        low = state.flow.permute(0, 3, 1, 2).contiguous()
        if not self.weigh:
            return Prediction([self.upsampler(low, state.hidden.permute(0, 3, 1, 2))], low)
        first, last = self.weigh
        seen = self.operations.convolve(state.hidden, first, relu=True)
        logits = self.operations.convolve(seen, last)
        return Prediction([self.operations.upsample(low, logits)], low)


def channels_last(x: Float[Tensor, "b c h w"]) -> Map:
    """Return `[b, h, w, c]`, dense; what comes from a `FastNetwork` is so already."""
    return x.permute(0, 2, 3, 1).contiguous()


def copies(state: State) -> tuple[Float32[Tensor, "b 2 h w"], Float32[Tensor, "b c h w"]]:
    """Return the flow and the recurrent state for somebody to keep: the next iteration writes."""
    flow, hidden = (x.permute(0, 3, 1, 2).float() for x in (state.flow, state.hidden))
    return flow.contiguous().clone(), hidden.clone()
