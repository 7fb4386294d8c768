"""Settings that change during training: learning rate, iterations, loss of occluded pixels."""

from typing import NamedTuple

from gmaflow.errors import TrainingError
from gmaflow.training.config import TrainConfig

# The published one-cycle schedule: torch's OneCycleLR with linear annealing, 100 steps longer than
# the training, so that it never reaches its end.
EXTRA_STEPS = 100
RISING_SHARE = 0.05
FIRST_DIVISOR = 25.0
LAST_DIVISOR = 1e4


class StepPlan(NamedTuple):
    """The settings of one step."""

    lr: float
    iters: int
    occluded: bool
    """Whether occluded pixels count in the loss."""


def plan_at(step: int, config: TrainConfig) -> StepPlan:
    """Return the settings of a step, counted from 0."""
    return StepPlan(lr_at(step, config), iters_at(step, config), occluded_at(step, config))


def lr_at(step: int, config: TrainConfig) -> float:
    """Return the learning rate of a step, including the warm-up after `start_step`."""
    rate = one_cycle(step, steps=config.steps, peak=config.lr)
    if config.start_step:
        rate *= min(1.0, (step - config.start_step + 1) / config.warm_up)
    return rate


def one_cycle(step: int, *, steps: int, peak: float) -> float:
    """Rise linearly from 1/25 of the peak during the first 5 %, then fall to almost zero."""
    total = steps + EXTRA_STEPS
    turn, end = RISING_SHARE * total - 1, total - 1
    first = peak / FIRST_DIVISOR
    if step <= turn:
        return first + (peak - first) * step / turn
    last = first / LAST_DIVISOR
    return peak + (last - peak) * (step - turn) / (end - turn)


def iters_at(step: int, config: TrainConfig) -> int:
    """Return the number of refinement iterations of a step."""
    begun = [iters for share, iters in config.growth if step >= share * config.steps]
    return begun[-1]


def occluded_at(step: int, config: TrainConfig) -> bool:
    """Return whether occluded pixels count in the loss of a step."""
    return step >= config.occluded_from * config.steps


def check_extension(step: int, old: TrainConfig, new: TrainConfig) -> str:
    """Describe what happens when a run gets more steps after `step` of them.

    Raises:
        TrainingError: the run has already used more iterations, or counted occluded pixels, where
            the longer schedule would not yet.
    """
    if step:
        before, after = plan_at(step - 1, old), plan_at(step, new)
        setting = ""
        if after.iters < before.iters:
            setting = f"iters_growth would go back from {before.iters} to {after.iters} iterations"
        elif before.occluded and not after.occluded:
            setting = "occluded_from would ignore occluded pixels again"
        if setting:
            raise TrainingError(
                f"the run cannot be extended from {old.steps} to {new.steps} steps after step "
                f"{step}: {setting}; start a new run with the weights as --init"
            )
    rates = f"{lr_at(max(step - 1, 0), old):.2g} to {lr_at(step, new):.2g}"
    return (
        f"extended from {old.steps} to {new.steps} steps: the schedule is now that of {new.steps} "
        f"steps, and at step {step} the learning rate goes from {rates}"
    )
