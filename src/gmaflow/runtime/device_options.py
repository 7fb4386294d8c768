"""The options of every command that runs a network. Importing them does not load torch."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where networks run, and how."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps."""
    precision: str = "auto"
    """auto, fp32, fp16 or bf16."""
    backend: str = "auto"
    """auto, fast, or reference (the network in plain PyTorch)."""
    max_memory: str | None = None
    """Limit on memory, such as 1.5GB; larger images are estimated in tiles. By default the free
    memory."""
    views: int = 1
    """Mirrored views of each pair to average: 1, 2 (also left to right) or 4 (also upside down).
    More are more accurate, and take as many times longer."""
