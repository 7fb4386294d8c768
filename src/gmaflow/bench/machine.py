"""Where and with what something was measured."""

import importlib.util
import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

from gmaflow.version import __version__


def describe_machine(device: torch.device) -> dict[str, str | int]:
    """Return the device by name, and the versions of all that matters for speed."""
    found: dict[str, str | int] = {
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
        found["cuda"] = torch.version.cuda or torch.version.hip or ""
        found["cudnn"] = torch.backends.cudnn.version() or 0
        if importlib.util.find_spec("triton") is not None:
            found["triton"] = version("triton")
    return found


def device_name(device: torch.device) -> str:
    """Return what the device calls itself."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return "CPU" if device.type == "cpu" else device.type


def processor_name() -> str:
    """Return what the processor calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
