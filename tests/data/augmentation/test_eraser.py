import numpy as np

from gmaflow.data.augmentation.eraser import erase_boxes


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
