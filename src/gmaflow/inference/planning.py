"""How to estimate a batch within the memory there is: at once, in parts, or in tiles.

Everything but tiles gives the same flow up to rounding. So the plan is the fastest exact one that
fits, and tiles only where none does.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from gmaflow.errors import FlowError
from gmaflow.inference.memory import as_gigabytes
from gmaflow.inference.tiles import SMALLEST_TILE, tile_sizes
from gmaflow.model import STRIDE, MemoryPlan, NetworkConfig
from gmaflow.model.aggregation import STREAM_BYTES

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Footprint:
    """Bytes in float32 for each pixel of a pair, at the three times when most is alive."""

    encoding: float
    """The encoders work at half the images' size with many channels: they decide the need of large
    images."""
    holding: float
    """What all iterations read: features, states, and the context's share of convolutions."""
    refining: float
    """That, and what one iteration computes with; the two matrices are not in it."""


LARGE = Footprint(encoding=700.0, holding=100.0, refining=380.0)
SMALL = Footprint(encoding=360.0, holding=60.0, refining=310.0)
"""Measured with torch 2.13 on a CPU, as resident memory: 688 and 310 to 360 for the large networks,
352 and 200 to 300 for the small one."""

SLACK = 16e6
"""Whatever the size: small pieces that allocators keep."""

PLANS = tuple(
    MemoryPlan(store_correlation=correlation, store_attention=attention)
    for correlation, attention in ((True, True), (False, True), (True, False), (False, False))
)
"""From the fastest to the smallest: to stream attention costs more than to stream correlation."""


@dataclass(frozen=True)
class WorkPlan:
    """What is estimated at once, and what is kept in memory for it."""

    memory: MemoryPlan
    pairs: int
    """Pairs of the batch at once."""
    tile: tuple[int, int]
    """Height and width at once: of the padded images, or of a tile."""
    need: float = 0.0
    """Bytes that it is expected to take, over the loaded program."""

    def told(self) -> str:
        """Return the plan as a person would say it."""
        kept = ["streamed", "stored"]
        height, width = self.tile
        return (
            f"{self.pairs} pair(s) of {height}x{width} at once, "
            f"correlation {kept[self.memory.store_correlation]}, "
            f"attention {kept[self.memory.store_attention]}: about {as_gigabytes(self.need)}"
        )


def bytes_needed(
    config: NetworkConfig,
    plan: MemoryPlan,
    *,
    batch: int,
    height: int,
    width: int,
    half: bool = False,
) -> float:
    """Return the most memory that a batch of padded images takes at a time, in bytes.

    Encoders, attention and refinement follow each other, so the largest of them counts. A third of
    the stored correlation are the pyramid's small levels.

    Args:
        config: The network.
        plan: What it keeps.
        batch: Pairs at once.
        height: Of the padded images, as their width.
        width: See `height`.
        half: Whether it computes in half precision.
    """
    footprint = SMALL if config.small else LARGE
    scale = 0.5 if half else 1.0
    pixels = scale * batch * height * width
    matrix = scale * 4.0 * (height * width / STRIDE**2) ** 2
    held = footprint.holding * pixels
    refining = footprint.refining * pixels
    if plan.store_correlation:
        held, refining = (part + batch * matrix * 4 / 3 for part in (held, refining))
    if config.aggregates:
        attention = batch * config.num_heads * matrix
        if plan.store_attention:
            # Softmax makes the matrix from another, in float32 whatever the precision.
            held += attention + (2 if half else 1) * attention
            # A product with it first copies it into another order, a pair and a head at a time.
            refining += attention + matrix
        else:
            refining += 2 * min(attention, float(STREAM_BYTES))
    return SLACK + max(footprint.encoding * pixels, held, refining)


def plan_batch(
    config: NetworkConfig,
    shape: tuple[int, ...],
    *,
    budget: float,
    half: bool,
    fixed: MemoryPlan | None = None,
) -> WorkPlan:
    """Plan the work on a batch of padded images, and tell the log.

    Args:
        config: The network.
        shape: Of the batch.
        budget: Bytes that may be taken.
        half: Whether it computes in half precision.
        fixed: What to keep in memory whatever it takes; by default what fits.
    """
    batch, _, height, width = shape
    if fixed is not None:
        return WorkPlan(fixed, batch, (height, width))
    plan = plan_work(config, batch=batch, height=height, width=width, budget=budget, half=half)
    log.info("%s", plan.told())
    if plan.tile != (height, width):
        warn_of_tiles(f"{height}x{width}", "x".join(map(str, plan.tile)))
    return plan


def plan_work(
    config: NetworkConfig,
    *,
    batch: int,
    height: int,
    width: int,
    budget: float,
    half: bool = False,
) -> WorkPlan:
    """Return the fastest way to estimate a batch of padded images within a budget in bytes.

    Raises:
        FlowError: Not even the smallest tile fits.
    """
    whole = height, width
    for plan in candidates(config, batch=batch, tile=whole, half=half):
        if plan.need <= budget:
            return plan
    for tile in tile_sizes(height, width):
        for plan in candidates(config, batch=1, tile=tile, half=half):
            if plan.need <= budget:
                return plan
    side = min(SMALLEST_TILE, height), min(SMALLEST_TILE, width)
    least = min(plan.need for plan in candidates(config, batch=1, tile=side, half=half))
    raise FlowError(
        f"{as_gigabytes(budget)} of memory are not enough for images of {height}x{width}; even in "
        f"tiles they take {as_gigabytes(least)}: give more (--max-memory), or make them smaller"
    )


def candidates(
    config: NetworkConfig, *, batch: int, tile: tuple[int, int], half: bool
) -> Iterator[WorkPlan]:
    """Give the exact ways to estimate a batch of that size, the fastest first."""
    height, width = tile
    for memory in PLANS:
        for halvings in range(math.ceil(math.log2(batch)) + 1):
            pairs = math.ceil(batch / 2**halvings)
            need = bytes_needed(config, memory, batch=pairs, height=height, width=width, half=half)
            yield WorkPlan(memory, pairs, tile, need)


@cache
def warn_of_tiles(size: str, tile: str) -> None:
    """Say once for each size what tiles change."""
    log.warning(
        "%s does not fit the memory and is estimated in tiles of %s: attention is then local, and "
        "motion that leaves a tile is guessed; more memory (--max-memory), or smaller images, help",
        size,
        tile,
    )
