"""A smooth pair whose motion is known everywhere."""

import colorsys
from dataclasses import replace

import numpy as np
import pytest
import torch

from gmaflow.data import (
    Augmentation,
    Batch,
    FlowSample,
    augment,
    dense_augmentation,
    sparse_augmentation,
)
from gmaflow.data.augmentation import (
    ColorJitter,
    Placement,
    change_color,
    draw_change,
    draw_placement,
    erase_boxes,
    jitter_pair,
    place_dense,
    place_sparse,
    sample_linear,
)
from gmaflow.data.pairs import split_occlusion
from gmaflow.errors import DatasetError
from gmaflow.geometry import leaves_frame


def pattern(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A smooth coloured pattern, read at any place."""
    waves = [np.sin(x / 9 + y / 21), np.cos(x / 15 - y / 11), np.sin(x / 31 + y / 13 + 1)]
    return np.stack(waves, axis=-1) * 100 + 127


def smooth_pair(height: int = 90, width: int = 120) -> FlowSample:
    """A pair whose second frame shows the first, stretched and shifted."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    flow = np.stack([3 + 0.03 * x, -2 + 0.02 * y], axis=-1).astype(np.float32)
    # The flow is linear, hence so is its inverse: where did a pixel of frame 2 come from?
    image2 = pattern((x - 3) / 1.03, (y + 2) / 1.02)
    valid = np.ones((height, width), bool)
    occluded_in, occluded_out = split_occlusion(np.zeros_like(valid), flow, valid)
    return FlowSample(
        image1=np.rint(pattern(x, y)).astype(np.uint8),
        image2=np.rint(image2).astype(np.uint8),
        flow=flow,
        valid=valid,
        occluded_in=occluded_in,
        occluded_out=occluded_out,
    )


CROP = (64, 72)
DENSE, SPARSE = dense_augmentation(CROP, (-0.2, 0.6)), sparse_augmentation(CROP, (-0.2, 0.6))
both = pytest.mark.parametrize("augmentation", [DENSE, SPARSE], ids=["dense", "sparse"])


def same(first: Batch, second: Batch) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


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
        assert sample.image1.shape == (3, *CROP)
        assert sample.flow.shape == (2, *CROP)
        assert sample.flow.isfinite().all()
        assert sample.valid.any()
        assert 0 <= sample.image1.min() <= sample.image1.max() <= 1


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
        flow = sample.flow.permute(1, 2, 0).contiguous().numpy()
        leaving = leaves_frame(flow) & sample.valid.numpy()
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


@pytest.mark.parametrize(("augmentation", "fits"), [(DENSE, (72, 90)), (SPARSE, (65, 81))])
def test_no_axis_shrinks_further_than_the_one_that_fits_last(
    augmentation: Augmentation, fits: tuple[int, int]
) -> None:
    tiny = replace(augmentation, resize=1.0, min_scale=-9.0, max_scale=-9.0)
    assert draw_placement((400, 500), tiny, np.random.default_rng(0)).resized == fits


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
    corners = [draw_placement((164, 172), pulled, rng).corner for _ in range(1000)]
    top, left = np.array(corners).T
    assert top.min() == 0  # as published, no margin there
    assert np.mean(top == 100) == pytest.approx(21 / 121, abs=0.05)
    assert np.mean(left == 0) == pytest.approx(51 / 201, abs=0.05)
    assert np.mean(left == 100) == pytest.approx(51 / 201, abs=0.05)


@pytest.mark.parametrize(("crop", "scales"), [((0, 9), (0.0, 1.0)), ((9, 9), (1.0, 0.0))])
def test_nonsense_is_refused(crop: tuple[int, int], scales: tuple[float, float]) -> None:
    with pytest.raises(DatasetError, match="invalid augmentation"):
        dense_augmentation(crop, scales)


SOURCE = (90, 120)
PLACEMENTS = {
    "as it is": Placement(source=SOURCE, resized=SOURCE, crop=SOURCE, corner=(0, 0)),
    "crop": Placement(source=SOURCE, resized=SOURCE, crop=(50, 60), corner=(13, 7)),
    "larger": Placement(source=SOURCE, resized=(144, 192), crop=(90, 100), corner=(30, 40)),
    "smaller": Placement(source=SOURCE, resized=(63, 84), crop=(60, 70), corner=(1, 5)),
    "stretched": Placement(source=SOURCE, resized=(81, 180), crop=(70, 90), corner=(5, 50)),
    "mirrored": Placement(
        source=SOURCE, resized=SOURCE, crop=(60, 70), corner=(9, 20), flipped=(False, True)
    ),
    "upside down": Placement(
        source=SOURCE, resized=SOURCE, crop=(60, 70), corner=(9, 20), flipped=(True, False)
    ),
    "everything": Placement(
        source=SOURCE, resized=(130, 150), crop=(80, 90), corner=(31, 12), flipped=(True, True)
    ),
}
everywhere = pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS.keys())


