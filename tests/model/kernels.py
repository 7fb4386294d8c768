"""Kernels for tests: on a GPU if there is one, else in Triton's interpreter."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import gmaflow.model

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_kernels(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load kernels past the tests' type checker, whose wrappers Triton cannot see through."""
    name = f"gmaflow.model.{module}"
    file = Path(str(gmaflow.model.__file__)).with_name(f"{module}.py")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, loaded)
    spec.loader.exec_module(loaded)
