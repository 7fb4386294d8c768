"""Loss scaling for half precision, all of it on the device."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

FIRST_SCALE = 2.0**16
GROWTH_INTERVAL = 2000


class LossScale:
    """How much the loss is multiplied, so that small gradients survive half precision.

    It halves when a gradient overflows and doubles after 2,000 good steps, as torch's GradScaler
    does. That one keeps part of its state in Python; here everything is a tensor, so that a step
    can be recorded once and replayed.
    """

    def __init__(self, device: torch.device, *, enabled: bool) -> None:
        self.enabled = enabled
        self.scale = torch.tensor(FIRST_SCALE if enabled else 1.0, device=device)
        self.good_steps = torch.zeros((), device=device)

    def update(self, overflowed: Bool[Tensor, ""]) -> None:
        """Adapt the scale to how a step went."""
        if not self.enabled:
            return
        self.good_steps.add_(1).mul_(~overflowed)
        grown = self.good_steps >= GROWTH_INTERVAL
        factor = torch.where(overflowed, 0.5, torch.where(grown, 2.0, 1.0))
        self.scale.mul_(factor)
        self.good_steps.mul_(~grown)

    def state(self) -> dict[str, Float[Tensor, ""]]:
        """Return the tensors that make up the state; filling them restores it."""
        return {"scale": self.scale, "good_steps": self.good_steps}
