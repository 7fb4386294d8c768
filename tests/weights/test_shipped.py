from pathlib import Path

import pytest
import torch

from gmaflow.errors import WeightsError
from gmaflow.model import MODELS, FlowNetwork
from gmaflow.weights import (
    Checkpoint,
    checkpoint,
    find_checkpoint,
    save_checkpoint,
    shipped_weights,
)
from tests.conftest import random_images


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands in for the package's own."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setattr(checkpoint, "SHIPPED_FOLDER", folder)
    return folder


def put(path: Path, model: str) -> None:
    torch.manual_seed(0)
    tensors = FlowNetwork(MODELS[model]).state_dict()
    save_checkpoint(path, Checkpoint(config=MODELS[model], tensors=tensors))


def test_with_nothing_shipped_it_says_what_to_do(shelf: Path) -> None:
    assert shipped_weights() == {}
    with pytest.raises(WeightsError, match="no trained weights for gma: none ship"):
        find_checkpoint()
    with pytest.raises(WeightsError, match="no trained weights for raft"):
        find_checkpoint(model="raft")


def test_shipped_weights_are_found_by_name(shelf: Path) -> None:
    put(shelf / "gma.safetensors", "gma")
    put(shelf / "raft.safetensors", "raft")
    assert list(shipped_weights()) == ["gma", "raft"]
    assert find_checkpoint().config == MODELS["gma"]
    assert find_checkpoint("raft").config == MODELS["raft"]
    assert find_checkpoint("raft").card.warm_start is False  # it makes them worse
    assert find_checkpoint(model="raft").config == MODELS["raft"]
    with pytest.raises(WeightsError, match="for raft-small: there are gma, raft"):
        find_checkpoint(model="raft-small")


def test_weights_of_gma_serve_as_a_start_for_gma_affine(shelf: Path) -> None:
    put(shelf / "gma.safetensors", "gma")
    images = random_images(1, 40, 48)
    start, again = (find_checkpoint("gma", model="gma-affine") for _ in range(2))
    assert start.config == MODELS["gma-affine"]
    assert all(torch.equal(start.tensors[name], again.tensors[name]) for name in start.tensors)
    expected = find_checkpoint("gma").build()(*images, iters=4).flow
    assert torch.equal(start.build()(*images, iters=4).flow, expected)
    with pytest.raises(WeightsError, match="holds gma, but raft was requested"):
        find_checkpoint("gma", model="raft")


def test_weights_of_gma_affine_serve_as_gma_without_the_continuation(shelf: Path) -> None:
    put(shelf / "gma-affine.safetensors", "gma-affine")
    whole, trunk = find_checkpoint("gma-affine"), find_checkpoint("gma-affine", model="gma")
    assert trunk.config == MODELS["gma"]
    assert trunk.tensors.keys() < whole.tensors.keys()
    assert all(torch.equal(trunk.tensors[name], whole.tensors[name]) for name in trunk.tensors)
    images = random_images(1, 40, 48)
    # The continuation begins with the third iteration.
    flows = [one.build()(*images, iters=2).flow for one in (whole, trunk)]
    assert torch.equal(*flows)


def test_gma_may_ship_as_a_part_of_gma_affine(shelf: Path) -> None:
    put(shelf / "gma-affine.safetensors", "gma-affine")
    put(shelf / "raft.safetensors", "raft")
    assert list(shipped_weights()) == ["gma", "gma-affine", "raft"]
    whole, trunk = find_checkpoint("gma-affine"), find_checkpoint()
    assert trunk.config == find_checkpoint(model="gma").config == MODELS["gma"]
    assert all(torch.equal(trunk.tensors[name], whole.tensors[name]) for name in trunk.tensors)
    # As a start for gma-affine it is gma: without what was learned about continuing.
    start = find_checkpoint("gma", model="gma-affine")
    assert start.config == MODELS["gma-affine"]
    assert start.tensors["continuation.alpha"] == 0
    with pytest.raises(WeightsError, match="holds gma, but gma-p was requested"):
        find_checkpoint("gma", model="gma-p")


def test_gma_affine_has_no_published_format(tmp_path: Path) -> None:
    tensors = FlowNetwork(MODELS["gma-affine"]).state_dict()
    made = Checkpoint(config=MODELS["gma-affine"], tensors=tensors)
    with pytest.raises(WeightsError, match=r"no \.pth format; write a \.safetensors file"):
        save_checkpoint(tmp_path / "mine.pth", made)


def test_a_path_is_loaded_as_a_file(shelf: Path, tmp_path: Path) -> None:
    put(tmp_path / "mine.safetensors", "raft-small")
    assert find_checkpoint(tmp_path / "mine.safetensors").config == MODELS["raft-small"]
    with pytest.raises(WeightsError, match=r"nowhere\.pth does not exist"):
        find_checkpoint(tmp_path / "nowhere.pth")
    with pytest.raises(WeightsError, match="nowhere does not exist"):
        find_checkpoint(tmp_path / "nowhere")
    put(shelf / "gma.safetensors", "gma")
    with pytest.raises(WeightsError, match=r"no file called 'gmma'.* did you mean gma"):
        find_checkpoint("gmma")


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(WeightsError, match="unknown model 'pwc'; there are gma"):
        find_checkpoint(model="pwc")


def test_an_empty_name_is_not_the_default() -> None:
    with pytest.raises(WeightsError, match=r"give a .safetensors or .pth file"):
        find_checkpoint("")
