from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from gmaflow.bench import BenchConfig
from gmaflow.bench.cases import Case, Way, distance_from_float32, moving_images
from gmaflow.errors import FlowError
from gmaflow.inference import BatchEstimate
from gmaflow.inference.planning import Computation, bytes_needed
from gmaflow.model import MODELS, MemoryPlan
from gmaflow.training import StepResult


def case(way: Way, **settings: object) -> Case:
    small: dict[str, object] = {"height": 132, "width": 140, "iters": 2, "device": "cpu"}
    return Case(way=way, model="raft-small", **(small | settings))  # type: ignore[arg-type]


def test_both_algorithms_compute_the_same_flow() -> None:
    ours = case("gmaflow", batch=2).prepare()()
    plain = case("published", batch=2).prepare()()
    assert isinstance(ours, BatchEstimate)
    assert isinstance(plain, torch.Tensor)
    torch.testing.assert_close(plain, ours.flow, atol=1e-3, rtol=0)


def test_a_training_step_is_one() -> None:
    work = case("training", height=64, width=64, batch=2).prepare()
    results = [work(), work()]
    assert all(isinstance(result, StepResult) for result in results)
    assert not any(result.skipped for result in results if isinstance(result, StepResult))


def test_named_weights_are_used() -> None:
    drawn, shipped = Case(model="gma").checkpoint(), Case(model="gma", weights="gma").checkpoint()
    assert drawn.config == shipped.config
    assert drawn.num_parameters == shipped.num_parameters == 5_879_873
    name = "features.conv_in.weight"
    assert not torch.equal(drawn.tensors[name], shipped.tensors[name])


def test_sizes_too_small_for_the_published_algorithm_are_refused() -> None:
    with pytest.raises(FlowError, match="120x200 is too small for the published algorithm"):
        case("published", height=120, width=200).prepare()
    with pytest.raises(FlowError, match="120x200 is too small"):  # before anything is measured
        BenchConfig(sizes=("440x1024", "120x200"), against="published")


def test_the_pictures_move() -> None:
    first, second = moving_images(2, 40, 48, torch.device("cpu"))
    assert first.shape == second.shape == (2, 3, 40, 48)
    assert torch.equal(first[..., 2:, 5:], second[..., :-2, :-5])


def test_sizes_and_models_come_with_commas_or_one_by_one() -> None:
    config = BenchConfig(sizes=("440x1024,64x80", "100x200"), models=("raft", "gma,gma-p"))
    assert config.measured_sizes == [(440, 1024), (64, 80), (100, 200)]
    assert config.model_names == ["raft", "gma", "gma-p"]


@pytest.mark.parametrize("name", ["published", "reference"])
def test_a_comparison_measures_both_algorithms_for_every_model(name: str) -> None:
    config = BenchConfig(models=("raft", "gma"), against=name, batch=2)
    cases = list(config.cases((440, 1024)))
    assert [(case.model, case.way) for case in cases] == [
        ("raft", "gmaflow"),
        ("raft", "published"),
        ("gma", "gmaflow"),
        ("gma", "published"),
    ]
    assert {(case.height, case.width, case.batch) for case in cases} == {(440, 1024, 2)}


def test_a_sweep_doubles_the_pixels() -> None:
    sizes = BenchConfig(sizes=("1088x1920",), sweep=True).measured_sizes
    areas = [height * width for height, width in sizes]
    assert sizes[-1] == (1088, 1920)
    for before, after in pairwise(areas):
        assert after / before == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sizes": ("440",)}, "'440' is not a size; give height x width such as 440x1024"),
        ({"sizes": ("8x8",)}, "8x8 is too small; give at least 16x16"),
        ({"sizes": ("99999x440",)}, "99999x440 is too large; give at most 16384x16384"),
        ({"sizes": ()}, "nothing to measure"),
        ({"models": ("gam",)}, "unknown model 'gam'"),
        ({"against": "torchvision"}, "unknown value 'torchvision' for against; give published"),
        ({"precision": "int8"}, "unknown precision 'int8'"),
        ({"backend": "quick"}, "unknown back end 'quick'"),
        ({"max_memory": "lots"}, "'lots' is not an amount of memory"),
        ({"batch": 0}, "batch is 0; give at least 1"),
        ({"rounds": -1}, "rounds must be 0 or more"),
        ({"sizes": ("128x128",), "sweep": True}, "too small for a sweep; give at least 256x256"),
    ],
)
def test_invalid_options_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(FlowError, match=message):
        BenchConfig(**settings)  # type: ignore[arg-type]


def test_half_precision_is_further_away_than_the_fast_back_end() -> None:
    case = Case(model="raft-small", height=64, width=72, iters=2, device="cpu")
    half = Case(**{**vars(case), "precision": "bf16"})
    near, far = distance_from_float32(case), distance_from_float32(half)
    assert 0 < near.mean <= near.largest < 1e-3
    assert far.mean > 10 * near.mean


def test_a_memory_limit_does_not_apply_to_the_reference() -> None:
    case = Case(model="raft-small", height=384, width=520, iters=1, device="cpu")
    streamed = MemoryPlan(store_correlation=False, store_attention=False)
    computation = Computation(MODELS[case.model], fast=True)
    enough = bytes_needed(computation, streamed, batch=1, height=case.height, width=case.width)
    within = distance_from_float32(replace(case, max_memory=str(enough)))
    assert within.largest < 1e-3
