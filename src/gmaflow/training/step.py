"""One optimisation step: forward, loss, backward, clipping, AdamW.

`TrainStep.run` never waits for the device, branches on values or creates persistent state, so it
can be recorded as a CUDA graph and replayed. Settings that change between steps are tensors that
are filled in place.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gmaflow.data import Batch
from gmaflow.errors import TrainingError
from gmaflow.geometry import sample_grid
from gmaflow.model import STRIDE, EncodedFrame, FlowNetwork, Prediction, pixel_grid
from gmaflow.model.continuation import Continuation
from gmaflow.model.network import memory_format_of
from gmaflow.runtime.device import as_precision, pick_dtype
from gmaflow.training.config import StepPlan, TrainConfig
from gmaflow.training.distributed import ALONE, SharedGradients, World
from gmaflow.training.loss import (
    CONTINUATION_WEIGHT,
    MAX_FLOW,
    continuation_loss,
    error_sums,
    loss_weights,
    sequence_loss,
)

ADAM_EPSILON = 1e-8
INITIAL_SCALE = 2.0**16
GROWTH_INTERVAL = 200
"""Good steps after which the loss scale doubles. torch's 2,000 are too many: if one step in a
thousand overflows, the scale keeps falling until small gradients vanish."""
CONTINUATION_RATE = 2.0
"""Learning rate of the continuation, relative to the rest of the network."""
ERASED_SIDES = (6, 12)
"""Smallest and largest side of an erased box, in cells."""
REVERSED_SHARE = 0.15
"""Share of the disturbed starts that come from another pair and are useless. With `both_ways` that
is the same pair backward."""


ParameterGroup: TypeAlias = tuple[list[nn.Parameter], Float[Tensor, ""]]
"""Parameters, and their learning rate as a tensor."""


class StepResult(NamedTuple):
    """The result of a step as tensors on the device, for this process's share of the batch."""

    loss: Float[Tensor, ""]
    gradient_norm: Float[Tensor, ""]
    """Norm of the gradient before clipping."""
    errors: Float[Tensor, " s"]
    """The sums of `loss.error_sums`."""
    skipped: Bool[Tensor, ""]
    """Whether the step was skipped because the loss or gradient was not finite."""

    @property
    def epe(self) -> Float[Tensor, ""]:
        """The mean end-point error of the last iteration."""
        return self.errors[1] / self.errors[0]


