"""The camera's motion is found behind moving objects, and those are separated from it."""

import numpy as np
import pytest

from gmaflow.errors import FlowError
from gmaflow.inference import BidirectionalFlow, Flow, fit_camera
from gmaflow.inference.camera import project

SIZE = (96, 128)
SLIDE = np.array([[1, 0, 3], [0, 1, -1], [0, 0, 1]], float)
TURN_AND_ZOOM = np.array([[1.03, -0.02, -2.5], [0.02, 1.03, 1.5], [1e-4, -2e-4, 1]], float)


def grid() -> np.ndarray:
    rows, columns = np.indices(SIZE, dtype=float)
    return np.stack([columns, rows], axis=-1).reshape(-1, 2)


def flow_of(homography: np.ndarray) -> np.ndarray:
    return (project(homography, grid()) - grid()).reshape(*SIZE, 2).astype(np.float32)


def block() -> np.ndarray:
    mask = np.zeros(SIZE, bool)
    mask[20:60, 70:110] = True
    return mask


def overlap(actual: np.ndarray, truth: np.ndarray) -> float:
    return float((actual & truth).sum() / (actual | truth).sum())


@pytest.mark.parametrize("homography", [np.eye(3), SLIDE, TURN_AND_ZOOM])
def test_the_homography_of_the_backdrop_is_found_behind_an_object(homography: np.ndarray) -> None:
    flow = flow_of(homography)
    flow[block()] += [2.5, 1]
    camera = fit_camera(flow)
    assert np.abs(camera.homography - homography).max() < 1e-5 * np.abs(homography).max()
    assert camera.epipole is None
    assert camera.support == pytest.approx(1 - block().mean(), abs=0.01)
    assert overlap(camera.moving > 0.5, block()) > 0.98


def test_objects_may_cover_half_of_the_frame_and_move_differently() -> None:
    flow = flow_of(TURN_AND_ZOOM)
    flow[:, :20] += [4, 0]
    flow[:, 20:40] += [0, -7]
    flow[:, 40:60] += [-3, 3]
    camera = fit_camera(flow)
    assert np.abs(camera.motion - flow_of(TURN_AND_ZOOM)).max() < 0.01
    assert overlap(camera.moving > 0.5, np.arange(128) < 60 + np.zeros((96, 1))) > 0.98


def test_noise_averages_out() -> None:
    rng = np.random.default_rng(1)
    flow = flow_of(TURN_AND_ZOOM)
    flow[block()] += [4, 4]
    noisy = flow + rng.normal(0, 0.3, flow.shape).astype(np.float32)
    camera = fit_camera(noisy)
    assert np.linalg.norm(camera.motion - flow_of(TURN_AND_ZOOM), axis=2).mean() < 0.05
    assert camera.noise == pytest.approx(0.3, rel=0.15)
    assert overlap(camera.moving > 0.5, block()) > 0.9


def test_camera_and_residual_add_up_to_the_flow_and_are_reproducible() -> None:
    flow = flow_of(SLIDE) + np.random.default_rng(0).normal(0, 1, (*SIZE, 2)).astype(np.float32)
    first, second = fit_camera(flow), fit_camera(flow)
    np.testing.assert_allclose(first.motion + first.residual, flow, atol=1e-4)
    np.testing.assert_array_equal(first.homography, second.homography)
    np.testing.assert_array_equal(first.moving, second.moving)


def depths() -> np.ndarray:
    """Inverse depths of a world of steps: a backdrop, and things nearer and nearer."""
    inverse = np.full(SIZE, 0.1)
    for step in range(1, 6):
        inverse[40 + 10 * step : 60 + 10 * step, 4 * step : 110] = 0.1 + 0.08 * step
    return inverse