def read_between(image: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    along, down = (x - left)[..., None], (y - top)[..., None]
    above = image[top, left] * (1 - along) + image[top, left + 1] * along
    below = image[top + 1, left] * (1 - along) + image[top + 1, left + 1] * along
    return np.asarray(above * (1 - down) + below * down)


@everywhere
def test_the_placed_flow_leads_from_the_placed_first_to_the_second(placement: Placement) -> None:
    pair = smooth_pair(*SOURCE)
    assert pair.flow is not None
    assert pair.valid is not None
    none = np.zeros(SOURCE, bool)
    flow, valid, _ = place_dense(pair.flow, pair.valid, none, placement)
    image1, image2 = sample_linear(pair.image1, placement), sample_linear(pair.image2, placement)
    assert image1.shape == (*placement.crop, 3)
    assert valid.all()
    height, width = placement.crop
    y, x = np.mgrid[:height, :width] + flow.transpose(2, 0, 1)[::-1]
    inside = (x >= 0) & (x < width - 1) & (y >= 0) & (y < height - 1)
    assert inside.mean() > 0.6
    warped = read_between(image2, x[inside], y[inside])
    difference = np.abs(warped - image1[inside])
    assert difference.mean() < 0.6
    assert difference.max() < 6
    # The law has teeth: half a pixel more breaks it.
    farther = np.minimum(x[inside] + 0.5, width - 1.001)
    wrong = np.abs(read_between(image2, farther, y[inside]) - image1[inside])
    assert wrong.mean() > 2.5 * difference.mean()


@everywhere
def test_images_are_read_where_the_placement_says(placement: Placement) -> None:
    y, x = np.mgrid[: SOURCE[0], : SOURCE[1]].astype(float)
    image = np.rint(pattern(x, y)).astype(np.uint8)
    rows = placement.to_source(0).clip(0, SOURCE[0] - 1)
    columns = placement.to_source(1).clip(0, SOURCE[1] - 1)
    wanted = pattern(*np.meshgrid(columns, rows))
    np.testing.assert_allclose(sample_linear(image, placement), wanted, atol=1.2)


def test_flips_turn_and_scales_keep_the_outer_border() -> None:
    image = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    turned = Placement(
        source=(4, 6), resized=(4, 6), crop=(4, 6), corner=(0, 0), flipped=(True, True)
    )
    np.testing.assert_array_equal(sample_linear(image, turned), image[::-1, ::-1])
    assert turned.stretch.tolist() == [-1, -1]
    doubled = Placement(source=(4, 6), resized=(8, 6), crop=(3, 6), corner=(1, 0))
    assert doubled.to_source(0).tolist() == [0.25, 0.75, 1.25]
    assert doubled.stretch.tolist() == [1, 2]


def test_nothing_to_do_does_nothing() -> None:
    pair = smooth_pair(*SOURCE)
    assert pair.flow is not None
    assert pair.valid is not None
    some = np.random.default_rng(0).random(SOURCE) < 0.3
    for place in (place_dense, place_sparse):
        flow, valid, occluded = place(pair.flow, some, some, PLACEMENTS["as it is"])
        np.testing.assert_array_equal(flow, pair.flow * some[..., None])
        np.testing.assert_array_equal(valid, some)
        np.testing.assert_array_equal(occluded, some)
    placed = sample_linear(pair.image1, PLACEMENTS["as it is"])
    np.testing.assert_array_equal(placed, pair.image1)


@everywhere
def test_the_unknown_never_mixes_into_the_known(placement: Placement) -> None:
    flow = np.full((*SOURCE, 2), 4, np.float32)
    valid = np.random.default_rng(0).random(SOURCE) < 0.9
    flow[~valid] = 0
    for place in (place_dense, place_sparse):
        placed, known, _ = place(flow, valid, ~valid, placement)
        wanted = np.broadcast_to(4 * placement.stretch, placed[known].shape)
        np.testing.assert_allclose(placed[known], wanted, rtol=1e-3)
        assert (placed[~known] == 0).all()
        assert 0.1 < known.mean() < 1


@everywhere
def test_sparse_values_are_scaled_and_stay_with_their_picture(placement: Placement) -> None:
    rng = np.random.default_rng(0)
    valid = rng.random(SOURCE) < 0.05
    # Each flow tells the place that it comes from.
    rows, columns = np.mgrid[: SOURCE[0], : SOURCE[1]]
    flow = np.stack([columns, rows], axis=-1).astype(np.float32) * valid[..., None]
    placed, known, _ = place_sparse(flow, valid, np.zeros(SOURCE, bool), placement)
    assert known.any()
    origin = placed[known] / placement.stretch
    at_y, at_x = (placement.to_source(axis)[where] for axis, where in enumerate(np.nonzero(known)))
    reach = 0.5 / np.abs(placement.stretch) + 1e-3  # half a pixel of the crop
    assert (np.abs(origin[:, 0] - at_x) <= reach[0]).all()
    assert (np.abs(origin[:, 1] - at_y) <= reach[1]).all()


def test_no_sparse_value_is_lost_or_doubled_when_growing() -> None:
    valid = np.random.default_rng(0).random(SOURCE) < 0.3
    larger = Placement(source=SOURCE, resized=(144, 192), crop=(144, 192), corner=(0, 0))
    flow = np.ones((*SOURCE, 2), np.float32)
    _, known, occluded = place_sparse(flow, valid, valid, larger)
    assert known.sum() == valid.sum()
    np.testing.assert_array_equal(occluded, known)


@everywhere
def test_occlusion_moves_along(placement: Placement) -> None:
    occluded = np.zeros(SOURCE, bool)
    occluded[30:60, 40:80] = True
    flow, valid = np.zeros((*SOURCE, 2), np.float32), np.ones(SOURCE, bool)
    _, _, placed = place_dense(flow, valid, occluded, placement)
    as_image = sample_linear(np.repeat(occluded[..., None], 3, 2).astype(np.uint8) * 255, placement)
    clear = np.abs(as_image[..., 0] - 127.5) > 65  # not on the border between the two
    np.testing.assert_array_equal(placed[clear], as_image[clear][:, 0] > 127.5)
    assert placed.any()
    assert not placed.all()


SAME = [("brightness", 1.0), ("contrast", 1.0), ("saturation", 1.0), ("hue", 0.0)]
JITTER = ColorJitter(brightness=0.4, contrast=0.3, saturation=0.2, hue=0.1)


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def test_no_change_changes_nothing_but_rounding(image: np.ndarray) -> None:
    got = change_color(image, SAME)
    assert got.dtype == np.uint8
    assert np.abs(got.astype(int) - image).max() <= 8  # hue has 256 steps for 1530 colours
    np.testing.assert_array_equal(change_color(image, SAME[:3]), image)


def test_brightness_is_a_factor(image: np.ndarray) -> None:
    dark = change_color(image, [("brightness", 0.5)])
    np.testing.assert_allclose(dark, image * 0.5, atol=1)


def test_contrast_moves_away_from_the_mean_grey(image: np.ndarray) -> None:
    flat = change_color(image, [("contrast", 0.5)])
    mean = (image @ [0.299, 0.587, 0.114]).mean()
    np.testing.assert_allclose(flat, mean + (image - mean) * 0.5, atol=1.5)


def test_saturation_moves_away_from_each_pixels_grey(image: np.ndarray) -> None:
    pale = change_color(image, [("saturation", 0.0)])
    np.testing.assert_allclose(pale[..., 0], image @ [0.299, 0.587, 0.114], atol=1)
    assert (pale == pale[..., :1]).all()


@pytest.mark.parametrize("shift", [0.25, -0.15])
def test_hue_turns_around_the_wheel(shift: float) -> None:
    image = np.full((2, 2, 3), (200, 40, 90), np.uint8)
    got = change_color(image, [("hue", shift)])[0, 0]
    before, after = (colorsys.rgb_to_hsv(*(np.array(c) / 255)) for c in (image[0, 0], got))
    assert (after[0] - before[0] - shift + 0.5) % 1 - 0.5 == pytest.approx(0, abs=0.01)
    assert after[1:] == pytest.approx(before[1:], abs=0.02)


def test_changes_stay_in_their_ranges_and_fill_them() -> None:
    rng = np.random.default_rng(0)
    changes = [draw_change(JITTER, rng) for _ in range(500)]
    for name, middle in (("brightness", 1), ("contrast", 1), ("saturation", 1), ("hue", 0)):
        offsets = np.array([dict(change)[name] for change in changes]) - middle
        limit = getattr(JITTER, name)
        assert np.abs(offsets).max() <= limit
        assert offsets.min() < -0.9 * limit
        assert offsets.max() > 0.9 * limit
    assert len({tuple(dict(change)) for change in changes}) == 24


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


def test_boxes_get_the_mean_colour_and_the_rest_stays() -> None:
    image = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    before = image.copy()
    mean = image.reshape(-1, 3).mean(axis=0)
    for seed in range(20):
        erased = erase_boxes(image, np.random.default_rng(seed))
        changed = (erased != image).any(axis=2)
        assert 0 < changed.sum() <= 2 * 99 * 99
        np.testing.assert_allclose(erased[changed], np.tile(mean, (changed.sum(), 1)), atol=0.51)
        rows = np.flatnonzero(changed.any(axis=1))
        assert rows[-1] - rows[0] < 300
    np.testing.assert_array_equal(image, before)


def test_sizes_and_numbers_of_boxes() -> None:
    image = np.zeros((400, 500, 3), np.uint8)
    image[0, 0] = 255
    image[:, 250:] = 100  # so that the mean colour is no colour of the image
    areas = []
    for seed in range(40):
        changed = (erase_boxes(image, np.random.default_rng(seed)) != image).any(axis=2)
        areas.append(changed.sum())
    assert max(areas) <= 2 * 99**2
    assert np.mean(np.array(areas) > 99**2) > 0.1  # two boxes, now and then
