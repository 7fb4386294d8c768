import colorsys
from dataclasses import replace

import numpy as np
import pytest

from gmaflow.data.augmentation import ColorJitter
from gmaflow.data.augmentation.color import ColorChange, change_color, draw_change, jitter_pair

SAME = ColorChange(brightness=1.0, contrast=1.0, saturation=1.0, hue=0.0)
JITTER = ColorJitter(brightness=0.4, contrast=0.3, saturation=0.2, hue=0.1)


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def test_no_change_changes_nothing_but_rounding(image: np.ndarray) -> None:
    got = change_color(image, SAME)
    assert got.dtype == np.uint8
    assert np.abs(got.astype(int) - image).max() <= 8  # hue has 256 steps for 1530 colours
    without_hue = replace(SAME, order=("brightness", "contrast", "saturation"))
    np.testing.assert_array_equal(change_color(image, without_hue), image)


def test_brightness_is_a_factor(image: np.ndarray) -> None:
    dark = change_color(image, replace(SAME, brightness=0.5, order=("brightness",)))
    np.testing.assert_allclose(dark, image * 0.5, atol=1)


def test_contrast_moves_away_from_the_mean_grey(image: np.ndarray) -> None:
    flat = change_color(image, replace(SAME, contrast=0.5, order=("contrast",)))
    mean = (image @ [0.299, 0.587, 0.114]).mean()
    np.testing.assert_allclose(flat, mean + (image - mean) * 0.5, atol=1.5)


def test_saturation_moves_away_from_each_pixels_grey(image: np.ndarray) -> None:
    pale = change_color(image, replace(SAME, saturation=0.0, order=("saturation",)))
    np.testing.assert_allclose(pale[..., 0], image @ [0.299, 0.587, 0.114], atol=1)
    assert (pale == pale[..., :1]).all()


@pytest.mark.parametrize("shift", [0.25, -0.15])
def test_hue_turns_around_the_wheel(shift: float) -> None:
    image = np.full((2, 2, 3), (200, 40, 90), np.uint8)
    got = change_color(image, replace(SAME, hue=shift, order=("hue",)))[0, 0]
    before, after = (colorsys.rgb_to_hsv(*(np.array(c) / 255)) for c in (image[0, 0], got))
    assert (after[0] - before[0] - shift + 0.5) % 1 - 0.5 == pytest.approx(0, abs=0.01)
    assert after[1:] == pytest.approx(before[1:], abs=0.02)


def test_changes_stay_in_their_ranges_and_fill_them() -> None:
    rng = np.random.default_rng(0)
    changes = [draw_change(JITTER, rng) for _ in range(500)]
    for name, middle in (("brightness", 1), ("contrast", 1), ("saturation", 1), ("hue", 0)):
        offsets = np.array([getattr(change, name) for change in changes]) - middle
        limit = getattr(JITTER, name)
        assert np.abs(offsets).max() <= limit
        assert offsets.min() < -0.9 * limit
        assert offsets.max() > 0.9 * limit
    assert len({change.order for change in changes}) == 24


def test_a_symmetric_change_is_the_same_for_both(image: np.ndarray) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        first, second = jitter_pair(image, image, JITTER, rng, asymmetric=0.0)
        np.testing.assert_array_equal(first, second)
        assert (first != image).any()


def test_an_asymmetric_change_is_not(image: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    first, second = jitter_pair(image, image, JITTER, rng, asymmetric=1.0)
    assert (first != second).any()
