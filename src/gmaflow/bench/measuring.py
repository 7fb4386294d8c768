"""Measures time and peak memory of cases.

Times are measured in turn, so that anything that slows the machine slows all cases. Memory is
measured in a fresh process for each case, since a process that has computed something before holds
memory that it no longer needs.
"""

import gc
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from gmaflow.bench.cases import BenchConfig, Case, Distance, Work, distance_from_float32
from gmaflow.errors import BAD_INPUT, FlowError, print_stderr
from gmaflow.inference.engine import can_be_fast
from gmaflow.runtime.device import as_precision, pick_device, pick_fast_dtype, release_freed_memory
from gmaflow.version import __version__

TRAINING_SIZE, TRAINING_BATCH = (368, 496), 8
"""Crop and batch of the paper's table of overhead."""
MIN_ROUNDS, MAX_ROUNDS = 3, 200
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
LOADED_SIZE = 128

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Times:
    """Seconds of each round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Of this process, all threads together."""

    @property
    def median(self) -> float:
        """The median of the wall-clock seconds."""
        return float(np.median(self.wall))

    @property
    def p95(self) -> float:
        """The 95th percentile of the wall-clock seconds."""
        return float(np.percentile(self.wall, 95))

    @property
    def median_cpu(self) -> float:
        return float(np.median(self.cpu))


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Peak memory in bytes, and the time of the first call."""

    used: float
    """In addition to the loaded program: resident memory on a CPU, allocated memory including the
    weights on a GPU."""
    reserved: float | None
    """GPU memory that torch reserved; None on a CPU."""
    first_s: float
    """Seconds to the first result, including loading the weights and compiling kernels that are not
    in the cache."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One case and its figures."""

    case: Case
    parameters: int
    times: Times
    peak: Peak | None
    distance: Distance | None = None
    """From float32, if requested."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The cost of the published algorithm relative to gmaflow's, at one size."""

    model: str
    size: str
    wall: float
    cpu: float
    memory: float | None


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """All figures, and the machine they were measured on."""

    config: BenchConfig
    machine: dict[str, str | int]
    precision: str
    backend: str
    """What `auto` resolved to: fast or reference."""
    measured: list[Measured]
    training: dict[str, Peak | None]
    """Peak memory of training by model; None if it cannot be measured."""
    interrupted: bool = False
    """Whether the run was interrupted before everything was measured."""

    def ratios(self) -> Iterator[Ratio]:
        """Compare each case of the published algorithm with gmaflow's."""
        ours = {(m.case.model, m.case.size): m for m in self.measured if m.case.way == "gmaflow"}
        for theirs in self.measured:
            if theirs.case.way != "published":
                continue
            ours_same = ours[theirs.case.model, theirs.case.size]
            memory = (
                theirs.peak.used / ours_same.peak.used if theirs.peak and ours_same.peak else None
            )
            yield Ratio(
                model=theirs.case.model,
                size=theirs.case.size,
                wall=median_ratio(ours_same.times.wall, theirs.times.wall),
                cpu=median_ratio(ours_same.times.cpu, theirs.times.cpu),
                memory=memory,
            )


def bench(
    config: BenchConfig,
    *,
    progress: Progress = lambda _text: None,
) -> BenchResult:
    """Measure all cases of a config; after an interrupt, return the sizes that are complete.

    `progress` is called with what is being measured.
    """
    device = pick_device(config.device)
    dtype = pick_fast_dtype(as_precision(config.precision), device)
    fast = config.backend != "reference" and can_be_fast(device, dtype)
    measured: list[Measured] = []
    training: dict[str, Peak | None] = {}
    interrupted = False
    try:
        for size in config.measured_sizes:
            measured += measure_size(config, size, device, progress)
        if config.overhead:
            training = measure_training(config, device, progress)
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
    config: BenchConfig, size: tuple[int, int], device: torch.device, progress: Progress
) -> list[Measured]:
    """Measure the memory of each case at one size, then the times of all in turn."""
    cases = {f"{case.model} {case.way}": case for case in config.cases(size)}
    peaks: dict[str, Peak | None] = {}
    for name, case in () if config.skip_memory else cases.items():
        progress(f"{case.size}: measuring memory of {name}")
        try:
            peaks[name] = peak_of(case)
        except FlowError as err:  # the times are still useful
            progress(f"not measured: {err}")
    works = {}
    for name, case in cases.items():
        progress(f"{case.size}: loading {name}")
        works[name] = case.prepare()
    progress(f"{size[0]}x{size[1]}: measuring time")
    times = time_in_turn(
        works, device, warm_up=config.warm_up, rounds=config.rounds, seconds=config.seconds
    )
    works.clear()
    # Free the device, so that the next process finds it empty.
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
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
    config: BenchConfig, device: torch.device, progress: Progress
) -> dict[str, Peak | None]:
    """Measure the memory of training with the paper's settings, on a GPU only."""
    peaks: dict[str, Peak | None] = dict.fromkeys(config.model_names)
    for model in peaks if device.type == "cuda" else ():
        progress(f"training {model}: measuring memory")
        case = config.case(model, TRAINING_SIZE, "training")
        peaks[model] = peak_of(replace(case, batch=TRAINING_BATCH))
    return peaks


