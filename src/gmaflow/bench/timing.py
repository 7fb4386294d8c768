"""How long works take, measured in turn so that whatever slows the machine slows all of them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from gmaflow.bench.cases import Work

FEWEST_ROUNDS, MOST_ROUNDS = 3, 200


@dataclass(frozen=True)
class Times:
    """Seconds of one work, a value for each round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Of this process, all its threads together."""

    @property
    def median(self) -> float:
        """The median of the wall-clock seconds."""
        return float(np.median(self.wall))

    @property
    def p95(self) -> float:
        """The wall-clock seconds that 95 of 100 calls keep to."""
        return float(np.percentile(self.wall, 95))

    @property
    def median_cpu(self) -> float:
        """The median of the CPU-seconds."""
        return float(np.median(self.cpu))


def time_in_turn(
    works: Mapping[str, Work],
    device: torch.device,
    *,
    warm_up: int,
    rounds: int = 0,
    seconds: float = 10.0,
) -> dict[str, Times]:
    """Call works one after the other, round after round.

    Args:
        works: What to measure, by name.
        device: Where they compute; they are waited for.
        warm_up: Rounds that do not count.
        rounds: Rounds that do; 0 for as many as `seconds` take.
        seconds: How long to measure each work, if `rounds` does not say.
    """
    for _ in range(warm_up):
        for work in works.values():
            time_once(work, device)
    times = {name: Times() for name in works}
    started, done, total = time.perf_counter(), 0, rounds or FEWEST_ROUNDS
    while done < total:
        for name, work in works.items():
            wall, cpu = time_once(work, device)
            times[name].wall.append(wall)
            times[name].cpu.append(cpu)
        done += 1
        if not rounds:
            a_round = (time.perf_counter() - started) / done
            fitting = min(seconds * len(works) / a_round, MOST_ROUNDS)
            total = max(int(fitting), FEWEST_ROUNDS)
    return times


def time_once(work: Work, device: torch.device) -> tuple[float, float]:
    """Return the wall-clock and CPU-seconds of one call, until the device has finished."""
    wait(device)
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wait(device)
    return time.perf_counter() - wall, time.process_time() - cpu


def wait(device: torch.device) -> None:
    """Wait until a device has done all that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def median_ratio(ours: list[float], theirs: list[float]) -> float:
    """Return how many times as long theirs took, the median over the rounds."""
    return float(np.median(np.array(theirs) / np.array(ours)))
