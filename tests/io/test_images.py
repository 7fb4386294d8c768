import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from gmaflow.errors import DatasetError, FlowError, ImageError, ImageTooLargeError, OutputError
from gmaflow.io import (
    IMAGE_SUFFIXES,
    decode_image,
    encode_png,
    images,
    read_image,
    scale_image,
    write_image,
)
from gmaflow.io.images import check_picture, check_same_size, check_smallest, read_size
from gmaflow.io.png16 import encode_png16
from gmaflow.model import MIN_SIDE
from tests.io import bombs

LOSSLESS = (".png", ".webp", ".tif", ".tiff", ".bmp", ".ppm")


def picture(height: int, width: int, *channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, *channels), np.uint8)


@given(st.sampled_from(LOSSLESS), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_what_is_written_is_read(
    folder: Path, suffix: str, height: int, width: int, color: bool
) -> None:
    image = picture(height, width, 3) if color else picture(height, width)
    write_image(folder / f"a{suffix}", image)
    read = read_image(folder / f"a{suffix}")
    np.testing.assert_array_equal(read, image if color else image[..., None].repeat(3, axis=2))
    read[0, 0] = 1  # it may be written to


def test_jpeg_is_near(tmp_path: Path) -> None:
    image = np.full((16, 24, 3), (200, 60, 30), np.uint8)
    write_image(tmp_path / "a.JPG", image)
    assert np.abs(read_image(tmp_path / "a.JPG").astype(int) - image).max() <= 2


def test_alpha_is_kept_by_png_and_dropped_on_reading(tmp_path: Path) -> None:
    image = picture(5, 6, 4)
    write_image(tmp_path / "a.png", image)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), image)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), image[..., :3])
    with pytest.raises(OutputError, match="only PNG keeps alpha"):
        write_image(tmp_path / "a.jpg", image)


def test_an_unknown_suffix_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    for name in ("a.xyz", "a", "a.gif"):
        with pytest.raises(OutputError, match=r"\.png, \.jpg"):
            write_image(tmp_path / name, picture(2, 2, 3))
    assert list(tmp_path.iterdir()) == []


def test_a_picture_too_large_for_the_format_is_refused(tmp_path: Path) -> None:
    for suffix in (".jpg", ".webp"):
        with pytest.raises(OutputError, match="cannot hold this picture"):
            write_image(tmp_path / f"a{suffix}", np.zeros((1, 70_000, 3), np.uint8))
    assert list(tmp_path.iterdir()) == []


def test_arrays_that_are_no_picture_are_refused() -> None:
    wrong: list[np.ndarray] = [
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4, 1), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros(4, np.uint8),
        np.zeros((1, 4, 4, 3), np.uint8),
    ]
    for array in wrong:
        with pytest.raises(OutputError, match="a picture is uint8"):
            check_picture(Path("a.png"), array, alpha=True)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_16_bit_grey_is_scaled_and_rounded(tmp_path: Path, name: str) -> None:
    deep = np.array(
        [[0, 128, 129, 257, 32768, 65535], [385, 386, 1000, 65406, 65407, 2]], np.uint16
    )
    Image.fromarray(deep).save(tmp_path / name)
    read = read_image(tmp_path / name)
    np.testing.assert_array_equal(read, np.rint(deep / 257)[..., None].repeat(3, axis=2))


@pytest.mark.parametrize(
    ("brightest", "warned"), [(0, False), (1023, True), (4095, True), (9000, False)]
)
@pytest.mark.parametrize("color", [False, True])
def test_empty_upper_bits_are_reported_once_for_a_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, brightest: int, warned: bool, color: bool
) -> None:
    deep = np.full((4, 6, 3), brightest, np.uint16)
    for name in ("a.png", "b.png"):
        if color:
            (tmp_path / name).write_bytes(encode_png16(deep))
        else:
            Image.fromarray(deep[..., 0]).save(tmp_path / name)
        read_image(tmp_path / name)
    messages = [record.message for record in caplog.records]
    assert [f"{tmp_path / 'a.png'} has 16 bits" in text for text in messages] == [True] * warned


def test_dark_8_bit_pictures_are_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_image(tmp_path / "a.png", np.full((16, 16, 3), 9, np.uint8))
    read_image(tmp_path / "a.png")
    assert not caplog.records


