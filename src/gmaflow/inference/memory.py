"""How much memory there is, and what to keep in it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from gmaflow.errors import FlowError
from gmaflow.model import STRIDE, MemoryPlan, NetworkConfig

SHARE = 0.6
"""Of the free memory; the rest is for activations and for everybody else."""


def plan_memory(
    config: NetworkConfig, *, batch: int, height: int, width: int, budget: float
) -> MemoryPlan:
    """Store correlation and attention where they fit the budget (bytes), stream them otherwise.

    Attention comes first: to stream it costs more than to stream the correlation.
    """
    matrix = 4 * batch * ((height // STRIDE) * (width // STRIDE)) ** 2
    # Twice, since softmax makes the matrix from another; the pyramid's small levels add a third.
    attention = 2 * matrix * config.num_heads if config.aggregates else 0
    correlation = matrix * 4 / 3
    store_attention = attention <= budget
    left = budget - (attention if store_attention else 0)
    return MemoryPlan(store_correlation=correlation <= left, store_attention=store_attention)


def memory_budget(device: torch.device) -> float:
    """Return how many bytes may be planned with on a device now."""
    return SHARE * free_memory(device)


def free_memory(device: torch.device) -> float:
    """Return how many bytes are free on a device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + cached
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return min(free_host_memory(), free_container_memory())


def free_host_memory() -> float:
    """Return what the machine has free, or half of all where that cannot be told."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * float(line.split()[1])
    except OSError:
        pass
    try:
        return 0.5 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30  # Windows: assume a small laptop


def free_container_memory() -> float:
    """Return what a container's limit leaves, or infinity outside one."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = (group / "memory.current").read_text().strip()
    except OSError:
        return float("inf")
    return float("inf") if limit == "max" else float(limit) - float(used)


@contextmanager
def out_of_memory_as_sentence(shape: tuple[int, ...]) -> Iterator[None]:
    """Turn running out of memory into an error that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as err:
        # On a CPU torch raises a plain RuntimeError for it.
        plain = isinstance(err, RuntimeError) and not isinstance(err, torch.OutOfMemoryError)
        if plain and "allocate memory" not in str(err):
            raise
        batch, _, height, width = shape
        raise FlowError(
            f"not enough memory for {batch} pair(s) of {height}x{width}; make the images smaller, "
            "or use a device with more memory (--device cpu)"
        ) from err
