"""Kernels for tests: on a GPU if there is one, else in Triton's interpreter."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_kernels(
    module: str, monkeypatch: pytest.MonkeyPatch, *, package: str = "gmaflow.model"
) -> ModuleType:
    """Load kernels past the tests' type checker, whose wrappers Triton cannot see through."""
    name = f"{package}.{module}"
    parent = importlib.import_module(package)
    file = Path(str(parent.__file__)).with_name(f"{module}.py")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, loaded)
    monkeypatch.setattr(parent, module, loaded, raising=False)
    spec.loader.exec_module(loaded)
    return loaded