@pytest.mark.parametrize("shift", [(20.0, 4.0, 0.0), (0.0, 0.0, 1.2), (-6.0, 3.0, 0.7)])
def test_parallax_is_the_cameras_motion_and_objects_are_not(
    shift: tuple[float, float, float],
) -> None:
    # A camera of focal length 1 px, in units of pixels around the centre of the frame.
    centre = np.array([63.5, 47.5])
    x, y = (grid() - centre).T
    inverse = depths().reshape(-1)
    nearer = 1 - shift[2] * inverse
    target = np.stack(
        [(x + shift[0] * inverse) / nearer, (y + shift[1] * inverse) / nearer], axis=1
    )
    flow = (target + centre - grid()).reshape(*SIZE, 2).astype(np.float32)
    still = fit_camera(flow)
    assert still.epipole is not None
    assert np.abs(still.residual).max() < 0.2
    true = np.array([shift[0] + centre[0] * -shift[2], shift[1] + centre[1] * -shift[2], -shift[2]])
    cosine = abs(true @ still.epipole) / np.linalg.norm(true) / np.linalg.norm(still.epipole)
    assert cosine > 0.999
    sideways = np.array([-shift[1], shift[0]]) if shift[2] == 0 else np.array([0.0, 20.0])
    flow[10:30, 90:120] += (4 * sideways / np.linalg.norm(sideways)).astype(np.float32)
    moving = np.zeros(SIZE, bool)
    moving[10:30, 90:120] = True
    assert overlap(fit_camera(flow).moving > 0.5, moving) > 0.9


def test_a_still_camera_has_no_parallax() -> None:
    """A large object that moves in front of a static background."""
    flow = np.zeros((*SIZE, 2), np.float32)
    flow[block(), 0] = np.linspace(2, 12, block().sum())
    camera = fit_camera(flow)
    assert camera.epipole is None
    assert overlap(camera.moving > 0.5, block()) > 0.98


def test_an_object_that_moves_as_one_is_not_parallax() -> None:
    flow = flow_of(SLIDE)
    flow[:, :45] += [6, 0]
    camera = fit_camera(flow)
    assert camera.epipole is None
    assert overlap(camera.moving > 0.5, np.arange(128) < 45 + np.zeros((96, 1))) > 0.98


def test_ignored_and_uncertain_pixels_do_not_count() -> None:
    flow = flow_of(SLIDE)
    wrong = np.arange(128) < 80 + np.zeros((96, 1))
    flow[wrong] = [-5, 2]
    assert np.abs(Flow(flow).camera().homography - SLIDE).max() > 1
    assert np.abs(Flow(flow).camera(ignore=wrong).homography - SLIDE).max() < 1e-4
    assert np.abs(Flow(flow, valid=~wrong).camera().homography - SLIDE).max() < 1e-4
    empty_mask = np.zeros(SIZE, bool)
    both = BidirectionalFlow(Flow(flow), Flow(-flow), empty_mask, empty_mask, np.float32(1) - wrong)
    assert np.abs(both.camera().homography - SLIDE).max() < 1e-4


def test_huge_motions_do_not_stop_the_fit() -> None:
    flow = flow_of(TURN_AND_ZOOM)
    wrong = np.random.default_rng(0).random(SIZE) < 0.3
    flow[wrong] = 1e8  # samples of such points are singular
    camera = fit_camera(flow)
    assert np.abs(camera.homography - TURN_AND_ZOOM).max() < 0.01


@pytest.mark.parametrize("seed", [8, 40, 44, 53])
def test_weight_on_too_few_points_does_not_stop_the_fit(seed: int) -> None:
    # As between unrelated frames, where the two directions agree hardly anywhere.
    rng = np.random.default_rng(seed)
    flow = rng.normal(0, 100, (32, 40, 2)).astype(np.float32)
    weight = np.full((32, 40), 1e-20, np.float32)
    weight.flat[rng.choice(weight.size, 3, replace=False)] = 1
    assert np.isfinite(fit_camera(flow, weight).residual).all()


def test_masks_of_another_size_or_of_everything_are_refused() -> None:
    flow = Flow(flow_of(SLIDE))
    with pytest.raises(FlowError, match="the flow and the mask differ in size: 96x128 and 9x128"):
        flow.camera(ignore=np.zeros((9, 128), bool))
    with pytest.raises(FlowError, match=r"only 0 of .* sampled pixels have usable flow"):
        flow.camera(ignore=np.ones(SIZE, bool))
