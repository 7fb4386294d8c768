"""Run Triton kernels in tests: on a GPU if there is one, else in Triton's interpreter."""

import importlib
import importlib.util
import sys
from types import ModuleType

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_kernels(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[ModuleType]:
    """Load modules of kernels past the tests' type checker, whose wrappers Triton cannot take."""
    modules = []
    for name in names:
        package_name, _, last = name.rpartition(".")
        package = importlib.import_module(package_name)
        folder = package.__path__[0]
        spec = importlib.util.spec_from_file_location(name, f"{folder}/{last}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(package, last, module, raising=False)
        spec.loader.exec_module(module)
        modules.append(module)
    return modules
