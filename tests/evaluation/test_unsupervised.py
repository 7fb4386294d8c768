import math
from dataclasses import asdict

import numpy as np
import pytest

from gmaflow.evaluation.unsupervised import SelfCheck, average, check_pair, resting_pixels
from gmaflow.inference import BidirectionalFlow, Flow
from tests.conftest import random_images

SIZE = (48, 64)


def picture(seed: int = 0) -> np.ndarray:
    smooth = random_images(1, *SIZE, seed=seed)[0][0].permute(1, 2, 0).numpy()
    return (255 * smooth).round().astype(np.uint8)


def constant(x: float, y: float) -> Flow:
    return Flow(np.broadcast_to(np.array((x, y), np.float32), (*SIZE, 2)).copy())


def both(forward: Flow, backward: Flow, hidden: np.ndarray | None = None) -> BidirectionalFlow:
    none = np.zeros(SIZE, bool)
    inside = none if hidden is None else hidden
    return BidirectionalFlow(forward, backward, inside, none, confidence=np.ones(SIZE, np.float32))


def test_the_right_flow_explains_a_shift_and_a_wrong_one_does_not() -> None:
    first = picture()
    second = np.roll(first, (2, 3), axis=(0, 1))
    border = np.zeros(SIZE, bool)
    border[-2:] = border[:, -3:] = True
    right = check_pair(first, second, both(constant(3, 2), constant(-3, -2), border))
    wrong = check_pair(first, second, both(constant(-3, 2), constant(-3, -2), border))
    assert right.photometric == 0
    assert right.photometric_unmoved > 1
    assert right.inconsistency == 0
    assert wrong.photometric > right.photometric_unmoved
    assert wrong.inconsistency == 6
    assert right.occluded == pytest.approx(100 * border.mean())


def test_ignored_pixels_do_not_count() -> None:
    first = picture()
    second = np.roll(first, (2, 3), axis=(0, 1))
    second[:20] = 0
    ignore = np.zeros(SIZE, bool)
    ignore[:20] = ignore[-2:] = ignore[:, -3:] = True
    found = check_pair(first, second, both(constant(3, 2), constant(-3, -2)), ignore=ignore)
    assert found.photometric == 0
    assert check_pair(first, second, both(constant(3, 2), constant(-3, -2))).photometric > 1


def test_pixels_near_a_change_do_not_rest() -> None:
    first = picture()
    second = first.copy()
    second[20, 30] ^= 128
    near = np.zeros(SIZE, bool)
    near[17:24, 27:34] = True
    still = resting_pixels(first, first)
    assert still[near].all()
    assert np.array_equal(resting_pixels(first, second), still & ~near)


def test_flow_on_a_resting_picture_is_drift() -> None:
    image = picture()
    found = check_pair(image, image, both(constant(0.3, 0.4), constant(0, 0)))
    assert found.static_camera
    assert found.resting > 90
    assert found.drift == pytest.approx(0.5)


def test_a_moving_part_and_a_plain_wall_do_not_rest() -> None:
    first, second = picture(), picture()
    second[:, :20] = picture(1)[:, :20]
    second[0, 40] ^= 255
    rest = resting_pixels(first, second)
    assert not rest[:, :20].any()
    assert not rest[0, 40]
    assert rest[20:, 30:].mean() > 0.9
    wall = np.full((*SIZE, 3), 100, np.uint8)
    assert not resting_pixels(wall, wall).any()


def test_averages_skip_undefined_figures() -> None:
    names = ("photometric", "photometric_unmoved", "inconsistency", "occluded", "resting", "drift")
    one = SelfCheck(**dict.fromkeys(names, 1.0))
    other = SelfCheck(**{**dict.fromkeys(names, 3.0), "drift": math.nan})
    mean = average([one, other])
    assert (mean.photometric, mean.drift) == (2, 1)
    unknown = average([SelfCheck(**dict.fromkeys(names, math.nan))])
    assert math.isnan(unknown.drift)


def test_without_visible_pixels_the_figures_are_undefined() -> None:
    hidden = np.ones(SIZE, bool)
    found = check_pair(picture(), picture(1), both(constant(0, 0), constant(0, 0), hidden))
    assert math.isnan(found.photometric)
    assert found.occluded == 100


def test_a_pair_that_is_ignored_altogether_has_no_figures() -> None:
    everything = np.ones(SIZE, bool)
    flows = both(constant(0, 0), constant(0, 0))
    found = check_pair(picture(), picture(), flows, ignore=everything)
    assert all(math.isnan(value) for value in asdict(found).values())
