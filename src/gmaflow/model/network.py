"""The whole network, from two images to flow: RAFT, and GMA on top of it.

Images are RGB in 0..1. Flow is in pixels, x right then y down, from the first image to the second.
Legend: b batch, H W rows and columns of the images (multiples of 8), h w = H / 8, W / 8.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict, Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gmaflow.errors import FlowError, ImageError
from gmaflow.model.aggregation import Aggregator, Attention, AttentionWeights, aggregate_values
from gmaflow.model.config import NetworkConfig
from gmaflow.model.continuation import FIRST_ITERATION, Continuation, Continued
from gmaflow.model.correlation import correlate, pixel_grid
from gmaflow.model.encoder import make_encoder
from gmaflow.model.settling import Refined, Settling
from gmaflow.model.update import (
    STRIDE,
    BilinearUpsampler,
    ConvexUpsampler,
    MotionEncoder,
    UpdateBlock,
)

MIN_SIDE = 16
"""Smallest height and width: two cells of the 1/8 grid."""

RANGE_TOLERANCE = 0.5
"""How far values may lie outside 0..1 before the images are taken to have another range."""


@dataclass(frozen=True)
class MemoryPlan:
    """Where to spend memory for speed. The result is the same up to rounding."""

    store_correlation: bool = True
    store_attention: bool = True


STORE_ALL = MemoryPlan()

OnIteration = Callable[[int, Tensor, Tensor], None]
"""Called after each iteration with its number from 1, the flow on the 1/8 grid and the recurrent
state."""


class MatchOptions(TypedDict, total=False):
    """The options of `FlowNetwork.match`, which all back ends accept."""

    iters: int
    flow_init: Float[Tensor, "b 2 h w"] | None
    plan: MemoryPlan
    on_iteration: OnIteration | None
    settled: float | None


class Prediction(NamedTuple):
    """The flow of a batch of pairs."""

    flows: list[Float[Tensor, "b 2 H W"]]
    """Full-size flow of the last iteration, or of all iterations in order."""
    low: Float[Tensor, "b 2 h w"]
    """The last flow on the 1/8 grid, in its pixels; a warm start begins from it."""
    continuations: tuple[Continued, ...] = ()
    """What each iteration continued, for training; see `gmaflow.model.continuation`."""
    iterations: tuple[int, ...] = ()
    """How many iterations each pair took, if they stopped where the flow settled."""
    minmax: Float[Tensor, " n"] | None = None
    """Minimum and maximum of the flow, and then of the images, if they were computed. Reading them
    synchronizes with the device, so that is left to the caller."""

    @property
    def flow(self) -> Float[Tensor, "b 2 H W"]:
        """The final flow at full size."""
        return self.flows[-1]


class EncodedFrame(NamedTuple):
    """The features of one image, computed once for all its pairs."""

    features: Float[Tensor, "b c h w"]
    """Matched with the features of another image."""
    hidden: Float[Tensor, "b d h w"]
    """The first recurrent state of a pair that starts with the image."""
    context: Float[Tensor, "b e h w"]
    """An input of every refinement of such a pair."""


class FlowNetwork(nn.Module):
    """RAFT's recurrent refinement, with global motion aggregation where the config asks for it."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        if not isinstance(config, NetworkConfig):
            raise FlowError(f"got {config!r}; give a config, such as MODELS['gma']")
        self.config = config
        hidden, context = config.hidden_channels, config.context_channels
        motion = config.motion_channels
        global_motion = motion if config.aggregates and config.combination == "concatenate" else 0

        self.features = make_encoder(config, config.feature_channels, for_context=False)
        self.context = make_encoder(config, hidden + context, for_context=True)
        self.motion = MotionEncoder(
            correlation_channels=config.correlation_channels,
            correlation_widths=(96,) if config.small else (256, 192),
            flow_widths=(64, 32) if config.small else (128, 64),
            out_channels=motion,
        )
        self.attention: Attention | None = None
        self.aggregate: Aggregator | None = None
        if config.aggregates:
            self.attention = Attention(
                kind=config.attention, context_channels=context, num_heads=config.num_heads
            )
            self.aggregate = Aggregator(
                motion_channels=motion,
                num_heads=config.num_heads,
                learned_alpha=config.learned_alpha,
                residual=config.residual,
            )
        self.continuation: Continuation | None = None
        if config.continues:
            assert self.attention is not None
            self.continuation = Continuation(context_channels=context, hidden_channels=hidden)
            self.continuation.start_from(self.attention.to_query_key.weight)
        self.update = UpdateBlock(
            hidden_channels=hidden,
            context_channels=context,
            input_channels=motion + global_motion,
            kernels=((3, 3),) if config.small else ((1, 5), (5, 1)),
            head_channels=128 if config.small else 256,
        )
        self.upsample: nn.Module = (
            BilinearUpsampler() if config.small else ConvexUpsampler(hidden_channels=hidden)
        )

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, in which the network computes."""
        return self.features.conv_in.weight.dtype

    def forward(
        self,
        image1: Float[Tensor, "b 3 H W"],
        image2: Float[Tensor, "b 3 H W"],
        *,
        all_iterations: bool = False,
        **options: Unpack[MatchOptions],
    ) -> Prediction:
        """Estimate the flow from `image1` to `image2`.

        Images are RGB in 0..1, and their sides multiples of 8. Options are those of `match`.

        Raises:
            FlowError: The images have another shape, type or range of values.
        """
        check_images(image1, image2)
        late_check = check_values(image1, image2)
        iters = options.get("iters", 1)
        if not isinstance(iters, int) or iters < 1:
            raise FlowError(f"iters is {iters!r}; use a whole number, 1 or more")
        if not isinstance(options.get("plan", STORE_ALL), MemoryPlan):
            raise FlowError(f"plan is {options['plan']!r}; use a MemoryPlan")
        if (flow_init := options.get("flow_init")) is not None:
            options["flow_init"] = check_flow_init(flow_init, image1)
        features1, features2 = self.encode(torch.cat([image1, image2])).chunk(2)
        first = EncodedFrame(features1, *self.encode_context(image1))
        prediction = self.match(first, features2, all_iterations=all_iterations, **options)
        if late_check is not None:
            late_check()
        return prediction

    def match(  # noqa: PLR0913  (every choice a caller has)
        self,
        first: EncodedFrame,
        features2: Float[Tensor, "b c h w"],
        *,
        all_iterations: bool = False,
        iters: int = 12,
        ahead: int = 0,
        flow_init: Float[Tensor, "b 2 h w"] | None = None,
        plan: MemoryPlan = STORE_ALL,
        on_iteration: OnIteration | None = None,
        settled: float | None = None,
        continued: Float[Tensor, "b 1 1 1"] | None = None,
    ) -> Prediction:
        """Estimate the flow between images that are encoded already.

        Args:
            first: The first images.
            features2: The features of the second images.
            all_iterations: Upsample the flow of every iteration, as training needs, rather than
                only the last.
            iters: Number of refinements.
            ahead: Refinements before those. They give no result and are not backpropagated through,
                so training reaches late iterations with the memory of a few.
            flow_init: Where to start, on the 1/8 grid in its pixels; zero by default.
            plan: Where to spend memory for speed.
            on_iteration: Called after each iteration; an exception that it raises stops them.
            settled: Stop a pair when an iteration changes it by less than this many pixels; see
                `gmaflow.model.settling`.
            continued: How far `gma-affine` continues the motion of each pair, from 0 (as
                `gma`) to 1 (the default).
        """
        features1, hidden, context = first
        correlation = correlate(
            features1,
            features2,
            num_levels=self.config.correlation_levels,
            radius=self.config.correlation_radius,
            store=plan.store_correlation,
        )
        attention = self.attend(context, plan)
        context_terms = self.update.prepare_context(context)

        grid = pixel_grid(features1)
        # In the memory format of the features: another one would cost a copy in every convolution.
        # shape[0], not len(): torch.export would make that a constant.
        flow = torch.zeros_like(grid).repeat(features1.shape[0], 1, 1, 1)
        flow = flow.contiguous(memory_format=memory_format_of(features1))
        if flow_init is not None:
            flow = flow + flow_init
        flows, continuations = [], []
        continuation_attention: AttentionWeights | None = None
        settling = None if settled is None else Settling(ahead + iters, settled)
        for iteration in range(ahead + iters):
            # As in RAFT, the flow is detached: gradients do not cross iterations through it.
            flow = previous = flow.detach()
            if 0 < iteration <= ahead:
                # Keep requires_grad as it is: a change would make the compiler recompile.
                hidden = hidden.detach().requires_grad_(hidden.requires_grad)
            correlations = correlation.lookup(grid + flow)
            hidden, flow = self.refine(hidden, flow, correlations, attention, context_terms)
            if self.continuation is not None and iteration >= FIRST_ITERATION:
                if continuation_attention is None:
                    store = plan.store_attention
                    continuation_attention = self.continuation.attend(context, hidden, store=store)
                flow, continuation = self.continuation(
                    hidden, flow, continuation_attention, continued
                )
                continuations.append(continuation)
            last = iteration == ahead + iters - 1 and settling is None
            if (all_iterations and iteration >= ahead) or last:
                flows.append(self.upsample(flow, hidden))
            if on_iteration is not None:
                on_iteration(iteration + 1, flow, hidden)
            batch = Refined(flow, previous, hidden)
            if settling is not None and settling.is_done(iteration + 1, batch):
                break
        iterations: tuple[int, ...] = ()
        if settling is not None:
            # Written to copies: the gradient needs the tensors of the last iteration as they are.
            flow, hidden = flow.clone(), hidden.clone()
            iterations = settling.restore(Refined(flow, previous, hidden))
            flows = [self.upsample(flow, hidden)]
        return Prediction(flows, flow, tuple(continuations[-iters:]), iterations)

    def encode(self, images: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b c h w"]:
        """Return the features of images, for matching."""
        features: Tensor = self.features(to_signed(images).to(self.dtype))
        return features

    def encode_frame(self, image: Float[Tensor, "b 3 H W"]) -> EncodedFrame:
        """Encode an image for the pairs before and after it."""
        check_images(image, image)
        return EncodedFrame(self.encode(image), *self.encode_context(image))

    def encode_context(
        self, image1: Float[Tensor, "b 3 H W"]
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b d h w"]]:
        """Return the first recurrent state, and the context that every refinement reads."""
        channels = [self.config.hidden_channels, self.config.context_channels]
        hidden, context = self.context(to_signed(image1).to(self.dtype)).split(channels, dim=1)
        return torch.tanh(hidden), torch.relu(context)

    def attend(
        self, context: Float[Tensor, "b c h w"], plan: MemoryPlan
    ) -> AttentionWeights | None:
        """Compare the pixels of the first image with each other, once for the pair."""
        if self.attention is None:
            return None
        return self.attention(context, store=plan.store_attention)

    def refine(
        self,
        hidden: Float[Tensor, "b c h w"],
        flow: Float[Tensor, "b 2 h w"],
        correlations: Float[Tensor, "b lkk h w"],
        attention: AttentionWeights | None,
        context_terms: list[Float[Tensor, "b _ h w"]],
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b 2 h w"]]:
        """Return the recurrent state and the flow after one more iteration."""
        motion, values = self.observe(flow, correlations, hidden.dtype)
        aggregated = aggregate_values(attention, values)
        return self.advance(hidden, flow, motion, aggregated, context_terms)

    def observe(
        self,
        flow: Float[Tensor, "b 2 h w"],
        correlations: Float[Tensor, "b lkk h w"],
        dtype: torch.dtype,
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b a p d"] | None]:
        """Return the motion features of each pixel, and the values that attention aggregates."""
        # The flow itself stays float32: half precision would round it to 1/16 px beyond 64 px.
        motion = self.motion(flow.to(dtype), correlations.to(dtype))
        return motion, None if self.aggregate is None else self.aggregate.values(motion)

    def advance(
        self,
        hidden: Float[Tensor, "b c h w"],
        flow: Float[Tensor, "b 2 h w"],
        motion: Float[Tensor, "b d h w"],
        aggregated: Float[Tensor, "b a p e"] | None,
        context_terms: list[Float[Tensor, "b _ h w"]],
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b 2 h w"]]:
        """Update the recurrent state by the motion, and the flow by the recurrent state."""
        hidden, change = self.update(hidden, self.joined(motion, aggregated), context_terms)
        return hidden, flow + change.float()

    def joined(
        self, motion: Float[Tensor, "b c h w"], aggregated: Float[Tensor, "b a p d"] | None
    ) -> Float[Tensor, "b e h w"]:
        """Return the motion inputs of the recurrent unit: local, global, or both."""
        if self.aggregate is None or aggregated is None:
            return motion
        motion_global: Tensor = self.aggregate(motion, aggregated)
        if self.config.combination == "replace":
            return motion_global
        return torch.cat([motion, motion_global], dim=1)


def memory_format_of(features: Float[Tensor, "b c h w"]) -> torch.memory_format:
    channels_last = features.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if channels_last else torch.contiguous_format


def to_signed(image: Float[Tensor, "b 3 H W"]) -> Float[Tensor, "b 3 H W"]:
    """Scale an image from 0..1 to the -1..1 that the encoders expect."""
    return 2 * image - 1


def check_batches(image1: Tensor, image2: Tensor) -> None:
    """Refuse anything but two batches of float images of one shape, on one device."""
    for images in (image1, image2):
        tensor = isinstance(images, Tensor)
        if tensor and images.is_nested:
            raise ImageError("a batch of images is a dense tensor with values; convert it first")
        if not tensor or images.ndim != 4 or images.shape[1] != 3:
            what = tuple(images.shape) if tensor else f"of type {type(images).__name__}"
            raise ImageError(f"a batch of images is a tensor [b, 3, height, width], not {what}")
        if not images.is_floating_point():
            raise ImageError(
                f"images must be float in 0..1, not {images.dtype}; divide them by 255"
            )
    if image1.shape != image2.shape:
        raise ImageError(
            f"the two batches differ in shape: {tuple(image1.shape)} and {tuple(image2.shape)}"
        )
    if image1.device != image2.device:
        raise ImageError(
            f"the two batches are on {image1.device} and {image2.device}; put both on one device"
        )


def check_images(image1: Tensor, image2: Tensor) -> None:
    """Refuse images that the network does not accept."""
    check_batches(image1, image2)
    height, width = image1.shape[-2:]
    if height % STRIDE or width % STRIDE or min(height, width) < MIN_SIDE:
        raise ImageError(
            f"images are {height}x{width}; the network takes multiples of {STRIDE}, at "
            f"least {MIN_SIDE}; pad them first, as FlowEstimator does"
        )


def check_flow_init(
    flow_init: object, images: Float[Tensor, "b 3 H W"]
) -> Float[Tensor, "b 2 h w"]:
    """Refuse an initial flow that does not fit the images; return it in float32, on their device.

    Not in their dtype: half precision would round it to 1/64 of a cell beyond 16 cells.
    """
    if not isinstance(flow_init, Tensor):
        raise FlowError(f"the initial flow is a {type(flow_init).__name__}; give a tensor")
    expected = [len(images), 2, *(side // STRIDE for side in images.shape[-2:])]
    if list(flow_init.shape) != expected:
        raise FlowError(
            f"the initial flow has shape {list(flow_init.shape)}; these images need {expected}, "
            "as the coarse flow of another estimate has it"
        )
    return flow_init.to(images.device, torch.float32)


def check_values(image1: Tensor, image2: Tensor) -> Callable[[], None] | None:
    """Raise a `FlowError` for images in another range, such as 0..255 or -1..1, and for NaN.

    Values a little outside 0..1 are accepted: noise and optimised images have them.

    On CUDA the values are not known yet. Then a function is returned: call it when all work is
    launched, so that the device does not wait for the CPU.
    """
    recording = image1.is_cuda and torch.cuda.is_current_stream_capturing()
    if image1.is_meta or recording or torch.compiler.is_compiling():
        return None
    images = torch.stack([image1.detach(), image2.detach()])
    if not images.numel():
        raise FlowError("the batches are empty; use at least one pair")
    minmax = torch.stack(torch.aminmax(images))
    if not minmax.is_cuda:
        check_minmax(minmax.tolist())
        return None
    copied = torch.cuda.Event()
    pinned = torch.empty(2, dtype=minmax.dtype, device="cpu", pin_memory=True)
    pinned.copy_(minmax, non_blocking=True)
    copied.record(torch.cuda.current_stream(minmax.device))

    def late_check() -> None:
        copied.synchronize()
        check_minmax(pinned.tolist())

    return late_check


def check_minmax(minmax: Sequence[float], tolerance: float = RANGE_TOLERANCE) -> None:
    """Refuse images whose minimum and maximum are not about 0..1."""
    if any(map(math.isnan, minmax)):
        raise ImageError("the images contain NaN; replace those pixels first")
    low, high = min(minmax), max(minmax)
    if low < -tolerance or high > 1 + tolerance:
        raise ImageError(f"the images hold values from {low:g} to {high:g}; scale them to 0..1")
