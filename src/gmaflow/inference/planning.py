"""How to estimate a batch in the available memory: at once, in parts, or in tiles.

All plans except tiles give the same flow up to rounding. The fastest exact plan that fits is used;
if none fits, tiles.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gmaflow.errors import FlowError, counted
from gmaflow.inference.tiles import MIN_TILE, tile_sizes
from gmaflow.model import STRIDE, MemoryPlan, NetworkConfig
from gmaflow.model.aggregation import FLOAT8_MIN_CELLS, STREAM_BYTES
from gmaflow.runtime.device import memory_text

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes per pixel of a pair in float32, at the three phases that need most."""

    encoding: float
    """The encoders: many channels at half the images' size. For large images they need most."""
    holding: float
    """Inputs of all iterations: features, states, and the context's share of convolutions."""
    refining: float
    """The same plus the intermediates of one iteration, without the two matrices."""
    streaming: float = 0.0
    """Extra intermediates of an iteration if the correlation is streamed."""
    second_attention: bool = False
    """Whether softmax makes a second attention matrix, and the product copies it in another layout,
    one pair and head at a time."""

    fixed: float = 16e6
    """Bytes at any size: small blocks that allocators keep, workspaces of libraries."""


PLAIN = {
    "large": Footprint(encoding=700.0, holding=100.0, refining=380.0, second_attention=True),
    "small": Footprint(encoding=360.0, holding=60.0, refining=310.0, second_attention=True),
}
FAST = {
    "large": Footprint(encoding=480.0, holding=100.0, refining=340.0, streaming=120.0),
    "small": Footprint(encoding=250.0, holding=60.0, refining=150.0, streaming=80.0),
}
"""Both back ends, measured with torch 2.13 on a CPU as resident memory."""
FAST_CUDA = {
    "large": Footprint(encoding=360.0, holding=100.0, refining=360.0, streaming=55.0, fixed=100e6),
    "small": replace(FAST["small"], fixed=100e6),
}
"""The large network was measured with torch 2.11 on an H200 in half precision, as allocated memory
including weights; the small one was not measured."""

MIXED_PIXEL_SCALE = 0.9
"""Bytes of a pixel in bfloat16 on a CPU, relative to float32; measured with torch 2.13."""

TILING_BYTES = 32.0
"""Bytes per pixel of a pair that is split into tiles: 24 for both images, and 8 for the flow that
tiles are blended into. Negligible for a pair that is estimated at once."""

PLANS = tuple(
    MemoryPlan(store_correlation=correlation, store_attention=attention)
    for correlation, attention in ((True, True), (False, True), (True, False), (False, False))
)
"""From the fastest to the smallest: streaming attention costs more than streaming correlation."""


@dataclass(frozen=True)
class Computation:
    """Everything that decides how much memory a pixel needs."""

    config: NetworkConfig
    half: bool = False
    """Half precision."""
    fast: bool = False
    """The fast back end."""
    device: str = "cpu"
    """The type of the device."""
    float8: bool = False
    """The device multiplies in float8."""

    @property
    def footprint(self) -> Footprint:
        """The memory of a pixel in float32."""
        fast = FAST_CUDA if self.device == "cuda" else FAST
        return (fast if self.fast else PLAIN)["small" if self.config.small else "large"]

    @property
    def pixel_scale(self) -> float:
        """The memory of a pixel, relative to float32. A CPU keeps states and inputs in float32."""
        if not self.half:
            return 1.0
        return MIXED_PIXEL_SCALE if self.fast and self.device == "cpu" else 0.5

    @property
    def attention_piece(self) -> float:
        """Bytes of the attention matrix that streaming computes at once."""
        if self.fast and self.half and self.config.attention == "content" and self.device == "cuda":
            return 0.0  # one kernel, without intermediates
        return float(STREAM_BYTES["cpu" if self.device == "cpu" else "other"])

    def attention_bytes(self, cells: float) -> float:
        """Bytes of a stored attention matrix among `cells` cells of the 1/8 grid."""
        float8 = self.fast and self.half and self.float8 and cells >= FLOAT8_MIN_CELLS
        return cells**2 * (1.0 if float8 else 2.0 if self.half else 4.0)


@dataclass(frozen=True)
class WorkPlan:
    """How much is estimated at once, and what is stored for it."""

    memory: MemoryPlan
    pairs: int
    """How many pairs of the batch at once."""
    tile: tuple[int, int]
    """Height and width at once: of the padded images, or of a tile."""
    need: float = 0.0
    """Expected use of memory in bytes, in addition to the loaded program."""

    def is_whole(self, shape: tuple[int, ...]) -> bool:
        """Return whether a batch of that shape is estimated at once."""
        return (self.pairs, self.tile) == (shape[0], shape[-2:])

    def in_tiles(self, shape: tuple[int, ...]) -> bool:
        """Return whether a batch of that shape is split into tiles, which changes the flow."""
        return self.tile != shape[-2:]

    def describe(self) -> str:
        storage = ["streamed", "stored"]
        height, width = self.tile
        return (
            f"{counted(self.pairs, 'pair')} of {height}x{width} at once, "
            f"correlation {storage[self.memory.store_correlation]}, "
            f"attention {storage[self.memory.store_attention]}: about {memory_text(self.need)}"
        )


