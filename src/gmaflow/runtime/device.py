"""Where to compute, and in which precision."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal, cast, get_args

import torch

from gmaflow.errors import FlowError, check_known
from gmaflow.runtime.memory import out_of_memory_as_sentence

Precision = Literal["auto", "fp32", "fp16", "bf16"]

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

_flags = threading.Lock()
_users: Counter[str] = Counter()
"""How many are within `cudnn_flag`, by the flag."""
_before: dict[str, bool] = {}


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """Return the device asked for, or the best there is.

    Raises:
        FlowError: It is not known, or not there.
    """
    if str(device) == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        picked = torch.device(device)
    except RuntimeError:
        raise FlowError(f"device {device!r} is not known; give auto, cpu, cuda or mps") from None
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (picked.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if picked.type not in there:
        raise FlowError(f"device {str(device)!r} is not supported; give auto, cpu, cuda or mps")
    if not there[picked.type]:
        raise FlowError(f"device {str(device)!r} is not there; give cpu, or auto")
    return picked


def as_precision(text: str) -> Precision:
    """Return a text as a precision.

    Raises:
        FlowError: It is none.
    """
    check_known("precision", text, get_args(Precision))
    return cast("Precision", text)


def pick_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the type to compute in: half precision by itself on CUDA only, float32 elsewhere."""
    if as_precision(precision) == "auto":
        return torch.float16 if device.type == "cuda" else torch.float32
    return DTYPES[precision]


@contextmanager
def computing(device: torch.device, shape: tuple[int, ...]) -> Iterator[None]:
    """Compute on images of that shape; running out of memory is a sentence.

    An autocast that the caller is in does not count: back ends say themselves what has which type.
    Nor does the current GPU, where Triton would launch its kernels.
    """
    there = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with there, torch.autocast(device.type, enabled=False), out_of_memory_as_sentence(shape):
        yield


@contextmanager
def cudnn_flag(name: Literal["benchmark", "deterministic"]) -> Iterator[None]:
    """Let cuDNN try its ways to convolve and keep the fastest, or take safe ones, for a while.

    All threads share the flag: the last of them to leave puts it back.
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
