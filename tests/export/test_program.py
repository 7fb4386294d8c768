import numpy as np
import pytest
import torch

from gmaflow.export.exporting import example_previous
from gmaflow.export.program import FlowProgram, positions_in_padded, traceable_warm_start
from gmaflow.inference import Flow, FlowEstimator
from gmaflow.inference.warm_start import forward_project
from tests.export.conftest import MakeCheckpoint, byte_images, estimated


@pytest.mark.parametrize("size", [(40, 56), (33, 50), (16, 17)])
def test_the_program_agrees_with_the_estimator(
    size: tuple[int, int], make_checkpoint: MakeCheckpoint
) -> None:
    checkpoint = make_checkpoint("gma")
    images = byte_images(2, *size)
    program = FlowProgram(checkpoint.build(), iters=2)
    flow = program(*map(torch.from_numpy, images)).numpy()
    assert flow.shape == (2, 2, *size)
    np.testing.assert_allclose(flow, estimated(checkpoint, images, 2), atol=1e-3)


def test_the_program_starts_from_the_previous_flow(make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint("gma")
    images = byte_images(2, 33, 50)
    program = FlowProgram(checkpoint.build(), iters=1)
    previous = example_previous(2, (33, 50))
    found = program(*map(torch.from_numpy, (*images, previous))).numpy()
    estimator = FlowEstimator(checkpoint, iters=1, device="cpu")
    frames = [image[0].transpose(1, 2, 0) for image in images]
    wanted = estimator(*frames, previous=Flow(previous[0].transpose(1, 2, 0)))
    np.testing.assert_allclose(found[0].transpose(1, 2, 0), wanted.array, atol=1e-3)
    cold = estimated(checkpoint, images, 1)
    np.testing.assert_allclose(found[1], cold[1], atol=1e-3)  # zeros are no start
    assert np.abs(found[0] - cold[0]).max() > 0.1


def test_padding_repeats_the_border_on_both_sides() -> None:
    assert positions_in_padded(5, 1).tolist() == [0, 0, 1, 2, 3, 4, 4, 4]
    assert positions_in_padded(8, 0).tolist() == list(range(8))


@pytest.mark.parametrize("reach", [0.5, 4.0, 40.0])
def test_the_traceable_warm_start_agrees_with_the_estimators(reach: float) -> None:
    flow = reach * torch.randn(3, 2, 13, 17, generator=torch.Generator().manual_seed(0))
    assert torch.equal(traceable_warm_start(flow), forward_project(flow))


def test_the_warm_start_is_zero_if_all_vectors_leave() -> None:
    assert not traceable_warm_start(torch.full((1, 2, 4, 5), 99.0)).any()


def test_zero_motion_stays_zero() -> None:
    assert not traceable_warm_start(torch.zeros(1, 2, 4, 5)).any()