def time_in_turn(
    works: Mapping[str, Work],
    device: torch.device,
    *,
    warm_up: int,
    rounds: int = 0,
    seconds: float = 10.0,
) -> dict[str, Times]:
    """Call works one after the other, round after round.

    `rounds` are those that count; 0 for as many as fit into `seconds` for each work.
    """
    for _ in range(warm_up):
        for work in works.values():
            time_once(work, device)
    times = {name: Times() for name in works}
    started, done, total = time.perf_counter(), 0, rounds or MIN_ROUNDS
    while done < total:
        for name, work in works.items():
            wall, cpu = time_once(work, device)
            times[name].wall.append(wall)
            times[name].cpu.append(cpu)
        done += 1
        if not rounds:
            seconds_per_round = (time.perf_counter() - started) / done
            rounds_that_fit = min(seconds * len(works) / seconds_per_round, MAX_ROUNDS)
            total = max(int(rounds_that_fit), MIN_ROUNDS)
    return times


def time_once(work: Work, device: torch.device) -> tuple[float, float]:
    """Return the wall-clock and CPU seconds of one call, until the device has finished."""
    synchronize(device)
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    synchronize(device)
    return time.perf_counter() - wall, time.process_time() - cpu


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def median_ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median over the rounds of their time divided by ours."""
    return float(np.median(np.array(theirs) / np.array(ours)))


def peak_of(case: Case) -> Peak | None:
    """Measure the memory of a case in a fresh process; None if the system does not report it."""
    run = f"from {__name__} import measure_as_child; measure_as_child()"
    command = [sys.executable, "-c", run, json.dumps(asdict(case))]
    # The folders that this process imports from, so that the child finds the same program.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"exit code {done.returncode}; was there enough memory?"
        raise FlowError(f"{case.size}, {case.model}, {case.way}: {reason}")
    peak = json.loads(done.stdout.splitlines()[-1])
    return None if peak is None else Peak(**peak)


def measure_as_child() -> None:
    """Measure the case that the command line describes; print its peak as JSON."""
    try:
        peak = measure_peak(Case(**json.loads(sys.argv[1])))
    except FlowError as err:
        print_stderr(str(err))
        sys.exit(BAD_INPUT)
    print(json.dumps(None if peak is None else asdict(peak)))  # noqa: T201


def measure_peak(case: Case) -> Peak | None:
    """Measure a case in this process, which should have done nothing before."""
    device = pick_device(case.device)
    if device.type == "cuda":
        return measure_cuda_peak(case, device)
    if device.type == "cpu" and RESET.exists():
        return measure_cpu_peak(case)
    return None


def measure_cuda_peak(case: Case, device: torch.device) -> Peak:
    """Measure with the statistics of torch's allocator."""
    started = time.perf_counter()
    work = case.prepare()
    torch.cuda.reset_peak_memory_stats(device)
    work()
    synchronize(device)
    first_s = time.perf_counter() - started
    work()  # the optimizer's state and CUDA graphs are made in the second call
    synchronize(device)
    return Peak(
        used=float(torch.cuda.max_memory_allocated(device)),
        reserved=float(torch.cuda.max_memory_reserved(device)),
        first_s=first_s,
    )


def measure_cpu_peak(case: Case) -> Peak:
    """Measure with Linux's peak resident memory, relative to that before the call."""
    # A small pair first: libraries that are loaded late belong to the program, not to the work.
    if case.way != "training":
        replace(case, height=LOADED_SIZE, width=LOADED_SIZE, iters=1, max_memory=None).prepare()()
    started = time.perf_counter()
    work = case.prepare()
    release_freed_memory()
    loaded = status("VmRSS")
    RESET.write_text(RESET_PEAK)
    work()
    first_s = time.perf_counter() - started
    return Peak(used=status("VmHWM") - loaded, reserved=None, first_s=first_s)


def status(name: str) -> float:
    """Return a memory figure of this process in bytes, as Linux reports it."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024.0 * int(line.split()[1])
    raise FlowError(f"this system does not report {name} of a process")


def describe_machine(device: torch.device) -> dict[str, str | int]:
    """Return the device and the versions of everything that matters for speed."""
    machine: dict[str, str | int] = {
        "device": device_name(device),
        "processor": processor_name(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gmaflow": __version__,
    }
    if device.type == "cuda":
        machine["cuda"] = torch.version.cuda or torch.version.hip or ""
        machine["cudnn"] = torch.backends.cudnn.version() or 0
        if importlib.util.find_spec("triton") is not None:
            machine["triton"] = version("triton")
    return machine


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return "CPU" if device.type == "cpu" else device.type


def processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
