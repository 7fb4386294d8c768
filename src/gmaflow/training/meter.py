"""Adding up what steps tell, on the device, and reading it now and then."""

import time

import torch

from gmaflow.training.distributed import World
from gmaflow.training.metrics import SUMS, mean_errors
from gmaflow.training.step import StepResult


class Meter:
    """Means over the steps since the last reading."""

    def __init__(self, device: torch.device, world: World) -> None:
        self.world = world
        # Loss, gradient norm, steps that counted, then the sums of errors.
        self.sums = torch.zeros(3 + SUMS, device=device)
        self.pairs = 0
        self.started = time.monotonic()

    def add(self, result: StepResult, pairs: int) -> None:
        """Take in a step; one that was skipped does not count."""
        counted = (~result.skipped).float()
        head = torch.stack([result.loss, result.gradient_norm, counted])
        self.sums += torch.where(result.skipped, 0.0, torch.cat([head, result.errors]))
        self.pairs += pairs

    def read(self) -> dict[str, float]:
        """Return the means by name, and begin anew. Waits for the device."""
        values = self.world.sum(self.sums.clone()).cpu()
        counted = max(float(values[2]), 1.0)
        means = {"loss": float(values[0]) / counted, "gradient": float(values[1]) / counted}
        means |= mean_errors(values[3:])
        means["pairs/s"] = self.pairs / max(time.monotonic() - self.started, 1e-9)
        self.sums.zero_()
        self.pairs, self.started = 0, time.monotonic()
        return means
