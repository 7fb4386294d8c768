from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gmaflow.errors import ImageError
from gmaflow.inference.images import load_image, to_tensor

RGB = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def test_paths_arrays_and_pil_images_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(RGB).save(path)
    for image in (path, str(path), RGB, Image.fromarray(RGB)):
        assert np.array_equal(load_image(image), RGB)


def test_grey_and_alpha_become_rgb() -> None:
    grey = RGB[..., 0]
    assert np.array_equal(load_image(grey), np.stack([grey] * 3, axis=-1))
    assert np.array_equal(load_image(grey[..., None]), np.stack([grey] * 3, axis=-1))
    assert np.array_equal(load_image(np.dstack([RGB, grey])), RGB)
    assert np.array_equal(load_image(Image.fromarray(grey)), np.stack([grey] * 3, axis=-1))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_are_taken_as_they_are(dtype: type) -> None:
    floats: np.ndarray = (RGB / 255).astype(dtype)
    loaded = load_image(floats)
    assert loaded.dtype == np.float32
    assert np.allclose(loaded, RGB / 255, atol=1e-3)


def test_sixteen_bits_are_the_same_picture() -> None:
    found = load_image(RGB.astype(np.uint16) * 257)
    np.testing.assert_allclose(found, RGB / np.float32(255), atol=1e-6)


def test_rounding_beyond_one_is_forgiven() -> None:
    assert load_image(np.full((16, 16, 3), 1.00001)).max() == 1


def test_tensors_are_in_zero_to_one() -> None:
    tensor = to_tensor(RGB, torch.device("cpu"))
    assert tensor.shape == (1, 3, 20, 30)
    torch.testing.assert_close(
        tensor, to_tensor((RGB / np.float32(255)).astype(np.float32), torch.device("cpu"))
    )
    read_only = RGB.copy()
    read_only.flags.writeable = False
    assert torch.equal(to_tensor(read_only, torch.device("cpu")), tensor)


@pytest.mark.parametrize(
    ("image", "complaint"),
    [
        (np.full((16, 16, 3), 255.0), "values from 0 to 255; scale it to 0..1, or give uint8"),
        (np.full((16, 16, 3), -0.5), "values from -0.5 to 0"),
        (np.full((16, 16, 3), np.nan), "NaN or infinite"),
        (np.full((16, 16, 3), np.inf), "NaN or infinite"),
        (np.zeros((16, 16, 3), np.int64), "is int64; give uint8, uint16, or float in 0..1"),
        (np.zeros((16, 16, 2), np.uint8), r"shape \(16, 16, 2\)"),
        (np.zeros((4, 16, 16, 3), np.uint8), "shape"),
        (np.zeros((1, 1, 3), np.uint8), "is 1x1; flow needs at least 16 pixels"),
        (np.zeros((15, 400, 3), np.uint8), "is 15x400"),
        (np.zeros((0, 0, 3), np.uint8), "is 0x0"),
    ],
)
def test_what_is_no_image_is_refused(image: np.ndarray, complaint: str) -> None:
    with pytest.raises(ImageError, match=complaint):
        load_image(image)
