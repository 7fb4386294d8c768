from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gmaflow.errors import WeightsError
from gmaflow.model import MODELS, FlowNetwork, NetworkConfig
from gmaflow.weights.published import from_published, infer_config, to_published, unwrap

CONFIGS = {
    **{name: config for name, config in MODELS.items() if not config.continues},
    "2 heads": replace(MODELS["gma"], num_heads=2),
    "alpha 1": replace(MODELS["gma"], learned_alpha=False),
    "replace": replace(MODELS["gma"], combination="replace", num_heads=4),
    "no residual": replace(MODELS["gma"], residual=False),
}


def state(config: NetworkConfig) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return FlowNetwork(config).state_dict()


@pytest.mark.parametrize("name", CONFIGS)
def test_conversion_to_published_and_back(name: str) -> None:
    ours = state(CONFIGS[name])
    theirs = to_published(ours, CONFIGS[name])
    again = from_published(theirs, CONFIGS[name])
    assert ours.keys() == again.keys()
    assert all(torch.equal(ours[key], again[key]) for key in ours)


@pytest.mark.parametrize("variant", ["gma", "gma-2heads", "raft", "raft-small"])
def test_names_and_shapes_are_the_published_ones(variant: str, material: Path) -> None:
    import json

    listed = json.loads((material / "parity" / "state_dict_shapes.json").read_text())[variant]
    config = replace(
        MODELS[variant.removesuffix("-2heads")], num_heads=1 + variant.endswith("heads")
    )
    theirs = to_published(state(config), config)
    assert {name: list(value.shape) for name, value in theirs.items()} == listed


def test_the_index_table_reads_the_offset_from_query_to_key() -> None:
    theirs = to_published(state(MODELS["gma-p"]), MODELS["gma-p"])
    table = theirs["att.pos_emb.rel_ind"]
    assert (table.shape, table.dtype) == ((160, 160), torch.int64)
    assert table[5, 5] == 159
    assert table[5, 8] == 162  # the key is three cells further right, or down
    assert [int(table.min()), int(table.max())] == [0, 318]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_config_is_inferred_from_the_tensors(name: str) -> None:
    config = CONFIGS[name]
    theirs = to_published(state(config), config)
    looks_alone = config
    if config.aggregates:
        looks_alone = replace(config, attention="content", residual=True)
    assert infer_config(theirs) == looks_alone
    assert infer_config(theirs, config) == config


def test_the_requested_model_must_be_of_the_same_family() -> None:
    theirs = to_published(state(MODELS["raft-small"]), MODELS["raft-small"])
    with pytest.raises(WeightsError, match="checkpoint of raft-small, not of gma"):
        infer_config(theirs, MODELS["gma"])


def test_tensors_of_other_networks_are_refused() -> None:
    with pytest.raises(WeightsError, match=r"not the tensors of a RAFT or GMA.*layer4.weight"):
        infer_config({"layer4.weight": torch.zeros(1)})


def rename(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {("x." + name if name == "fnet.conv2.bias" else name): v for name, v in theirs.items()}


def reshape(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**theirs, "fnet.conv2.bias": torch.zeros(7)}


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (rename, r"missing fnet\.conv2\.bias; unexpected x\.fnet\.conv2\.bias"),
        (reshape, r"of another shape or type: fnet\.conv2\.bias is 7 instead of 256"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    spoil: Callable[[dict[str, Tensor]], dict[str, Tensor]], complaint: str
) -> None:
    theirs = to_published(state(MODELS["raft"]), MODELS["raft"])
    with pytest.raises(WeightsError, match=complaint):
        from_published(spoil(theirs), MODELS["raft"])


@pytest.mark.parametrize(
    "lost",
    ["att.to_qk.weight", "att.pos_emb.rel_height.weight", "update_block.aggregator.to_v.weight"],
)
def test_a_tensor_missing_from_a_gma_file_is_named(lost: str) -> None:
    theirs = to_published(state(MODELS["gma"]), MODELS["gma"])
    del theirs[lost]
    assert infer_config(theirs) == MODELS["gma"]
    with pytest.raises(WeightsError, match=f"missing {lost}$"):
        from_published(theirs, infer_config(theirs))


def test_all_kinds_of_wrappers_are_removed() -> None:
    tensors = {"a.weight": torch.ones(1)}
    wrapped = {"module.a.weight": torch.ones(1)}
    assert unwrap(tensors).keys() == unwrap(wrapped).keys() == tensors.keys()
    assert unwrap({"state_dict": wrapped}).keys() == tensors.keys()
    assert unwrap({"model": {"state_dict": wrapped}, "epoch": 3}).keys() == tensors.keys()


def test_a_file_that_contains_itself_is_refused() -> None:
    content: dict[str, object] = {}
    content["model"] = content
    with pytest.raises(WeightsError):
        unwrap(content)
    assert unwrap({"model": "raft", "net": {"a": torch.ones(1)}}).keys() == {"a"}


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64])
def test_tensors_of_other_types_are_refused(dtype: torch.dtype) -> None:
    theirs = to_published(state(MODELS["raft-small"]), MODELS["raft-small"])
    theirs["fnet.conv2.bias"] = theirs["fnet.conv2.bias"].to(dtype)
    with pytest.raises(WeightsError, match=r"fnet\.conv2\.bias"):
        from_published(theirs, MODELS["raft-small"])


@pytest.mark.parametrize("content", [[1, 2], {}, {"a": torch.ones(1), "b": "text"}, torch.ones(2)])
def test_files_without_named_tensors_are_refused(content: object) -> None:
    with pytest.raises(WeightsError):
        unwrap(content)


def test_a_checkpoint_of_a_run_leads_to_its_weights() -> None:
    with pytest.raises(WeightsError, match=r"weights\.safetensors in the folder of a run"):
        unwrap({"version": 1, "config": {}, "step": 5, "tensors": {"a": torch.ones(1)}})


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("att.to_qk.weight", ()),
        ("att.to_qk.weight", (65 * 256, 128, 1, 1)),
        ("update_block.gru.convz1.weight", (512,)),
    ],
)
def test_odd_shapes_are_named(name: str, shape: tuple[int, ...]) -> None:
    theirs = to_published(state(MODELS["gma"]), MODELS["gma"])
    theirs[name] = torch.zeros(shape)
    with pytest.raises(WeightsError, match="of another shape"):
        from_published(theirs, infer_config(theirs))
