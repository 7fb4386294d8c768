"""Measure everything that a config asks for."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from gmaflow.bench.cases import Case
from gmaflow.bench.config import BenchConfig
from gmaflow.bench.distance import Distance, distance_from_float32
from gmaflow.bench.machine import describe_machine
from gmaflow.bench.peak import Peak, peak_of
from gmaflow.bench.timing import Times, median_ratio, time_in_turn
from gmaflow.errors import FlowError
from gmaflow.inference.engine import can_be_fast
from gmaflow.runtime.device import as_precision, pick_device, pick_dtype

TRAINING_SIZE, TRAINING_BATCH = (368, 496), 8
"""What the paper's table of overhead trains with."""

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One case and its figures."""

    case: Case
    parameters: int
    times: Times
    peak: Peak | None
    distance: Distance | None = None
    """From float32, where that was asked for."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times as much the published way takes, at one size."""

    model: str
    size: str
    wall: float
    cpu: float
    memory: float | None


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """All that was measured, and where."""

    config: BenchConfig
    machine: dict[str, str | int]
    precision: str
    backend: str
    """What `auto` came to: fast or reference."""
    measured: list[Measured]
    training: dict[str, Peak | None]
    """Peak memory of training, by model; None where it cannot be measured."""
    interrupted: bool = False
    """Whether it was ended before everything was measured."""

    def ratios(self) -> Iterator[Ratio]:
        """Compare each case of the published way with the one it was measured in turn with."""
        ours = {(m.case.model, m.case.size): m for m in self.measured if m.case.way == "gmaflow"}
        for peer in self.measured:
            if peer.case.way != "published":
                continue
            own = ours[peer.case.model, peer.case.size]
            memory = peer.peak.taken / own.peak.taken if peer.peak and own.peak else None
            yield Ratio(
                model=peer.case.model,
                size=peer.case.size,
                wall=median_ratio(own.times.wall, peer.times.wall),
                cpu=median_ratio(own.times.cpu, peer.times.cpu),
                memory=memory,
            )


def bench(config: BenchConfig, *, tell: Tell = lambda _text: None) -> BenchResult:
    """Measure all cases of a config; an interrupt leaves the sizes that were measured.

    Args:
        config: What to measure.
        tell: Is told what is being measured.

    Raises:
        FlowError: A case cannot be; it says why.
    """
    device = pick_device(config.device)
    dtype = pick_dtype(as_precision(config.precision), device)
    fast = config.backend != "reference" and can_be_fast(device, dtype)
    measured: list[Measured] = []
    training: dict[str, Peak | None] = {}
    interrupted = False
    try:
        for size in config.measured_sizes:
            measured += measure_size(config, size, device, tell)
        if config.overhead:
            training = measure_training(config, device, tell)
    except KeyboardInterrupt:
        if not measured:
            raise
        interrupted = True
    return BenchResult(
        config=config,
        machine=describe_machine(device),
        precision=str(dtype).removeprefix("torch."),
        backend="fast" if fast else "reference",
        measured=measured,
        training=training,
        interrupted=interrupted,
    )


def measure_size(
    config: BenchConfig, size: tuple[int, int], device: torch.device, tell: Tell
) -> list[Measured]:
    """Measure the memory of each case of one size by itself, then the times of all in turn."""
    cases = {f"{case.model} {case.way}": case for case in config.cases(size)}
    peaks: dict[str, Peak | None] = {}
    for name, case in () if config.skip_memory else cases.items():
        tell(f"{case.size}: measuring memory of {name}")
        try:
            peaks[name] = peak_of(case)
        except FlowError as err:  # the times are worth keeping
            tell(f"not measured: {err}")
    works = {}
    for name, case in cases.items():
        tell(f"{case.size}: loading {name}")
        works[name] = case.prepare()
    tell(f"{size[0]}x{size[1]}: measuring time")
    times = time_in_turn(
        works, device, warm_up=config.warm_up, rounds=config.rounds, seconds=config.seconds
    )
    works.clear()
    release(device)
    return [
        Measured(
            case=case,
            parameters=case.checkpoint().num_parameters,
            times=times[name],
            peak=peaks.get(name),
            distance=distance_from_float32(case)
            if config.check and case.way == "gmaflow"
            else None,
        )
        for name, case in cases.items()
    ]


def measure_training(
    config: BenchConfig, device: torch.device, tell: Tell
) -> dict[str, Peak | None]:
    """Measure the memory of training as the paper did; on a GPU only, where it is asked for."""
    height, width = TRAINING_SIZE
    found: dict[str, Peak | None] = {}
    for model in config.model_names:
        case = Case(
            way="training",
            model=model,
            height=height,
            width=width,
            batch=TRAINING_BATCH,
            iters=config.iters,
            device=config.device,
            precision=config.precision,
        )
        found[model] = None
        if device.type == "cuda":
            tell(f"training {model}: measuring memory")
            found[model] = peak_of(case)
    return found


def release(device: torch.device) -> None:
    """Give back what the works held, so that the next process finds the device empty."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
