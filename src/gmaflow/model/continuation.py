"""Position-aware aggregation: continue the motion of related, visible cells into hidden ones.

GMA's aggregation copies motion from cells that look alike. Where a thing turns or recedes, its
hidden part moves differently from its visible part, and a copy is wrong. Here an affine motion is
fitted to the cells that a cell attends to, evaluated where the cell is, and a gate decides how far
the flow moves towards it. From the third iteration on, after the update:

    A_ij   = softmax_j(q_i . k_j / sqrt(128) - d |i - j|),  q, k = W [x; h],  d = softplus(d0)
    t, r, g = conv1x1(relu(conv3x3(h)));  c = sigmoid(t);  lambda = exp(clamp(l0 + r, -9, 3))
    s_ij   = A_ij c_j, plus 1e-4 for the cell itself;  m_i = sum_j A_ij c_j
    mu, phi: means of p and f weighted by s;  C, D: covariances of p with p, and of f with p
    e_i    = phi_i + D_i (C_i + lambda_i I)^-1 (p_i - mu_i),  e - f within +-32 cells
    f_i   += alpha (1 - c_i) sigmoid(g_i + a log(m_i + 1e-4) + b log(1 + 8 |e_i - f_i|)) (e_i - f_i)

x is the context, h the recurrent state, f the flow in cells, p the position in units of 32 cells.
A is computed once, in the first of these iterations. alpha starts at 0, so that the network starts
as gma, and counts as at most 1. A cell that trusts its own flow keeps it: without 1 - c_i, gates
open at visible cells too, and the flow there no longer learns from its own error.

GMFlow's propagation copies flow by attention, so it cannot extrapolate; KPA-Flow and SKFlow gain by
locality, as -d |i - j| does; RAFT-3D fits rigid motions in 3-D, which needs depth.

Legend: b batch, c channels, h w rows and columns at 1/8, p = h * w cells.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor, nn

from gmaflow.model.aggregation import (
    AttentionWeights,
    DistanceBias,
    StoredAttention,
    StreamedAttention,
)

FIRST_ITERATION = 2
"""The first iteration, counted from 0, that continues motion: before it there is little motion."""
KEY_CHANNELS = 128
HEAD_CHANNELS = 64
CELLS_PER_UNIT = 32.0
"""Positions are in units of this many cells."""
MAX_CHANGE = 32.0
"""The largest e - f of each component, in cells."""
SELF_WEIGHT = 1e-4
"""Weight of a cell in its own fit: a cell that attends to nothing trustworthy keeps its flow."""
MAX_PEAK = 50.0
"""The largest gradient of a cell's fit, relative to the mean over the cells."""
NUM_MOMENTS = 12
"""The products whose means a fit needs: 1, x, y, u, v, xx, xy, yy, ux, uy, vx, vy."""


class Continued(NamedTuple):
    """The continuation of one iteration, for the training losses."""

    flow: Float32[Tensor, "b 2 h w"]
    """e, in cells."""
    trust: Float32[Tensor, "b 1 h w"]
    """The logit t of each cell."""
    before: Float32[Tensor, "b 2 h w"]
    """The flow before it was moved towards e, without gradient."""


