import numpy as np

from gmaflow.viz.occlusion import occlusion_layer, occlusion_overlay


def test_each_kind_has_its_own_tint_and_the_rest_is_untouched() -> None:
    image = np.full((1, 4, 3), 100, np.uint8)
    inside = np.array([[False, True, False, True]])
    outside = np.array([[False, False, True, True]])
    plain, hidden, gone, both = occlusion_overlay(image, inside, outside)[0].astype(int)
    assert plain.tolist() == [100, 100, 100]
    assert hidden[0] > 150 > hidden[2]  # orange
    assert gone[2] > 150 > gone[0]  # blue
    assert both.tolist() == gone.tolist()


def test_the_image_shows_through() -> None:
    image = np.zeros((1, 2, 3), np.uint8)
    image[0, 1] = 255
    mask = np.ones((1, 2), np.bool_)
    dark, light = occlusion_overlay(image, mask, ~mask)[0].astype(int)
    assert (light - dark > 90).all()


def test_an_empty_image_stays_empty() -> None:
    mask = np.zeros((0, 0), np.bool_)
    assert occlusion_overlay(np.zeros((0, 0, 3), np.uint8), mask, mask).shape == (0, 0, 3)


def test_the_layer_laid_over_an_image_is_the_overlay() -> None:
    generator = np.random.default_rng(0)
    image = generator.integers(0, 256, (6, 8, 3), np.uint8)
    inside, outside = generator.random((2, 6, 8)) < 0.4
    layer = occlusion_layer(inside, outside).astype(float)
    opacity = layer[..., 3:] / 255
    laid = image * (1 - opacity) + layer[..., :3] * opacity
    assert np.abs(laid - occlusion_overlay(image, inside, outside)).max() <= 1
    assert not layer[~(inside | outside)].any()
