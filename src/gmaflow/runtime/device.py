"""Where to compute, in which precision, and with which kernels."""

import importlib.util
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Literal, cast, get_args

import torch

from gmaflow.errors import FlowError, check_known
from gmaflow.runtime.memory import explaining_out_of_memory

Precision = Literal["auto", "fp32", "fp16", "bf16"]

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

_flags = threading.Lock()
_users: Counter[str] = Counter()
"""How many callers are within `cudnn_flag`, by flag."""
_before: dict[str, bool] = {}


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
    except RuntimeError:
        raise FlowError(f"unknown device {device!r}; use auto, cpu, cuda or mps") from None
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (picked.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if picked.type not in there:
        raise FlowError(f"unsupported device {str(device)!r}; use auto, cpu, cuda or mps")
    if not there[picked.type]:
        raise FlowError(f"this machine has no device {str(device)!r}; use cpu or auto")
    return picked


def as_precision(text: str) -> Precision:
    """Return a text as a precision, or raise a `FlowError`."""
    check_known("precision", text, get_args(Precision))
    return cast("Precision", text)


def pick_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the type to compute in; `auto` is half precision on CUDA and float32 elsewhere."""
    if as_precision(precision) == "auto":
        return torch.float16 if device.type == "cuda" else torch.float32
    return DTYPES[precision]


@contextmanager
def computing(
    device: torch.device, shape: tuple[int, ...], *, autocast: torch.dtype = torch.float32
) -> Iterator[None]:
    """Compute on a batch of images; running out of memory becomes a `FlowError`.

    The caller's own autocast has no effect inside, and the device is CUDA's current one, where
    Triton launches its kernels.

    Args:
        device: Where to compute.
        shape: Of the batch, for the message.
        autocast: A half precision to let torch choose where it is safe; float32 for none.
    """
    half = autocast != torch.float32
    current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    types = torch.autocast(device.type, autocast if half else None, enabled=half)
    with current, types, explaining_out_of_memory(device, shape):
        yield


@contextmanager
def cudnn_flag(name: Literal["benchmark", "deterministic"]) -> Iterator[None]:
    """Set a flag of cuDNN: try all algorithms for a new size, or use deterministic ones only.

    All threads share the flag. The last one to leave restores it.
    """
    with _flags:
        if _users[name] == 0:
            _before[name] = getattr(torch.backends.cudnn, name)
            setattr(torch.backends.cudnn, name, True)
        _users[name] += 1
    try:
        yield
    finally:
        with _flags:
            _users[name] -= 1
            if _users[name] == 0:
                setattr(torch.backends.cudnn, name, _before[name])


def has_kernels(device: torch.device) -> bool:
    """Tell whether the Triton kernels can run: on CUDA, with Triton installed."""
    return device.type == "cuda" and has_triton()


@cache
def has_triton() -> bool:
    """Tell whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None