class Continuation(nn.Module):
    """Fits, continues and gates. Its weights stay float32 if the network is in half precision."""

    def __init__(self, *, context_channels: int, hidden_channels: int) -> None:
        super().__init__()
        self.query_key = nn.Conv2d(
            context_channels + hidden_channels, 2 * KEY_CHANNELS, 1, bias=False
        )
        self.decay = nn.Parameter(torch.tensor([math.log(math.expm1(1 / 12))]))
        """d0"""
        self.head = nn.Conv2d(hidden_channels, HEAD_CHANNELS, 3, padding=1)
        self.logits = nn.Conv2d(HEAD_CHANNELS, 3, 1)
        """t, r, g"""
        self.ridge = nn.Parameter(torch.tensor([math.log(0.003)]))
        """l0"""
        self.evidence = nn.Parameter(torch.zeros(2))
        """a, b"""
        self.alpha = nn.Parameter(torch.zeros(1))
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]
        nn.init.zeros_(self.logits.weight)
        with torch.no_grad():
            self.logits.bias.copy_(torch.tensor([2.0, 0.0, -2.0]))  # type: ignore[union-attr]

    @torch.no_grad()
    def start_from(self, query_key: Float[Tensor, "qk c 1 1"]) -> None:
        """Start with GMA's queries and keys, which see the context only."""
        self.query_key.weight.zero_()
        self.query_key.weight[:, : query_key.shape[1]].copy_(query_key)

    def attend(
        self, context: Float[Tensor, "b c h w"], hidden: Float[Tensor, "b d h w"], *, store: bool
    ) -> AttentionWeights:
        """Return A, once for the pair."""
        with without_autocast(context):
            if store:
                return StoredAttention(self.weigh(context, hidden))
            queries, keys = self.queries_and_keys(context, hidden)
            return StreamedAttention(queries, keys, self.distances(context))

    def weigh(
        self, context: Float[Tensor, "b c h w"], hidden: Float[Tensor, "b d h w"]
    ) -> Float[Tensor, "b 1 p p"]:
        """Return A as a matrix; a method of its own, since training compiles it."""
        queries, keys = self.queries_and_keys(context, hidden)
        all_pixels = torch.arange(queries.shape[2], device=context.device)
        return StreamedAttention(queries, keys, self.distances(context)).rows(all_pixels)

    def queries_and_keys(
        self, context: Float[Tensor, "b c h w"], hidden: Float[Tensor, "b d h w"]
    ) -> tuple[Float[Tensor, "b 1 p e"], Float[Tensor, "b 1 p e"]]:
        """Return q / sqrt(128) and k."""
        inputs = torch.cat([context, hidden.to(context.dtype)], dim=1)
        if self.training:
            # The gradient of A reaches thousands where a fit is ill-conditioned. In half precision
            # it would overflow, and the loss scale that avoids it would lose all small gradients.
            inputs = inputs.float()
        query_key = convolve(self.query_key, inputs).flatten(2).transpose(1, 2)[:, None]
        queries, keys = query_key.split(KEY_CHANNELS, dim=-1)
        return queries * KEY_CHANNELS**-0.5, keys

    def distances(self, context: Float[Tensor, "b c h w"]) -> DistanceBias:
        """Return -d |i - j|."""
        height, width = context.shape[-2:]
        return DistanceBias(F.softplus(self.decay.float()), height, width)

    def forward(
        self,
        hidden: Float[Tensor, "b d h w"],
        flow: Float32[Tensor, "b 2 h w"],
        attention: AttentionWeights,
        continued: Float[Tensor, "b 1 1 1"] | None = None,
    ) -> tuple[Float32[Tensor, "b 2 h w"], Continued]:
        """Return the flow after the gate; `continued` scales the gates of each pair."""
        with without_autocast(hidden):
            own, logits = self.terms(hidden, flow)
            weighted = own * torch.sigmoid(logits[:, :1]).flatten(2).mT
            sums = attention.aggregate(weighted[:, None])[:, 0]
            if sums.requires_grad:
                sums.register_hook(limit_peaks)
            moved, target = self.blend(sums, own, logits, flow, continued)
            return moved, Continued(target, logits[:, :1], flow.detach())

    def terms(
        self, hidden: Float[Tensor, "b d h w"], flow: Float32[Tensor, "b 2 h w"]
    ) -> tuple[Float32[Tensor, "b p m"], Float32[Tensor, "b 3 h w"]]:
        """Return the moments of each cell on its own, and t, r, g."""
        features = convolve(self.head, hidden).relu().float()
        return moments(flow.detach()), convolve(self.logits, features)

    def blend(
        self,
        sums: Float32[Tensor, "b p m"],
        own: Float32[Tensor, "b p m"],
        logits: Float32[Tensor, "b 3 h w"],
        flow: Float32[Tensor, "b 2 h w"],
        continued: Float[Tensor, "b 1 1 1"] | None,
    ) -> tuple[Float32[Tensor, "b 2 h w"], Float32[Tensor, "b 2 h w"]]:
        """Return the flow after the gate, and e."""
        trust, ridge, gate = logits.split(1, dim=1)
        ridge = (self.ridge.float() + ridge).clamp(-9.0, 3.0).exp()
        change = affine_change(sums, own, ridge.flatten(2).mT)
        change = change.mT.unflatten(2, flow.shape[-2:])
        target = flow.detach() + change
        mass = (sums[..., :1] + 1e-4).log().mT.unflatten(2, flow.shape[-2:])
        size = (8 * change.detach().norm(dim=1, keepdim=True)).log1p()
        evidence = self.evidence.float()
        gate = torch.sigmoid(gate + evidence[0] * mass + evidence[1] * size)
        # Trust learns from its own loss only; here it would learn to open gates.
        gate = self.alpha.float().clamp(max=1.0) * torch.sigmoid(-trust.detach()) * gate
        if continued is not None:
            gate = gate * continued
        return flow + gate * (target - flow), target


