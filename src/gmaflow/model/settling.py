"""Stop refining a pair where its flow has settled.

After LEAST iterations and then after every EVERY more, a pair whose last iteration changed its flow
by less than a threshold on average keeps that flow. The others go on. So the result of a pair does
not depend on the batch that it is part of.

Legend: b batch, c channels, h w rows and columns at 1/8.
"""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from gmaflow.model.upsample import STRIDE

LEAST = 4
"""Iterations before the first check."""
EVERY = 2
"""Iterations between checks. Each check waits for the device."""
SETTLED = 0.05
"""The threshold: pixels of the image, mean over all cells. See docs/performance.md."""
MOST = 32
"""The largest number of iterations if nobody asks for another."""


class Refined(NamedTuple):
    """A batch after some iterations; the tensors may be written to."""

    flow: Float[Tensor, "b 2 h w"]
    before: Float[Tensor, "b 2 h w"]
    """The flow before the last iteration."""
    hidden: Float[Tensor, "b c h w"]


def refine_until_settled(
    advance: Callable[[int], Refined], *, iters: int, threshold: float
) -> tuple[int, ...]:
    """Refine a batch until all its pairs have settled; return the iterations of each pair.

    Args:
        advance: Makes this many more iterations.
        iters: The largest number of iterations.
        threshold: The mean change in pixels below which a pair has settled.
    """
    done, kept = 0, dict[int, tuple[int, Tensor, Tensor]]()
    while True:
        step = min(EVERY if done else LEAST, iters - done)
        flow, before, hidden = advance(step)
        done += step
        changes = STRIDE * (flow - before).norm(dim=1).mean(dim=(1, 2))
        for pair, change in enumerate(changes.tolist()):
            if change < threshold and pair not in kept:
                kept[pair] = done, flow[pair].clone(), hidden[pair].clone()
        if done >= iters or len(kept) == len(flow):
            break
    for pair, (_, settled, state) in kept.items():
        flow[pair].copy_(settled)
        hidden[pair].copy_(state)
    return tuple(kept[pair][0] if pair in kept else done for pair in range(len(flow)))