def test_modes_become_rgb(tmp_path: Path) -> None:
    grey, alpha, color = picture(6, 7), picture(6, 7, seed=1), picture(6, 7, 3)
    rgb = Image.fromarray(color)
    palette = rgb.quantize(16)
    modes: dict[str, tuple[Image.Image, Any]] = {
        "1": (Image.fromarray(grey > 127), np.where(grey > 127, 255, 0)[..., None]),
        "L": (Image.fromarray(grey), grey[..., None]),
        "LA": (Image.fromarray(np.dstack([grey, alpha]), "LA"), grey[..., None]),
        "P": (palette, np.asarray(palette.convert("RGB"))),
        "RGBA": (Image.fromarray(np.dstack([color, alpha])), color),
    }
    for mode, (image, wanted) in modes.items():
        assert image.mode == mode
        image.save(tmp_path / "a.png")
        np.testing.assert_array_equal(read_image(tmp_path / "a.png"), wanted + np.zeros((6, 7, 3)))
    palette.save(tmp_path / "a.png", transparency=bytes(range(16)))
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), modes["P"][1])
    palette.save(tmp_path / "a.gif", save_all=True, append_images=[palette.rotate(180)])
    np.testing.assert_array_equal(read_image(tmp_path / "a.gif"), modes["P"][1])


def test_cmyk_is_read(tmp_path: Path) -> None:
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "a.jpg")
    assert np.abs(read_image(tmp_path / "a.jpg")[4, 4].astype(int) - (255, 0, 0)).max() < 5


def test_numbers_that_are_no_picture_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.ones((3, 3), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(ImageError, match="floating-point"):
        read_image(tmp_path / "a.tif")
    Image.fromarray(np.full((3, 3), 70_000, np.int32)).save(tmp_path / "a.tif")
    with pytest.raises(ImageError, match="32-bit"):
        read_image(tmp_path / "a.tif")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.tif"])
def test_a_turned_photo_comes_upright(tmp_path: Path, orientation: int, name: str) -> None:
    image = Image.fromarray(picture(8, 16, 3))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / name, exif=exif)
    with Image.open(tmp_path / name) as stored:
        wanted = ImageOps.exif_transpose(stored)
    read = read_image(tmp_path / name)
    assert read.shape == ((16, 8, 3) if orientation > 4 else (8, 16, 3))
    np.testing.assert_array_equal(read, np.asarray(wanted))


def test_broken_exif_does_not_hide_the_picture(tmp_path: Path) -> None:
    Image.fromarray(picture(4, 4, 3)).save(tmp_path / "a.jpg", exif=b"Exif\0\0rubbish")
    assert read_image(tmp_path / "a.jpg").shape == (4, 4, 3)


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image(tmp_path / "a.png", np.zeros((30, 30), np.uint8))
    for limit in (100, 500):  # Pillow's error above twice the limit, its warning above once
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(ImageError, match="more pixels than is safe"):
            read_image(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 900)
    assert read_image(tmp_path / "a.png").shape == (30, 30, 3)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_bomb_is_refused_where_warnings_are_not_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_image(tmp_path / "a.png", np.zeros((30, 30), np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    with pytest.raises(ImageError, match="more pixels than is safe"):
        read_image(tmp_path / "a.png")


def test_a_file_that_is_not_an_image_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "folder.png").mkdir()
    write_image(tmp_path / "whole.png", picture(20, 20, 3))
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:-200])
    for name, reason in {
        "empty": "is empty",
        "text": "is not an image",
        "folder": "is a folder",
        "none": "does not exist",
        "cut": "cannot be read",
    }.items():
        with pytest.raises(ImageError, match=reason) as caught:
            read_image(tmp_path / f"{name}.png")
        assert f"{name}.png" in str(caught.value)


@given(st.data())
def test_broken_bytes_give_an_image_or_an_image_error(folder: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["PNG", "JPEG", "PPM", "WEBP", "TIFF", "BMP", "GIF"]))
    buffer = io.BytesIO()
    Image.fromarray(picture(6, 9, 3)).save(buffer, kind)
    raw = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    path = folder / "broken"
    path.write_bytes(raw[:cut])
    message = str(path)
    try:
        assert read_image(path).shape[2] == 3
    except ImageError as err:
        message = str(err)
    assert str(path) in message


def test_real_pictures_are_read(material: Path) -> None:
    paths = [p for p in (material / "realflow").rglob("*") if p.suffix in IMAGE_SUFFIXES]
    for path in paths[:12]:
        assert read_image(path).shape[2] == 3


@pytest.mark.parametrize("channels", [(), (3,), (4,)])
def test_an_open_file_is_read_as_a_path_is(channels: tuple[int, ...], tmp_path: Path) -> None:
    packed = encode_png(picture(5, 7, *channels))
    path = tmp_path / "x.png"
    path.write_bytes(packed)
    file = io.BytesIO(packed)
    file.seek(3)  # wherever it stands
    assert np.array_equal(decode_image(file), read_image(path))