def affine_change(
    sums: Float32[Tensor, "b p m"],
    own: Float32[Tensor, "b p m"],
    ridge: Float32[Tensor, "b p 1"],
) -> Float32[Tensor, "b p 2"]:
    """Return e - f: the affine fit to the weighted moments, at the cell itself, minus its flow.

    Args:
        sums: Moments of all cells, weighted and summed for each cell.
        own: Moments of each cell on its own.
        ridge: lambda. If it is large, e is the weighted mean of the flow.
    """
    total, moment_sums = (sums + SELF_WEIGHT * own).split([1, NUM_MOMENTS - 1], dim=-1)
    mx, my, mu, mv, xx, xy, yy, ux, uy, vx, vy = (moment_sums / total).split(1, dim=-1)
    _, x, y, u, v, *_ = own.split(1, dim=-1)
    cxx, cxy, cyy = xx - mx * mx + ridge, xy - mx * my, yy - my * my + ridge
    dux, duy, dvx, dvy = ux - mu * mx, uy - mu * my, vx - mv * mx, vy - mv * my
    # Rounding may make the determinant too small; exactly, it is at least ridge^2.
    inverse_det = 1 / torch.maximum(cxx * cyy - cxy * cxy, 0.5 * ridge * ridge)
    x, y = x - mx, y - my
    a, b = (
        (cyy * x - cxy * y) * inverse_det,
        (cxx * y - cxy * x) * inverse_det,
    )  # (C + ridge)^-1 (p - mu)
    change = torch.cat([mu + dux * a + duy * b - u, mv + dvx * a + dvy * b - v], dim=-1)
    return change.clamp(-MAX_CHANGE, MAX_CHANGE)


def limit_peaks(gradient: Float32[Tensor, "b p m"]) -> Float32[Tensor, "b p m"]:
    """Limit a gradient to multiples of its mean size, so that bad fits do not dominate a step."""
    limit = MAX_PEAK * gradient.abs().mean(dim=1, keepdim=True)
    return gradient.clamp(-limit, limit)


def moments(flow: Float32[Tensor, "b 2 h w"]) -> Float32[Tensor, "b p m"]:
    """Return 1, x, y, u, v, xx, xy, yy, ux, uy, vx, vy of each cell."""
    height, width = flow.shape[-2:]
    y, x = (torch.arange(n, device=flow.device).float() for n in (height, width))
    y, x = ((part - part[-1:] / 2) / CELLS_PER_UNIT for part in (y, x))  # centred
    u, v = flow.float().split(1, dim=1)
    x, y = x.view(1, 1, 1, -1).expand_as(u), y.view(1, 1, -1, 1).expand_as(u)
    parts = [torch.ones_like(u), x, y, u, v, x * x, x * y, y * y, u * x, u * y, v * x, v * y]
    return torch.cat(parts, dim=1).flatten(2).mT


def convolve(layer: nn.Conv2d, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d h w"]:
    """Apply a layer in the dtype of its input."""
    bias = None if layer.bias is None else layer.bias.to(x.dtype)
    return F.conv2d(x, layer.weight.to(x.dtype), bias, padding=layer.padding)


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Disable autocast, which would round sums of positions and flow."""
    if torch.is_autocast_enabled(x.device.type):
        return torch.autocast(x.device.type, enabled=False)
    return nullcontext()
