"""The models a server offers."""

import pytest

from gmaflow.errors import FlowError
from gmaflow.inference.engine import as_backend
from gmaflow.model import FlowNetwork
from gmaflow.serving.shelf import ModelShelf


def test_a_model_runs_where_and_how_it_was_asked_for(weight_files: tuple[str, str]) -> None:
    for backend, is_reference in (("reference", True), ("fast", False)):
        how = as_backend(backend)
        shelf = ModelShelf(weight_files, device="cpu", backend=how, max_memory="2GB")
        estimator = shelf.estimator(shelf.default)
        assert isinstance(estimator._engine.runner, FlowNetwork) == is_reference
        assert (estimator.device.type, estimator.max_memory) == ("cpu", 2e9)


def test_shipped_weights_stand_beside_those_given(weight_files: tuple[str, str]) -> None:
    shelf = ModelShelf(weight_files, device="cpu")
    names = [model.name for model in shelf.models()]
    assert names[:2] == ["small", "attentive"]
    assert {"gma", "raft"} <= set(names)
    assert [model.default for model in shelf.models()] == [True, *[False] * (len(names) - 1)]


def test_a_name_that_is_not_there_is_refused(weight_files: tuple[str, str]) -> None:
    with pytest.raises(FlowError, match="no model is called 'smal'"):
        ModelShelf(weight_files, device="cpu").estimator("smal")
