import numpy as np

from gmaflow.example import load_example

STORED_TO = 1 / 64  # px


def test_the_truth_explains_the_second_frame() -> None:
    example = load_example()
    visible = ~(example.occluded_in | example.occluded_out)
    warped = example.flow.warp(example.image2).astype(float)
    difference = np.abs(warped - example.image1).mean(axis=2)
    still = np.abs(example.image2.astype(float) - example.image1).mean(axis=2)
    assert np.median(difference[visible]) < 10
    assert difference[visible].mean() < 0.5 * still[visible].mean()


def test_hidden_pixels_are_hidden() -> None:
    example = load_example()
    height, width = example.occluded_in.shape
    assert example.flow.array.shape == (height, width, 2)
    assert not (example.occluded_in & example.occluded_out).any()
    y, x = np.mgrid[:height, :width]
    target_x, target_y = x + example.flow.array[..., 0], y + example.flow.array[..., 1]
    beyond_x = np.maximum(-target_x, target_x - (width - 1))
    beyond_y = np.maximum(-target_y, target_y - (height - 1))
    beyond = np.maximum(beyond_x, beyond_y)  # how far outside the second frame
    assert (beyond[example.occluded_in] <= STORED_TO).all()
    assert (beyond[example.occluded_out] >= -STORED_TO).all()
    assert 0.01 < (example.occluded_in | example.occluded_out).mean() < 0.2
