import numpy as np
import pytest

from gmaflow.data.augmentation.placement import Placement, place_dense, place_image, place_sparse
from tests.data.augmentation.scenes import pattern, smooth_pair

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
    image1, image2 = place_image(pair.image1, placement), place_image(pair.image2, placement)
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
    np.testing.assert_allclose(place_image(image, placement), wanted, atol=1.2)


def test_flips_turn_and_scales_keep_the_outer_border() -> None:
    image = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    turned = Placement(
        source=(4, 6), resized=(4, 6), crop=(4, 6), corner=(0, 0), flipped=(True, True)
    )
    np.testing.assert_array_equal(place_image(image, turned), image[::-1, ::-1])
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
    placed = place_image(pair.image1, PLACEMENTS["as it is"])
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
    as_image = place_image(np.repeat(occluded[..., None], 3, 2).astype(np.uint8) * 255, placement)
    clear = np.abs(as_image[..., 0] - 127.5) > 65  # not on the border between the two
    np.testing.assert_array_equal(placed[clear], as_image[clear][:, 0] > 127.5)
    assert placed.any()
    assert not placed.all()
