"""Stop refining a pair once its flow has settled.

After MIN_ITERS iterations and then after every CHECK_EVERY more, a pair whose last iteration
changed its flow by less than a threshold on average keeps that flow. The others go on. So the
result of a pair does not depend on the batch that it is part of.

Legend: b batch, c channels, h w rows and columns at 1/8.
"""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from gmaflow.model.update import STRIDE

MIN_ITERS = 4
"""Iterations before the first check."""
CHECK_EVERY = 2
"""Iterations between checks. Each check synchronizes with the device."""
SETTLED_THRESHOLD = 0.05
"""The threshold: pixels of the image, mean over all cells. See docs/performance.md."""
MAX_ITERS = 32
"""The default limit on the number of iterations."""


class Refined(NamedTuple):
    """A batch after some iterations; the tensors may be written to."""

    flow: Float[Tensor, "b 2 h w"]
    previous: Float[Tensor, "b 2 h w"]
    """The flow before the last iteration."""
    hidden: Float[Tensor, "b c h w"]


class Settling:
    """Tracks which pairs of a batch have settled, and keeps their flow.

    There are at most `iters` iterations, and the threshold is in pixels.
    """

    def __init__(self, iters: int, threshold: float) -> None:
        self.iters, self.threshold = iters, threshold
        self.done = 0
        self.settled: dict[int, tuple[int, Tensor, Tensor]] = {}

    def is_done(self, iteration: int, batch: Refined) -> bool:
        """Return whether all pairs are done after `iteration` iterations; store settled ones."""
        self.done = iteration
        if iteration >= MIN_ITERS and (iteration - MIN_ITERS) % CHECK_EVERY == 0:
            changes = STRIDE * (batch.flow - batch.previous).norm(dim=1).mean(dim=(1, 2))
            for pair, change in enumerate(changes.tolist()):
                if change < self.threshold and pair not in self.settled:
                    settled = batch.flow[pair].clone(), batch.hidden[pair].clone()
                    self.settled[pair] = iteration, *settled
        return iteration >= self.iters or len(self.settled) == len(batch.flow)

    def restore(self, batch: Refined) -> tuple[int, ...]:
        """Write the stored flow back to the batch; return the iterations of each pair."""
        for pair, (_, flow, hidden) in self.settled.items():
            batch.flow[pair].copy_(flow)
            batch.hidden[pair].copy_(hidden)
        pairs = range(len(batch.flow))
        return tuple(self.settled[pair][0] if pair in self.settled else self.done for pair in pairs)


def refine_until_settled(
    advance: Callable[[int], Refined], *, iters: int, threshold: float
) -> tuple[int, ...]:
    """Refine a batch from check to check until all its pairs have settled, see `Settling`.

    `advance` makes this many more iterations. Returns the iterations of each pair.
    """
    settling, done = Settling(iters, threshold), min(MIN_ITERS, iters)
    batch = advance(done)
    while not settling.is_done(done, batch):
        step = min(CHECK_EVERY, iters - done)
        batch, done = advance(step), done + step
    return settling.restore(batch)
