"""The models a server offers."""

from pathlib import Path

import pytest

from gmaflow.errors import FlowError
from gmaflow.model import FlowNetwork
from gmaflow.runtime.device_options import DeviceOptions
from gmaflow.serving.models import ModelRegistry
from gmaflow.weights import DEFAULT_MODEL

CPU = DeviceOptions(device="cpu")


def test_a_model_runs_where_and_how_it_was_asked_for(weight_files: tuple[str, str]) -> None:
    for backend, is_reference in (("reference", True), ("fast", False)):
        models = ModelRegistry(
            weight_files, options=DeviceOptions(device="cpu", backend=backend, max_memory="2GB")
        )
        estimator = models.estimator(models.default)
        assert isinstance(estimator._engine.runner, FlowNetwork) == is_reference
        assert (estimator.device.type, estimator.max_memory) == ("cpu", 2e9)


def test_shipped_weights_come_after_given_ones(weight_files: tuple[str, str]) -> None:
    models = ModelRegistry(weight_files, options=CPU)
    names = [model.name for model in models.models()]
    assert names[:2] == ["small", "attentive"]
    assert {"gma", "raft"} <= set(names)
    assert [model.default for model in models.models()] == [True, *[False] * (len(names) - 1)]


def test_the_default_is_that_of_the_command_line() -> None:
    assert ModelRegistry(options=CPU).default == DEFAULT_MODEL


def test_two_files_of_one_name_are_refused(weight_files: tuple[str, str], tmp_path: Path) -> None:
    twin = tmp_path / "small.pth"
    twin.write_bytes(b"not read")
    with pytest.raises(FlowError, match="two files of weights are named small; rename"):
        ModelRegistry((weight_files[0], str(twin)), options=CPU)


def test_an_unknown_name_is_refused(weight_files: tuple[str, str]) -> None:
    with pytest.raises(FlowError, match="unknown model 'smal'"):
        ModelRegistry(weight_files, options=CPU).estimator("smal")