class TrainStep:
    """A network in training, with all the state that a step reads and changes."""

    def __init__(self, network: FlowNetwork, config: TrainConfig, *, world: World = ALONE) -> None:
        freeze_unused(network)
        self.network = network.train()
        self.config, self.world = config, world
        self.trainable = {n: p for n, p in network.named_parameters() if p.requires_grad}
        self.device = next(network.parameters()).device
        self.dtype = pick_dtype(as_precision(config.precision), self.device)
        half = self.dtype != torch.float32
        self.half = HalfPrecisionCopy(network, self.dtype) if half else None
        self.forward_network = network if self.half is None else self.half.network
        self.shared = (
            SharedGradients(self.trainable.values(), network.buffers(), world)
            if world.exchanges
            else None
        )

        self.lr = torch.zeros((), device=self.device)
        self.continuation_lr = torch.zeros((), device=self.device)
        self.occluded_weight = torch.ones((), device=self.device)
        self.disturbed = torch.zeros((), device=self.device)
        self.skipped = torch.zeros((), device=self.device)
        self.skipped_in_row = torch.zeros((), device=self.device)
        self.scale = LossScale(self.device, enabled=self.dtype == torch.float16)
        self.average = WeightAverage(network, decay=config.ema) if config.ema else None
        self.optimizer = make_optimizer(list(self._groups()), config)

    def _groups(self) -> Iterator[ParameterGroup]:
        """Yield the parameters with their learning rates."""
        continuation = {n for n in self.trainable if n.startswith("continuation.")}
        yield [p for n, p in self.trainable.items() if n not in continuation], self.lr
        if continuation:
            yield [p for n, p in self.trainable.items() if n in continuation], self.continuation_lr

    def __call__(self, batch: Batch, plan: StepPlan) -> StepResult:
        """Train on a batch with the settings of `plan`."""
        self.prepare(plan)
        return self.run(batch, plan.iters, plan.ahead)

    def prepare(self, plan: StepPlan) -> None:
        """Fill the tensors with the step's settings."""
        self.lr.fill_(plan.lr)
        self.continuation_lr.fill_(CONTINUATION_RATE * plan.lr)
        self.occluded_weight.fill_(float(plan.occluded))
        self.disturbed.fill_(self.config.disturbed * plan.disturbed)

    def run(self, batch: Batch, iters: int, ahead: int = 0) -> StepResult:
        """Train on a batch with the settings last prepared."""
        outputs = self.compute_gradients(batch, iters, ahead)
        if self.shared is not None:
            self.shared.exchange()
        return self.apply(*outputs)

    def compute_gradients(self, batch: Batch, iters: int, ahead: int = 0) -> tuple[Tensor, ...]:
        """Compute the gradients; return the loss, the errors, and the buffers before the step."""
        old_buffers = [value.clone() for value in self.network.buffers()]

        self.optimizer.zero_grad(set_to_none=True)
        if self.half is not None:
            self.half.refresh()
        parts = batch.split(self.config.parts)
        results = [self.accumulate(part, iters, ahead) for part in parts]
        loss = torch.stack([loss for loss, _ in results]).sum()
        errors = torch.stack([errors for _, errors in results]).sum(dim=0)

        if self.half is not None:
            self.half.copy_gradients_back()
        if self.shared is not None:
            self.shared.collect(loss)
        return loss, errors, *old_buffers

    def apply(
        self, loss: Float[Tensor, ""], errors: Float[Tensor, " s"], *old_buffers: Tensor
    ) -> StepResult:
        """Update the network with the results of `compute_gradients`, or skip the step."""
        # All processes have the same gradient, but each has its own loss.
        mean_loss = loss if self.shared is None else self.shared.distribute()
        norm = self.unscale_and_clip()
        failed = ~(mean_loss.isfinite() & norm.isfinite())
        self.update(failed)
        for value, old in zip(self.network.buffers(), old_buffers, strict=True):
            value.copy_(torch.where(failed, old, value))
        return StepResult(loss, norm, errors, failed)

    def accumulate(
        self, part: Batch, iters: int, ahead: int
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " s"]]:
        """Accumulate the gradient of a part; return its share of the loss, and its errors."""
        prediction = self.predict(part, iters, ahead)
        weights = loss_weights(part.flow, part.valid, part.occluded, self.occluded_weight)
        loss = sequence_loss(
            prediction.flows,
            part.flow,
            weights,
            gamma=self.config.gamma,
            robust=self.config.robust,
        )
        if prediction.continuations:
            loss = loss + CONTINUATION_WEIGHT * continuation_loss(
                prediction.continuations,
                part.flow,
                part.valid,
                part.occluded,
                gamma=self.config.gamma,
            )
        loss = loss / self.config.parts
        (loss * self.scale.scale).backward()
        errors = error_sums(prediction.flow.detach(), part.flow, part.valid, part.occluded)
        return loss.detach(), errors

    def predict(self, part: Batch, iters: int, ahead: int) -> Prediction:
        """Estimate the flow after every iteration.

        With `both_ways`, the second half of a batch is the first half backward, so each frame is
        encoded only once.
        """
        network, config = self.forward_network, self.config
        start = disturb(part.flow, part.valid, self.disturbed) if config.disturbed else None
        if config.both_ways:
            first = network.encode_frame(part.image1)
            features2 = swap_halves(first.features)
        else:
            features1, features2 = network.encode(torch.cat([part.image1, part.image2])).chunk(2)
            first = EncodedFrame(features1, *network.encode_context(part.image1))
        if config.erase:
            features2 = erase_boxes(features2, config.erase)
        continued = None
        if network.continuation is not None and config.continued < 1:
            drawn = torch.rand(len(part.flow), 1, 1, 1, device=self.device)
            continued = (drawn < config.continued).float()
        return network.match(
            first,
            features2,
            iters=iters,
            ahead=ahead,
            flow_init=start,
            continued=continued,
            all_iterations=True,
        )

    def unscale_and_clip(self) -> Float[Tensor, ""]:
        """Unscale and clip the gradient in one pass; return its norm before clipping."""
        gradients = [p.grad for p in self.trainable.values() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients) / self.scale.scale
        factor = (self.config.clip / (norm + 1e-6)).clamp(max=1.0) / self.scale.scale
        torch._foreach_mul_(gradients, factor)
        return norm

    def update(self, failed: Bool[Tensor, ""]) -> None:
        """Update the parameters, unless the step failed, and count skipped steps."""
        # A fused optimizer reads found_inf on the device, and does nothing where it is 1.
        self.optimizer.found_inf = failed.float()  # type: ignore[attr-defined]
        self.optimizer.step()
        self.scale.update(failed)
        if self.average is not None:
            self.average.update((~failed).float())
        self.skipped.add_(failed)
        self.skipped_in_row.add_(1).mul_(failed)

    def progress(self) -> dict[str, float]:
        """Return the state of the optimisation for the log. Waits for the device."""
        values = {"lr": self.lr, "skipped": self.skipped, "loss-scale": self.scale.scale}
        return {name: float(value) for name, value in values.items()}

    @contextmanager
    def evaluating(self) -> Iterator[FlowNetwork]:
        """Yield the network in evaluation mode, with averaged weights if `ema` is on."""
        if self.average is not None:
            self.average.swap()
        try:
            with torch.no_grad():
                yield self.network.eval()
        finally:
            self.network.train()
            if self.average is not None:
                self.average.swap()

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that steps change, by name. Filling them in place restores a state."""
        tensors = {f"network.{n}": value for n, value in self.network.state_dict().items()}
        for name, parameter in self.trainable.items():
            moments = self.optimizer.state[parameter]
            tensors |= {f"adam.{kind}.{name}": value for kind, value in moments.items()}
        if self.average is not None:
            tensors |= {f"average.{n}": value for n, value in self.average.mean.items()}
        tensors |= {f"loss_scale.{n}": value for n, value in self.scale.state().items()}
        return tensors | {"skipped": self.skipped, "skipped_in_row": self.skipped_in_row}

    @torch.no_grad()
    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Fill the state in place."""
        own = self.state()
        different = sorted(own.keys() ^ tensors.keys())
        different += [n for n in own.keys() & tensors.keys() if own[n].shape != tensors[n].shape]
        if different:
            raise TrainingError(f"it belongs to another network or config ({different[0]} differs)")
        for name, value in own.items():
            value.copy_(tensors[name])