def test_more_pixels_than_allowed_are_refused() -> None:
    file = io.BytesIO(encode_png(picture(10, 20, 3)))
    assert decode_image(file, max_pixels=200).shape == (10, 20, 3)
    with pytest.raises(ImageTooLargeError, match="upload has 20 x 10 pixels, more than the 199"):
        decode_image(file, name="upload", max_pixels=199)


@pytest.mark.parametrize(("scale", "size"), [(0.5, (12, 20)), (2.0, (48, 80)), (0.01, (1, 1))])
def test_a_scaled_picture_keeps_its_colours_and_proportions(
    scale: float, size: tuple[int, int]
) -> None:
    image = np.full((24, 40, 3), (200, 60, 30), np.uint8)
    scaled = scale_image(image, scale)
    np.testing.assert_array_equal(scaled, np.full((*size, 3), (200, 60, 30), np.uint8))
    assert scale_image(image, 1.0) is image


FLOW, MASK = np.zeros((4, 5, 2)), np.zeros((4, 5), bool)


def test_channels_and_what_is_not_there_have_no_size_to_match() -> None:
    check_same_size({"the flow": FLOW, "the mask": MASK, "its image": (4, 5, 3), "nothing": None})


def test_the_odd_one_out_is_named() -> None:
    with pytest.raises(
        DatasetError,
        match=r"^a\.flo and c\.png differ in size: 4x5 and 5x4 \(height x width\); mend",
    ):
        check_same_size(
            {"a.flo": FLOW, "b.png": MASK, "c.png": MASK.T}, error=DatasetError, remedy="mend it"
        )


@pytest.mark.parametrize("text", ["440x1024", " 440X1024 ", "440\N{MULTIPLICATION SIGN}1024"])
def test_height_comes_first(text: str) -> None:
    assert read_size(text) == (440, 1024)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("440", "'440' is not a size; give height x width"),
        ("440x", "is not a size"),
        ("-440x1024", "is not a size"),
        ("1x2x3", "is not a size"),
        ("440x99999", "440x99999 is too large; give at most 16384x16384"),
    ],
)
def test_nonsense_is_refused(text: str, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        read_size(text)


def test_the_smallest_side_is_the_networks() -> None:
    with pytest.raises(FlowError, match="8x1024 is too small; give at least 16x16"):
        check_smallest((8, 1024))
    check_smallest((16, 1024))
    assert images.MIN_SIDE == MIN_SIDE


def test_a_tiff_of_one_giant_tile_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bombs.write_tiff_of_one_tile(tmp_path / "a.tiff")
    statement = "from gmaflow.io import read_image; read_image(path)"
    answer = bombs.read_in_a_process(tmp_path / "a.tiff", statement)
    assert answer.startswith("ImageTooLargeError a.tiff is stored in tiles of 46000 x 46000 pixels")


def test_a_long_comment_in_a_ppm_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ppm"
    for length, fits in ((10_000, True), (100_000, False)):
        comment = b"#" + length * b"a" + b"\n"
        path.write_bytes(b"P6\n" + comment + b"64 64\n255\n" + bytes(64 * 64 * 3))
        if fits:
            assert read_image(path).shape == (64, 64, 3)
            continue
        with pytest.raises(ImageError, match="begins with a comment that is too long"):
            read_image(path)


@pytest.mark.parametrize("colours", [0, 2, 16, 256])
def test_megabytes_of_comments_in_a_gif_are_refused(tmp_path: Path, colours: int) -> None:
    """Pillow would copy them again at every 255 bytes."""
    path = tmp_path / "a.gif"
    for blocks, fits in ((200, True), (40_000, False)):
        path.write_bytes(bombs.make_gif(64, 1, comment=blocks, colours=colours))
        if fits:
            assert read_image(path).shape == (64, 64, 3)
            continue
        begun = time.process_time()
        with pytest.raises(ImageError, match="begins with a comment that is too long"):
            read_image(path)
        assert time.process_time() - begun < 2


@pytest.mark.parametrize(("suffix", "side"), [("png", 9000), ("webp", 7900)])
def test_kilobytes_of_zeros_do_not_take_gigabytes(tmp_path: Path, suffix: str, side: int) -> None:
    """Below Pillow's own limit, but with all copies above a gigabyte."""
    path = tmp_path / f"a.{suffix}"
    if suffix == "png":
        bombs.write_png(path, side, channels=4)
    else:
        Image.new("RGBA", (side, side)).save(path, lossless=True, method=0)
    assert path.stat().st_size < 10**6
    statement = "from gmaflow.io import read_image; read_image(path)"
    answer = bombs.read_in_a_process(path, statement)
    assert answer.startswith(f"ImageTooLargeError {path.name} has more pixels than is safe")
