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
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.inference.fast.convolution import Convolution, Working
from gmaflow.inference.fast.encoder import FastEncoder
from gmaflow.inference.fast.operations import Map, Operations, PlainOperations
from gmaflow.inference.fast.refinement import FastRefinement
from gmaflow.model import FlowNetwork, MemoryPlan, Prediction
from gmaflow.model.aggregation import AttentionWeights
from gmaflow.model.network import STORE_ALL, check_images
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
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`, as `FlowNetwork` does."""
        check_images(image1, image2)
        frames = self.encode_context(image1)
        features1, features2 = self.encode_both(image1, image2)
        return self.solve(features1, features2, frames, iters=iters, flow_init=flow_init, plan=plan)

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
        prepared = self.refine.prepare(frames.context)
        look_up = self.operations.correlate(
            features1,
            features2,
            num_levels=self.config.correlation_levels,
            radius=self.config.correlation_radius,
            store=plan.store_correlation,
        )
        state = self.refine.begin(frames.hidden, flow_init)
        for _ in range(iters):
            self.refine(state, look_up(state.coords), attention, prepared)
        del look_up, attention  # large, and not needed any more
        low = state.flow.permute(0, 3, 1, 2).contiguous()
        return Prediction([self._upsample(low, state.hidden)], low)

    def _attend(self, context: Map, *, store: bool) -> AttentionWeights | None:
        if self.attention is None:
            return None
        queries, keys = self.attention.queries_and_keys(context.permute(0, 3, 1, 2))
        return self.operations.attend(queries, keys, store=store)

    def _upsample(self, flow: Float[Tensor, "b 2 h w"], hidden: Map) -> Float[Tensor, "b 2 H W"]:
        if not self.weigh:
            return self.upsampler(flow, hidden.permute(0, 3, 1, 2))
        first, last = self.weigh
        seen = self.operations.convolve(hidden, first, relu=True)
        return self.operations.upsample(flow, self.operations.convolve(seen, last))
