"""Where hand-written kernels can run."""

import importlib.util
from functools import cache

import torch


def has_kernels(device: torch.device) -> bool:
    """Tell whether the Triton kernels can run: on CUDA, with Triton installed."""
    return device.type == "cuda" and has_triton()


@cache
def has_triton() -> bool:
    """Tell whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None
