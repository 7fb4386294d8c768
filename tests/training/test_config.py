from typing import Any

import pytest

from gmaflow.errors import TrainingError
from gmaflow.training import TrainConfig
from gmaflow.training.config import CHANGEABLE

BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": "raft-smal"}, "did you mean raft-small"),
    ({"model": "raft", "num_heads": 2}, "no heads"),
    ({"model": "gma", "combination": "sum"}, "combination='sum'"),
    ({"data": "scenes"}, "says not where"),
    ({"data": "scenes:mixx"}, "did you mean mix"),
    ({"data": "stage:chair"}, "did you mean chairs"),
    ({"validate_on": ("stage:chairs",)}, "for training"),
    ({"crop": (100, 96)}, "multiples of 8"),
    ({"crop": (8, 96)}, "from 16 on"),
    ({"batch": 0}, "batch=0 must be at least 1"),
    ({"steps": 0}, "steps=0"),
    ({"batch": 6, "accumulate": 4}, "cannot be learned in 4 equal parts; choose a multiple of 4"),
    ({"lr": 0.0}, "lr=0.0 is out of range"),
    ({"lr": float("nan")}, "lr=nan"),
    ({"gamma": 1.5}, "gamma=1.5"),
    ({"ema": 1.0}, "ema=1.0"),
    ({"occluded_from": 1.0}, "occluded_from"),
    ({"precision": "fp8"}, "fp8"),
    ({"start_step": 5}, "name them with init"),
    ({"start_step": 5, "steps": 5, "init": "x"}, "leaves nothing"),
    ({"validate_every": 5, "validate_on": ()}, "nothing to validate on"),
    ({"iters_growth": "4 8"}, "is no schedule"),
    ({"iters_growth": "0.1:4"}, "is no schedule"),
    ({"iters_growth": "0:4 0.5:0"}, "is no schedule"),
    ({"iters_growth": "0:4 0.5:6 0.4:8"}, "is no schedule"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD)
def test_nonsense_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        TrainConfig(**changes)


def test_ablations_are_networks() -> None:
    config = TrainConfig(model="gma", num_heads=2, learned_alpha=False, combination="replace")
    assert config.network.num_heads == 2
    assert config.network.combination == "replace"
    assert not config.network.learned_alpha


def test_what_may_change_is_a_field() -> None:
    assert set(TrainConfig.__annotations__) >= CHANGEABLE


def test_errors_are_the_callers() -> None:
    with pytest.raises(TrainingError):
        TrainConfig(batch=-1)
