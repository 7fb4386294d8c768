import torch

from gmaflow.training.scaling import GROWTH_INTERVAL, LossScale

CPU = torch.device("cpu")


def test_it_goes_the_way_of_torchs() -> None:
    ours = LossScale(CPU, enabled=True)
    theirs = torch.amp.GradScaler("cpu")
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for step in range(3):
        bad = step == 1
        weight.grad = torch.full((1,), float("inf") if bad else 1.0)
        theirs.scale(torch.ones(1))
        theirs.step(optimizer)
        theirs.update()
        ours.update(torch.tensor(bad))
        assert ours.scale.item() == theirs.get_scale()


def test_it_grows_after_many_good_steps() -> None:
    scale = LossScale(CPU, enabled=True)
    scale.good_steps.fill_(GROWTH_INTERVAL - 1)
    scale.update(torch.tensor(False))
    assert (scale.scale.item(), scale.good_steps.item()) == (2**17, 0)


def test_without_half_precision_it_is_one() -> None:
    scale = LossScale(CPU, enabled=False)
    scale.update(torch.tensor(True))
    assert scale.scale.item() == 1
