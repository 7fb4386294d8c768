from dataclasses import replace

import numpy as np
import pytest

from gmaflow.data import (
    Augmentation,
    AugmentedSample,
    FlowSample,
    augment,
    dense_augmentation,
    sparse_augmentation,
)
from gmaflow.data.augmentation.pipeline import draw_placement
from gmaflow.errors import DatasetError
from gmaflow.geometry import leaves_frame
from tests.data.augmentation.scenes import smooth_pair

CROP = (64, 72)
DENSE, SPARSE = dense_augmentation(CROP, (-0.2, 0.6)), sparse_augmentation(CROP, (-0.2, 0.6))
both = pytest.mark.parametrize("augmentation", [DENSE, SPARSE], ids=["dense", "sparse"])


def same(first: AugmentedSample, second: AugmentedSample) -> bool:
    names = ("image1", "image2", "flow", "valid", "occluded")
    return all(np.array_equal(getattr(first, n), getattr(second, n)) for n in names)


@both
def test_the_seed_decides(augmentation: Augmentation) -> None:
    pair = smooth_pair()
    first, again, other = (
        augment(pair, augmentation, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert same(first, again)
    assert not same(first, other)


def test_the_pair_itself_stays_as_it_was() -> None:
    pair, untouched = smooth_pair(), smooth_pair()
    for seed in range(5):
        augment(pair, DENSE, np.random.default_rng(seed))
    np.testing.assert_array_equal(pair.image2, untouched.image2)
    assert pair.flow is not None
    assert untouched.flow is not None
    np.testing.assert_array_equal(pair.flow, untouched.flow)


@pytest.mark.parametrize("size", [(20, 200), (200, 20), (30, 30), CROP, (65, 73), (90, 120)])
@pytest.mark.parametrize("resize", [0.0, 1.0])
@pytest.mark.parametrize("augmentation", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_any_size_gives_the_crop(
    augmentation: Augmentation,
    size: tuple[int, int],
    resize: float,
) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sample = augment(smooth_pair(*size), replace(augmentation, resize=resize), rng)
        assert sample.image1.shape == (*CROP, 3)
        assert sample.flow.shape == (*CROP, 2)
        assert np.isfinite(sample.flow).all()
        assert sample.valid.any()
        assert 0 <= sample.image1.min() <= sample.image1.max() <= 255


def test_only_the_second_image_is_erased() -> None:
    quiet = replace(DENSE.jitter, brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0)
    still = replace(DENSE, jitter=quiet, resize=0.0, flip_x=0.0, flip_y=0.0, crop=(90, 120))
    pair = smooth_pair()
    for seed in range(5):
        plain, erased = (
            augment(pair, replace(still, erase=erase), np.random.default_rng(seed))
            for erase in (0.0, 1.0)
        )
        np.testing.assert_array_equal(plain.image1, erased.image1)
        assert (plain.image2 != erased.image2).any()


def test_what_leaves_the_crop_is_occluded() -> None:
    for seed in range(10):
        sample = augment(smooth_pair(), DENSE, np.random.default_rng(seed))
        leaving = leaves_frame(sample.flow) & sample.valid
        assert leaving.any()
        np.testing.assert_array_equal(sample.occluded, leaving)  # nothing else is, in this scene


def test_occlusion_is_carried_through() -> None:
    pair = smooth_pair()
    hidden = replace(pair, occluded_in=np.ones((90, 120), bool))
    assert augment(hidden, DENSE, np.random.default_rng(0)).occluded.all()


def test_a_pair_without_truth_is_refused() -> None:
    pair = smooth_pair()
    with pytest.raises(DatasetError, match="without flow"):
        augment(FlowSample(image1=pair.image1, image2=pair.image2), DENSE, np.random.default_rng(0))


def test_scales_stay_in_range_and_stretch_by_axis() -> None:
    size, wide = (400, 500), replace(DENSE, resize=1.0, stretch=1.0)
    scales = []
    for seed in range(300):
        placement = draw_placement(size, wide, np.random.default_rng(seed))
        scales.append(np.log2(np.array(placement.resized) / size))
    logs = np.array(scales)
    assert -0.41 < logs.min() < -0.3
    assert 0.7 < logs.max() < 0.81
    apart = np.abs(logs[:, 0] - logs[:, 1])
    assert 0.3 < apart.max() <= 0.41
    even = draw_placement(size, replace(SPARSE, resize=1.0), np.random.default_rng(3)).resized
    assert even[0] / 400 == pytest.approx(even[1] / 500, rel=0.01)


def test_flips_come_as_often_as_published() -> None:
    def share(augmentation: Augmentation) -> tuple[float, float]:
        rng = np.random.default_rng(0)
        flips = [draw_placement((100, 100), augmentation, rng).flipped for _ in range(1000)]
        y, x = np.mean(flips, axis=0)
        return float(y), float(x)

    assert share(DENSE) == pytest.approx((0.1, 0.5), abs=0.05)
    assert share(SPARSE) == pytest.approx((0, 0.5), abs=0.05)
    assert share(dense_augmentation(CROP, (0.0, 0.0), flip=False)) == (0, 0)
    assert share(sparse_augmentation(CROP, (0.0, 0.0), flip=False)) == (0, 0)


def test_crops_reach_every_corner_and_margins_favour_borders() -> None:
    rng = np.random.default_rng(0)
    still = replace(DENSE, resize=0.0)
    corners = [draw_placement((66, 75), still, rng).corner for _ in range(500)]
    assert set(corners) == {(y, x) for y in range(3) for x in range(4)}
    pulled = replace(SPARSE, resize=0.0)
    left = np.array([draw_placement((164, 172), pulled, rng).corner[1] for _ in range(1000)])
    assert np.mean(left == 0) == pytest.approx(51 / 201, abs=0.05)
    assert np.mean(left == 100) == pytest.approx(51 / 201, abs=0.05)


@pytest.mark.parametrize(("crop", "scales"), [((0, 9), (0.0, 1.0)), ((9, 9), (1.0, 0.0))])
def test_nonsense_is_refused(crop: tuple[int, int], scales: tuple[float, float]) -> None:
    with pytest.raises(DatasetError, match="cannot be made"):
        dense_augmentation(crop, scales)
