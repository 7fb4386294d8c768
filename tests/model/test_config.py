from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from gmaflow.errors import FlowError
from gmaflow.model import MODELS, FlowNetwork, NetworkConfig, model_config


def count_parameters(config: NetworkConfig) -> int:
    return sum(parameter.numel() for parameter in FlowNetwork(config).parameters())


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("gma", 5_879_873),
        ("gma-affine", 5_879_873 + 139_528),
        ("gma-p", 5_879_873),
        ("gma-p-only", 5_879_873),
        ("raft", 5_257_536),
        ("raft-small", 990_162),
    ],
)
def test_models_have_as_many_parameters_as_published(model: str, published: int) -> None:
    assert count_parameters(model_config(model)) == published


@pytest.mark.parametrize(("heads", "published"), [(2, 5_961_793), (4, 6_092_865)])
def test_heads_add_as_many_parameters_as_published(heads: int, published: int) -> None:
    assert count_parameters(replace(MODELS["gma"], num_heads=heads)) == published


def test_ablations_change_what_the_paper_changes() -> None:
    whole = count_parameters(MODELS["gma"])
    assert count_parameters(replace(MODELS["gma"], learned_alpha=False)) == whole - 1
    assert count_parameters(replace(MODELS["gma"], residual=False)) == whole
    # Replacing leaves the recurrent unit as wide as RAFT's: 6 convolutions lose 128 inputs.
    replaced = count_parameters(replace(MODELS["gma"], combination="replace"))
    assert replaced == whole - 6 * 128 * 128 * 5


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"num_heads": 0}, "from 1 to 64"),
        ({"num_heads": 10**15}, "from 1 to 64"),
        ({"small": True}, "has no attention"),
        ({"attention": "none", "num_heads": 2}, "no heads"),
        ({"continuation": "affine", "num_heads": 2}, "needs attention with one head"),
        ({"continuation": "affine", "attention": "none"}, "needs attention with one head"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(FlowError, match=complaint):
        NetworkConfig(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{"attention": "looks"}, {"combination": "add"}, {"continuation": "cubic"}]
)
def test_unknown_choices_list_the_known_ones(options: dict[str, str]) -> None:
    # Behind the annotations, which the tests' type checker enforces and users' programs do not.
    config = object.__new__(NetworkConfig)
    vars(config).update({**asdict(MODELS["gma"]), **options})
    with pytest.raises(FlowError, match=r"unknown .*; (there are|did you mean)"):
        config.__post_init__()


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(FlowError, match="'pwc'; there are gma, gma-affine, gma-p, "):
        model_config("pwc")
    with pytest.raises(FlowError, match="'raft_small'; did you mean raft-small"):
        model_config("raft_small")


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        MODELS["gma"].num_heads = 2  # type: ignore[misc]