def weights_in(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy of the weights to save from `TrainStep.state`: averages if there are any."""
    own = {n.removeprefix("network."): v for n, v in state.items() if n.startswith("network.")}
    return {n: state.get(f"average.{n}", v).detach().cpu().clone() for n, v in own.items()}


def freeze_unused(network: FlowNetwork) -> None:
    """Exclude the position tables of content-only attention from training.

    They exist because the published networks have them, but they never get a gradient, and weight
    decay would shrink them.
    """
    if network.attention is not None and not network.config.uses_position:
        network.attention.row_offsets.requires_grad_(False)
        network.attention.column_offsets.requires_grad_(False)


def make_optimizer(groups: list[ParameterGroup], config: TrainConfig) -> torch.optim.AdamW:
    """Return AdamW with learning rates as tensors and its state already created."""
    optimizer = torch.optim.AdamW(
        [{"params": parameters} for parameters, _ in groups],
        lr=groups[0][1],
        weight_decay=config.weight_decay,
        eps=ADAM_EPSILON,
        fused=True,
        capturable=groups[0][1].is_cuda,
    )
    for group, (_, lr) in zip(optimizer.param_groups, groups, strict=True):
        group["lr"] = lr
    optimizer.grad_scale = None  # type: ignore[attr-defined]
    for parameter in (parameter for parameters, _ in groups for parameter in parameters):
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        }
    return optimizer


class HalfPrecisionCopy:
    """A half-precision copy for the forward and backward pass; the float32 weights are optimised.

    Autocast would convert the weights again in each iteration of a step, forward and backward. The
    copy is filled once a step, and its gradients accumulate in its own type.

    Batch norm layers and the continuation are shared with the original: statistics, and sums of
    positions and flow, need float32.

    Both networks are converted to channels last.
    """

    def __init__(self, network: FlowNetwork, dtype: torch.dtype) -> None:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        shared = {
            id(part): part
            for layer in network.modules()
            if isinstance(layer, nn.BatchNorm2d | Continuation)
            for part in layer.modules()
        }
        self.network = copy.deepcopy(network, memo=dict(shared))
        for layer in self.network.modules():
            if id(layer) not in shared:
                for parameter in layer.parameters(recurse=False):
                    parameter.data = parameter.data.to(dtype)
        pairs = zip(network.parameters(), self.network.parameters(), strict=True)
        copied = [(master, half) for master, half in pairs if master is not half]
        self._master: list[Tensor] = [master for master, _ in copied]
        self._half: list[Tensor] = [half for _, half in copied]

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the current weights of the network and clear the gradients."""
        torch._foreach_copy_(self._half, self._master)
        for half in self._half:
            half.grad = None

    @torch.no_grad()
    def copy_gradients_back(self) -> None:
        """Copy the accumulated gradients to the float32 network."""
        for master, half in zip(self._master, self._half, strict=True):
            master.grad = None if half.grad is None else half.grad.to(master.dtype)


class LossScale:
    """A factor on the loss that keeps small gradients representable in half precision.

    It halves when a gradient overflows and doubles after 200 good steps.
    GradScaler keeps part of its state in Python; here everything is a tensor, so that a step can be
    recorded as a CUDA graph.
    """

    def __init__(self, device: torch.device, *, enabled: bool) -> None:
        self.enabled = enabled
        self.scale = torch.tensor(INITIAL_SCALE if enabled else 1.0, device=device)
        self.good_steps = torch.zeros((), device=device)

    def update(self, overflowed: Bool[Tensor, ""]) -> None:
        """Adapt the scale after a step."""
        if not self.enabled:
            return
        self.good_steps.add_(1).mul_(~overflowed)
        grown = self.good_steps >= GROWTH_INTERVAL
        factor = torch.where(overflowed, 0.5, torch.where(grown, 2.0, 1.0))
        self.scale.mul_(factor)
        self.good_steps.mul_(~grown)

    def state(self) -> dict[str, Float[Tensor, ""]]:
        """Return the state as tensors; filling them in place restores it."""
        return {"scale": self.scale, "good_steps": self.good_steps}


class WeightAverage:
    """Exponential moving average of a network's parameters."""

    def __init__(self, network: nn.Module, *, decay: float) -> None:
        self.decay = decay
        self.parameters = dict(network.named_parameters())
        self.mean = {name: value.detach().clone() for name, value in self.parameters.items()}

    @torch.no_grad()
    def update(self, changed: Float[Tensor, ""]) -> None:
        """Move towards the parameters; `changed` is 0 after a skipped step."""
        weight = (1 - self.decay) * changed
        for name, value in self.parameters.items():
            self.mean[name].lerp_(value.detach(), weight)

    @torch.no_grad()
    def swap(self) -> None:
        """Swap the average and the parameters, in place."""
        for name, value in self.parameters.items():
            current = value.detach().clone()
            value.copy_(self.mean[name])
            self.mean[name].copy_(current)


def erase_boxes(features: Float[Tensor, "b c h w"], share: float) -> Float[Tensor, "b c h w"]:
    """Replace 1 or 2 boxes in a share of the items by the item's mean; keeps the memory layout."""
    batch, _, height, width = features.shape
    min_side, max_side = ERASED_SIDES
    device = features.device
    drawn = torch.rand(batch, 2, 5, device=device)  # for each of two boxes

    def draw(cells: int, size: Tensor, position: Tensor) -> Tensor:
        """Return which rows or columns a box covers."""
        side = torch.floor(min_side + (max_side - min_side + 1) * size)
        first = torch.floor(position * (cells - side + 1).clamp(min=1))
        index = torch.arange(cells, device=device)
        return (index >= first[..., None]) & (index < (first + side)[..., None])

    rows = draw(height, drawn[..., 0], drawn[..., 1])
    columns = draw(width, drawn[..., 2], drawn[..., 3])
    boxes = rows[..., :, None] & columns[..., None, :]
    chosen, second = drawn[:, 0, 4] < share, drawn[:, 1, 4] < 0.5
    erased = boxes[:, 0] | (boxes[:, 1] & second[:, None, None])
    erased &= chosen[:, None, None]
    mean = features.detach().float().mean(dim=(2, 3), keepdim=True).to(features.dtype)
    filled = torch.where(erased[:, None], mean, features)
    return filled.contiguous(memory_format=memory_format_of(features))


@torch.no_grad()
def disturb(
    flow: Float[Tensor, "b 2 H W"], valid: Bool[Tensor, "b H W"], share: Float[Tensor, ""]
) -> Float[Tensor, "b 2 h w"]:
    """Return starts on the 1/8 grid: disturbed true flow for a share of the pairs, otherwise zero.

    A warm start is the flow of the previous pair, warped forward by itself. It differs from the
    truth in speed and by smooth changes of motion, and its edges are displaced.
    """
    middle = slice(STRIDE // 2, None, STRIDE)
    mask = valid[:, None, middle, middle]
    start = torch.where(mask, flow[..., middle, middle], 0.0).clamp(-MAX_FLOW, MAX_FLOW) / STRIDE
    batch, _, height, width = start.shape
    drawn = torch.rand(batch, 4, 1, 1, 1, device=flow.device)

    def smooth_noise() -> Float[Tensor, "b 2 h w"]:
        """Return noise of about unit size that changes over a third of the frame."""
        coarse = torch.randn(batch, 2, 4, 5, device=flow.device)
        return F.interpolate(coarse, (height, width), mode="bilinear", align_corners=True)

    other = torch.cat(start.chunk(2)[::-1]) if batch > 1 else -start
    start = torch.where(drawn[:, 1] < REVERSED_SHARE, other, start)
    # Edges are displaced by one or two cells.
    x, y = (pixel_grid(start) + 1.5 * smooth_noise()).unbind(dim=1)
    grid = torch.stack([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], dim=-1)
    start = sample_grid(start, grid, mode="nearest", align_corners=True)
    size = start.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
    start = start * (0.6 + 0.6 * drawn[:, 2])  # another speed
    start = start + (0.1 + 0.3 * drawn[:, 3] * size) * smooth_noise()
    return torch.where(drawn[:, 0] < share, start, 0.0)


def swap_halves(tensor: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
    """Swap the halves of a batch, keeping the memory layout."""
    first, second = tensor.chunk(2)
    return torch.cat([second, first])
