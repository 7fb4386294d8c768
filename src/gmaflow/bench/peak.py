"""The memory that one case takes, measured in a fresh process.

A process that has computed something before holds memory that it does not need any more, so every
case gets a process of its own.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from gmaflow.bench.cases import Case
from gmaflow.bench.timing import wait
from gmaflow.errors import BAD_INPUT, FlowError, say
from gmaflow.runtime.device import pick_device
from gmaflow.runtime.memory import give_back_freed

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
LOADED_SIZE = 128


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Memory at its highest, in bytes, and how long the first call took."""

    taken: float
    """Over the loaded program: on a CPU resident memory, on a GPU allocated memory, weights
    included."""
    reserved: float | None
    """What torch held of a GPU for it; nothing on a CPU."""
    first_s: float
    """Seconds to the first result of a program that has yet to load its weights and to compile
    the kernels that it does not find in its cache."""


def peak_of(case: Case) -> Peak | None:
    """Measure a case in a fresh process; None where the system does not tell.

    Raises:
        FlowError: The case cannot be computed; it says why.
    """
    run = f"from {__name__} import main; main()"
    command = [sys.executable, "-c", run, json.dumps(asdict(case))]
    # The folders that this process imports from, so that the child finds the same program.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        told = done.stderr.strip().splitlines()
        how = told[-1] if told else f"exit code {done.returncode}; was there enough memory?"
        raise FlowError(f"{case.size}, {case.model}, {case.way}: {how}")
    found = json.loads(done.stdout.splitlines()[-1])
    return None if found is None else Peak(**found)


def measure(case: Case) -> Peak | None:
    """Measure a case in this process, which should have done nothing before."""
    device = pick_device(case.device)
    if device.type == "cuda":
        return measure_cuda(case, device)
    if device.type == "cpu" and RESET.exists():
        return measure_cpu(case)
    return None


def measure_cuda(case: Case, device: torch.device) -> Peak:
    """Ask torch's allocator."""
    started = time.perf_counter()
    work = case.prepare()
    torch.cuda.reset_peak_memory_stats(device)
    work()
    wait(device)
    first_s = time.perf_counter() - started
    work()  # training makes its optimizer's state, and graphs are recorded, in the second call
    wait(device)
    return Peak(
        taken=float(torch.cuda.max_memory_allocated(device)),
        reserved=float(torch.cuda.max_memory_reserved(device)),
        first_s=first_s,
    )


def measure_cpu(case: Case) -> Peak:
    """Ask the kernel how much more memory was resident than before."""
    # A small pair first: libraries that load late are part of the program, not of the work.
    if case.way != "training":
        replace(case, height=LOADED_SIZE, width=LOADED_SIZE, iters=1, max_memory="").prepare()()
    started = time.perf_counter()
    work = case.prepare()
    give_back_freed()
    before = status("VmRSS")
    RESET.write_text(RESET_PEAK)
    work()
    first_s = time.perf_counter() - started
    return Peak(taken=status("VmHWM") - before, reserved=None, first_s=first_s)


def status(name: str) -> float:
    """Return a figure of this process in bytes, as Linux tells it."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024.0 * int(line.split()[1])
    raise FlowError(f"this system does not tell {name} of a process")


def main() -> None:
    """Be the fresh process: measure the case that the command line describes, print it as JSON."""
    try:
        found = measure(Case(**json.loads(sys.argv[1])))
    except FlowError as err:
        say(str(err))
        sys.exit(BAD_INPUT)
    print(json.dumps(None if found is None else asdict(found)))  # noqa: T201
