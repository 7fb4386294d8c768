from inspect import unwrap  # tests check types first
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gmaflow.errors import FlowError, ImageError
from gmaflow.inference import FlowEstimator
from gmaflow.inference.images import (
    Padding,
    PaddingKind,
    as_padding_kind,
    check_tensors,
    each_image,
    load_image,
    to_tensor,
)

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


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_is_grey() -> None:
    assert np.array_equal(load_image(np.asmatrix(RGB[..., 0])), load_image(RGB[..., 0]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_float_images_become_float32(dtype: type) -> None:
    floats: np.ndarray = (RGB / 255).astype(dtype)
    loaded = load_image(floats)
    assert loaded.dtype == np.float32
    assert np.allclose(loaded, RGB / 255, atol=1e-3)


def test_sixteen_bits_are_the_same_picture() -> None:
    found = load_image(RGB.astype(np.uint16) * 257)
    assert np.array_equal(load_image((RGB.astype(np.uint16) * 257).astype(">u2")), found)
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
        (np.full((16, 16, 3), 255.0), "values from 0 to 255; scale it to 0..1, or use uint8"),
        (np.full((16, 16, 3), -0.5), "values from -0.5 to 0"),
        (np.full((16, 16, 3), np.nan), "contains NaN"),
        (np.full((16, 16, 3), np.inf), "contains infinite values"),
        (np.zeros((16, 16, 3), np.int64), "is int64; use uint8, uint16, or float in 0..1"),
        (np.zeros((16, 16, 2), np.uint8), r"shape \(16, 16, 2\)"),
        (np.zeros((4, 16, 16, 3), np.uint8), "shape"),
        (np.zeros((1, 1, 3), np.uint8), "is 1x1; flow needs at least 16 pixels"),
        (np.zeros((15, 400, 3), np.uint8), "is 15x400"),
        (np.zeros((0, 0, 3), np.uint8), "is 0x0"),
    ],
)
def test_inputs_that_are_not_images_are_refused(image: np.ndarray, complaint: str) -> None:
    with pytest.raises(ImageError, match=complaint):
        load_image(image)


@pytest.mark.parametrize("image", [RGB, (RGB / 255).astype(np.float32)])
def test_a_loaded_image_is_not_copied_again(image: np.ndarray) -> None:
    loaded = load_image(image)
    assert load_image(loaded) is loaded or np.shares_memory(load_image(loaded), loaded)


sides = st.integers(1, 70)


@given(sides, sides, st.sampled_from(["sintel", "kitti"]))
def test_cropping_undoes_padding(height: int, width: int, kind: PaddingKind) -> None:
    images = torch.rand(2, 3, height, width)
    padding = Padding.of_kind(kind, height, width)
    padded = padding.pad(images)
    assert padded.shape[-2] % 8 == padded.shape[-1] % 8 == 0
    assert padded.shape[-2] - height < 8
    assert torch.equal(padding.crop(padded), images)


def test_it_is_split_as_published_and_repeats_the_border() -> None:
    padding = Padding.to_stride(436, 1021)
    assert padding == Padding(left=1, right=2, top=2, bottom=2)
    padded = Padding(1, 2, 0, 1).pad(torch.tensor([[[[1.0, 2.0]]]]))
    assert padded.tolist() == [[[[1, 1, 2, 2, 2], [1, 1, 2, 2, 2]]]]


def test_kitti_pads_rows_only_at_the_bottom() -> None:
    assert Padding.of_kind("kitti", 370, 1226) == Padding(left=3, right=3, top=0, bottom=6)
    assert Padding.of_kind("sintel", 370, 1226) == Padding(left=3, right=3, top=3, bottom=3)


@pytest.mark.parametrize("kind", ["KITTI", ""])
def test_an_unknown_kind_is_refused(kind: str) -> None:
    with pytest.raises(FlowError, match=r"unknown padding .*; (there are|did you mean)"):
        as_padding_kind(kind)
    blank = FlowEstimator.__new__(FlowEstimator)
    with pytest.raises(FlowError, match="padding"):
        FlowEstimator.__init__.__wrapped__(blank, padding=kind)  # type: ignore[attr-defined]


def test_tensors_are_sent_to_batch() -> None:
    with pytest.raises(ImageError, match="is a tensor; for tensors use `FlowEstimator"):
        unwrap(load_image)(torch.rand(3, 20, 30))


def test_nan_is_refused() -> None:
    good, bad = torch.rand(2, 1, 3, 20, 30)
    bad[0, 0, 0, 0] = torch.nan
    for pair in ((good, bad), (bad, good)):
        with pytest.raises(ImageError, match="the images contain NaN"):
            check_tensors(*pair)


def test_inputs_that_are_not_sequences_are_refused() -> None:
    with pytest.raises(ImageError, match="the frames are of type int; use a list of images"):
        next(unwrap(each_image)(3))