def bytes_needed(
    computation: Computation, plan: MemoryPlan, *, batch: int, height: int, width: int
) -> float:
    """Return the peak memory of a batch of padded images in bytes.

    Encoders, attention and refinement follow each other, so the largest of them counts. The coarse
    levels of the pyramid add a third to the stored correlation.
    """
    footprint, config = computation.footprint, computation.config
    scale = 0.5 if computation.half else 1.0
    pixels = computation.pixel_scale * batch * height * width
    cells = height * width / STRIDE**2
    matrix = scale * 4.0 * cells**2
    held = footprint.holding * pixels
    refining = footprint.refining * pixels
    if plan.store_correlation:
        # Without Triton kernels it is float32 in any precision.
        volume = batch * matrix * 4 / 3 / (1.0 if computation.device == "cuda" else scale)
        held, refining = (part + volume for part in (held, refining))
    else:
        refining += footprint.streaming * pixels
    if config.aggregates:
        attention = batch * config.num_heads * computation.attention_bytes(cells)
        if not plan.store_attention:
            # Scores, their softmax, and earlier blocks that are not freed yet.
            refining += 3 * min(attention, computation.attention_piece)
        elif footprint.second_attention:
            # The second matrix is in float32 in any precision.
            held += attention + attention / scale
            refining += attention + matrix
        else:
            refining += attention
    if config.continues:
        refining += continuation_bytes(computation, plan, batch * matrix)
    return footprint.fixed + max(footprint.encoding * pixels, held, refining)


def continuation_bytes(computation: Computation, plan: MemoryPlan, matrix: float) -> float:
    """Return the bytes that the continuation's own attention adds to an iteration.

    `matrix` is the size of an attention matrix in the compute dtype.
    """
    in_float32 = 2 * matrix if computation.half else matrix
    if not plan.store_attention:
        piece = STREAM_BYTES["cpu" if computation.device == "cpu" else "other"]
        return 4 * min(in_float32, float(piece))
    if computation.fast:  # made a few rows at a time; float32 on a CPU in any precision
        return in_float32 if computation.device == "cpu" else matrix
    # Scores, distances and softmax are in float32 in any precision.
    return matrix + 3 * in_float32


def plan_work(
    computation: Computation,
    *,
    batch: int,
    height: int,
    width: int,
    budget: float,
    image_size: tuple[int, int] | None = None,
) -> WorkPlan:
    """Return the fastest plan for a batch of padded images within a budget in bytes.

    `image_size` is the size before padding, for error messages.
    """
    for plan in candidates(computation, batch, (height, width)):
        if plan.need <= budget:
            return plan
    extra = TILING_BYTES * batch * height * width
    for tile in tile_sizes(height, width):
        for plan in candidates(computation, 1, tile, extra=extra):
            if plan.need <= budget:
                return plan
    side = min(MIN_TILE, height), min(MIN_TILE, width)
    min_need = min(plan.need for plan in candidates(computation, 1, side, extra=extra))
    height, width = image_size or (height, width)
    raise FlowError(
        f"{memory_text(budget)} of memory are not enough for images of {height}x{width}; even in "
        f"tiles they need {memory_text(min_need)}: allow more (--max-memory, max_memory=), or use "
        "smaller images"
    )


def candidates(
    computation: Computation, batch: int, tile: tuple[int, int], *, extra: float = 0.0
) -> Iterator[WorkPlan]:
    """Yield the exact plans for a batch, fastest first; `extra` bytes are already in use."""
    height, width = tile
    for memory in PLANS:
        for halvings in range(math.ceil(math.log2(batch)) + 1):
            pairs = math.ceil(batch / 2**halvings)
            need = bytes_needed(computation, memory, batch=pairs, height=height, width=width)
            yield WorkPlan(memory, pairs, tile, extra + need)


class PlanLog:
    """Logs how batches are estimated, the first time and whenever it changes."""

    def __init__(self) -> None:
        self._last = ""
        self._warned: set[tuple[int, int]] = set()

    def log_plan(self, plan: WorkPlan, shape: tuple[int, ...], size: tuple[int, int]) -> None:
        """Log the plan of a batch; warn of tiles once for each size of images.

        `shape` is that of the padded batch, `size` the images' own.
        """
        text = plan.describe()
        if text != self._last:
            log.info("%s", text)
        self._last = text
        if plan.in_tiles(shape) and size not in self._warned:
            self._warned.add(size)
            log.warning(
                "%dx%d does not fit in memory and is estimated in tiles of %dx%d: attention is "
                "then local, and motion that leaves a tile is guessed; allow more memory "
                "(--max-memory, max_memory=), or use smaller images",
                *size,
                *plan.tile,
            )
