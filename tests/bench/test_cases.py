import pytest
import torch

from gmaflow.bench.cases import Case, Way, moving_images
from gmaflow.errors import FlowError
from gmaflow.inference import BatchEstimate
from gmaflow.training import StepResult


def case(way: Way, **settings: object) -> Case:
    small: dict[str, object] = {"height": 132, "width": 140, "iters": 2, "device": "cpu"}
    return Case(way=way, model="raft-small", **(small | settings))  # type: ignore[arg-type]


def test_both_ways_compute_the_same_flow() -> None:
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


def test_what_is_too_small_for_the_peer_is_refused() -> None:
    with pytest.raises(FlowError, match="120x200 is too small for the published way"):
        case("published", height=120, width=200).prepare()


def test_the_pictures_move() -> None:
    first, second = moving_images(2, 40, 48, torch.device("cpu"))
    assert first.shape == second.shape == (2, 3, 40, 48)
    assert torch.equal(first[..., 2:, 5:], second[..., :-2, :-5])
