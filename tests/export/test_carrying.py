import pytest
import torch

from gmaflow.export.carrying import carry
from gmaflow.inference.warm_start import forward_project


@pytest.mark.parametrize("reach", [0.5, 4.0, 40.0])
def test_it_is_the_warm_start_of_the_estimator(reach: float) -> None:
    flow = reach * torch.randn(3, 2, 13, 17, generator=torch.Generator().manual_seed(0))
    assert torch.equal(carry(flow), forward_project(flow))


def test_where_all_vectors_leave_there_is_no_start() -> None:
    assert not carry(torch.full((1, 2, 4, 5), 99.0)).any()


def test_no_motion_stays_none() -> None:
    assert not carry(torch.zeros(1, 2, 4, 5)).any()
