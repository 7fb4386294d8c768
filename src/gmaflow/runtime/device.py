"""Where to compute, in which precision, and with how much memory."""

import ctypes
import importlib.util
import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from numbers import Real
from pathlib import Path, PurePosixPath
from typing import Literal, cast, get_args

import torch

from gmaflow.errors import FlowError, check_known, counted

log = logging.getLogger(__name__)

Precision = Literal["auto", "fp32", "fp16", "bf16"]

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

MEMORY_SHARE = 0.8
"""The share of the free memory to plan with. The rest is for other programs and for what plans do
not account for."""

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BINARY = {"k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}

_OUT_OF_MEMORY = re.compile("allocate memory|out of memory|ALLOC(ATION)?_FAILED")
"""Out-of-memory messages of torch on a CPU, the CUDA driver, Triton, cuBLAS and cuDNN."""

_cudnn_lock = threading.Lock()
_cudnn_users = {"benchmark": 0, "guess": 0}
"""How many callers are in `cudnn_benchmark` and in `cudnn_guess`."""
_cudnn_before = (False, False)
"""cuDNN's settings before the first of them entered: benchmark and deterministic."""


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """Return a device by name; `auto` picks CUDA, then MPS, then the CPU.

    Raises:
        FlowError: The device is unknown, or this machine does not have it.
    """
    if str(device) == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        picked = torch.device(device)
    except (RuntimeError, TypeError):
        raise FlowError(f"unknown device {device!r}; use auto, cpu, cuda or mps") from None
    available = {
        "cpu": True,
        # Counting GPUs loads another library, which delays the first flow.
        "cuda": torch.cuda.is_available()
        and (not picked.index or picked.index < torch.cuda.device_count()),
        "mps": torch.backends.mps.is_available(),
    }
    if picked.type not in available:
        raise FlowError(f"unsupported device {str(device)!r}; use auto, cpu, cuda or mps")
    if not available[picked.type]:
        raise FlowError(f"this machine has no device {str(device)!r}; use cpu or auto")
    return picked


def as_precision(text: str) -> Precision:
    """Return `text` as a precision, or raise a `FlowError`."""
    check_known("precision", text, get_args(Precision))
    return cast("Precision", text)


def pick_precision(precision: str, device_type: str) -> str:
    """Return the precision to compute in; `auto` is half precision on CUDA, elsewhere float32."""
    if as_precision(precision) == "auto":
        return "fp16" if device_type == "cuda" else "fp32"
    return precision


def pick_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the dtype to compute in; see `pick_precision`."""
    return DTYPES[pick_precision(precision, device.type)]


def pick_fast_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the dtype for inference: that of `pick_dtype`, unless float32 would be faster.

    Logs a warning if it falls back to float32, or if float16 is slow on this CPU.
    """
    dtype = pick_dtype(precision, device)
    if dtype == torch.bfloat16 and device.type == "cpu" and not has_bfloat16():
        log.warning(
            "this CPU has no instructions for bf16 (AVX512-BF16 or AMX); computing in fp32, which "
            "is faster here"
        )
        return torch.float32
    if dtype == torch.float16 and device.type == "cpu":
        log.warning("the fast back end has no fp16 on a CPU; fp32 can be a hundred times faster")
    return dtype


@cache
def has_bfloat16() -> bool:
    """Return whether the CPU multiplies in bfloat16: AVX512-BF16 or AMX, and oneDNN."""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    checks = (getattr(torch.cpu, name, None) for name in names)
    return torch.backends.mkldnn.is_available() and any(
        check() for check in checks if check is not None
    )


@contextmanager
def computing(
    device: torch.device, shape: tuple[int, ...], *, autocast: torch.dtype = torch.float32
) -> Iterator[None]:
    """Compute on a batch of images; running out of memory becomes a `FlowError`.

    The caller's own autocast has no effect inside, and the device is CUDA's current one, where
    Triton launches its kernels.

    `shape` is that of the batch, for the message. `autocast` is a half precision that torch may use
    where it is safe; float32 for none.
    """
    half = autocast != torch.float32
    current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    types = torch.autocast(device.type, autocast if half else None, enabled=half)
    with current, types, explaining_out_of_memory(device, shape):
        yield


@contextmanager
def cudnn_benchmark() -> Iterator[None]:
    """Let cuDNN try all algorithms for each new size, and keep the fastest.

    All threads share this setting. The last one to leave restores it.
    """
    with _using_cudnn("benchmark"):
        yield


@contextmanager
def cudnn_guess() -> Iterator[None]:
    """Let cuDNN guess the algorithms instead, for a call that may be the only one of its size.

    torch keeps a guess for all later calls with the same settings. So this allows deterministic
    algorithms only, which other calls do not ask for: they still try all algorithms. Where the
    caller asks for them, it does nothing.
    """
    with _using_cudnn("guess"):
        yield


@contextmanager
def _using_cudnn(how: str) -> Iterator[None]:
    """Set cuDNN up for a caller and others in other threads; a guess comes first."""
    global _cudnn_before  # noqa: PLW0603  (the settings are the process's)
    cudnn = torch.backends.cudnn
    with _cudnn_lock:
        if not any(_cudnn_users.values()):
            _cudnn_before = cudnn.benchmark, cudnn.deterministic
        _cudnn_users[how] += 1
        _set_up_cudnn()
    try:
        yield
    finally:
        with _cudnn_lock:
            _cudnn_users[how] -= 1
            _set_up_cudnn()


def _set_up_cudnn() -> None:
    cudnn = torch.backends.cudnn
    benchmark, deterministic = _cudnn_before
    if _cudnn_users["guess"] and not deterministic:
        cudnn.benchmark, cudnn.deterministic = False, True
    else:
        cudnn.benchmark = benchmark or _cudnn_users["benchmark"] > 0
        cudnn.deterministic = deterministic


@cache
def capability(device: torch.device) -> tuple[int, int]:
    """Return the compute capability of a GPU: (7, 5) for Turing, (9, 0) for Hopper."""
    return torch.cuda.get_device_capability(device)


def has_kernels(device: torch.device) -> bool:
    """Return whether the Triton kernels can run: Triton is installed, and knows this GPU."""
    return device.type == "cuda" and has_triton() and capability(device) >= (7, 0)


def has_little_shared_memory(device: torch.device) -> bool:
    """Return whether a block of threads has less than 96 KiB of memory: on GPUs before Ampere."""
    return device.type == "cuda" and capability(device) < (8, 0)


@cache
def has_float8(device: torch.device) -> bool:
    """Return whether kernels can use float8: on NVIDIA GPUs from Ada and Hopper on."""
    if not has_kernels(device) or torch.version.hip is not None:
        return False
    if not hasattr(torch, "_scaled_mm"):  # not public: it may go away
        return False
    return capability(device) >= (8, 9)


@cache
def has_triton() -> bool:
    """Return whether Triton is installed, and on Linux a C compiler, without which it fails.

    Logs a warning if only the compiler is missing.
    """
    if importlib.util.find_spec("triton") is None:
        return False
    if sys.platform != "linux" or os.environ.get("CC"):
        return True
    if shutil.which("gcc") or shutil.which("clang"):
        return True
    log.warning("Triton needs a C compiler; install gcc, since without its kernels a GPU is slower")
    return False


# --- Memory --------------------------------------------------------------------------------------


def as_bytes(amount: str | int | float) -> float:
    """Return an amount of memory in bytes, from a number or a text such as 1.5GB, 800MB, 2GiB."""
    text = f"{amount:f}" if isinstance(amount, Real) else str(amount)  # 1e16 as digits
    match = re.fullmatch(r"([0-9.]+) *([kmgt]?)(i?)b?", text.strip().lower())
    try:
        number = float(match[1]) if match else 0.0
    except ValueError:
        number = 0.0
    if match is None or number <= 0 or (match[3] and not match[2]):
        raise FlowError(
            f"{str(amount)!r} is not an amount of memory; use one such as 1.5GB or 800MB"
        )
    # A bare small number probably lacks its unit; in a text, any number up to a million.
    if not match[2] and number < (1e6 if isinstance(amount, str) else 1e3):
        bare = str(amount).strip()
        raise FlowError(f"{bare} means bytes; give a unit, such as {bare}GB")
    return number * (_BINARY if match[3] else _UNITS)[match[2]]


def memory_text(amount: float) -> str:
    """Format an amount of memory."""
    return f"{amount / 1e9:.3g} GB" if amount >= 1e8 else f"{amount / 1e6:.3g} MB"


def memory_budget(device: torch.device, limit: float | None = None) -> float:
    """Return how many bytes to plan with on a device: the limit, or a share of what is free."""
    return MEMORY_SHARE * free_memory(device) if limit is None else limit


def free_memory(device: torch.device) -> float:
    """Return how many bytes are free on a device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        stats = torch.cuda.memory_stats(device)
        reserved, allocated = (
            stats.get(f"{kind}_bytes.all.current", 0) for kind in ("reserved", "allocated")
        )
        return free + reserved - allocated
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return min(free_host_memory(), free_container_memory())


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def survive_forks() -> None:
    """Let processes that are forked from now on compute with one thread, as data loaders do.

    GNU's OpenMP does not start its threads again after a fork: torch would wait for them forever.
    """
    loaded = Path("/proc/self/maps")  # only on Linux
    if loaded.exists() and "libgomp" in loaded.read_text(errors="replace"):
        os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def free_host_memory() -> float:
    """Return how many bytes the machine has free, or half of its memory if that is unknown."""
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


def free_container_memory(
    groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> float:
    """Return how many bytes the limit of a container, job or service leaves; infinity without one.

    `groups` is where Linux lists control groups, of version 2 or 1; `own` those of this process.
    """
    free = [float("inf")]
    for line in own.read_text().splitlines() if own.exists() else ():
        number, controllers, path = line.split(":", 2)
        # Limits of parent groups apply too. In a container they may be all that is visible.
        within = PurePosixPath(path.lstrip("/"))
        for group in (within, *within.parents):
            if number == "0":
                free.append(free_in_group(groups / group, "memory.max", "memory.current"))
            elif "memory" in controllers.split(","):
                names = "memory.limit_in_bytes", "memory.usage_in_bytes"
                free.append(free_in_group(groups / "memory" / group, *names))
    return min(free)


def free_in_group(group: Path, limit_file: str, used_file: str) -> float:
    """Return how many bytes the limit of one control group leaves; infinity without one.

    Cached files count as used, but the kernel drops them when memory is needed. Without them, a
    process that has read a large data set would seem to have no memory left.
    """
    try:
        limit = (group / limit_file).read_text().strip()
        used = float((group / used_file).read_text())
        details = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return float("inf")
    amounts = {name: float(amount) for name, amount in map(str.split, details)}
    # In version 1 the limit and the use include child groups, and so does the total.
    files = sum(
        amounts.get(f"total_{name}", amounts.get(name, 0.0))
        for name in ("active_file", "inactive_file")
    )
    return float("inf") if limit == "max" else max(0.0, float(limit) - used + files)


def release_freed_memory() -> None:
    """Return freed memory that is still resident to the system; only with glibc."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


@contextmanager
def explaining_out_of_memory(device: torch.device, shape: tuple[int, ...] = ()) -> Iterator[None]:
    """Turn running out of memory into an error that says what to do.

    `shape` is that of the batch of images, or empty while the network is loaded.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as err:
        if not is_out_of_memory(err):
            raise
        if not shape:
            raise FlowError(f"{device} has no memory left for the network; free some") from err
        batch, _, height, width = shape
        other = "free some memory" if device.type == "cpu" else "use the device cpu"
        raise FlowError(
            f"not enough memory on {device} for {counted(batch, 'pair')} of {height}x{width}; "
            f"use smaller images, set a limit (--max-memory, max_memory=), or {other}"
        ) from err


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means out of memory; torch's own class covers only its GPU memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None
