import io
import struct
import sys
from pathlib import Path
from tempfile import SpooledTemporaryFile

import numpy as np
import OpenEXR
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gmaflow.errors import ImageError, ImageTooLargeError
from gmaflow.io import decode_image, list_images, read_image
from gmaflow.io.exr_images import colors_of, to_display
from tests.io.exrs import (
    COMPRESSIONS,
    deep,
    linear,
    make_header,
    pack,
    pack_parts,
    rgb,
    shown,
    write,
)

HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16)
LOSSY = ("B44", "DWA", "LJ2K")


def decode(packed: bytes) -> np.ndarray:
    return decode_image(io.BytesIO(packed), name="a.exr")


def near(got: np.ndarray, wanted: np.ndarray) -> None:
    """Equal, but where a value lies on the edge of two steps."""
    off = np.abs(got.astype(int) - wanted)
    assert off.max() <= 1
    assert (off > 0).mean() < 0.01


def test_the_curve_is_that_of_srgb() -> None:
    light = np.array([[0, 0.002, 0.0031308, 0.18, 0.5, 1]], np.float32)
    assert to_display(light).tolist() == [[0, 7, 10, 118, 188, 255]]


@given(st.floats(width=32))
def test_every_float_becomes_a_byte(value: float) -> None:
    plane = np.array([[value]], np.float32)
    wanted = 0 if np.isnan(value) else shown({"Y": plane})[0, 0, 0]
    assert abs(int(to_display(plane)[0, 0]) - int(wanted)) <= 1
    if not 0 < value < 1:
        assert to_display(plane)[0, 0] == (255 if value >= 1 else 0)


def test_8_bits_come_back_from_linear_halves() -> None:
    image = np.arange(256, dtype=np.uint8)[None, :, None].repeat(3, axis=2)
    np.testing.assert_array_equal(decode(pack(linear(image))), image)


def test_brighter_is_never_darker() -> None:
    rising = np.sort(HALVES[~np.isnan(HALVES)].astype(np.float32))[None]
    assert (np.diff(to_display(rising).astype(int)) >= 0).all()


def test_halves_are_shown_as_the_floats_that_they_are() -> None:
    with np.errstate(invalid="ignore"):
        floats = HALVES[None].astype(np.float32)
        shown_halves = to_display(HALVES[None])
    np.testing.assert_array_equal(shown_halves, to_display(floats))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_no_value_breaks_a_file(dtype: type) -> None:
    odd: np.ndarray = np.array([[np.nan, np.inf, -np.inf, -0.0, 1e-7, 60_000]], dtype)
    read = decode(pack(dict.fromkeys("RGB", odd)))
    assert read[0, :, 1].tolist() == [0, 255, 0, 0, 0, 255]


def test_an_upload_is_read_as_any_file() -> None:
    with SpooledTemporaryFile() as file:
        file.write(pack(rgb()))
        near(decode_image(file), shown(rgb()))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_every_compression_is_read(compression: str, dtype: type) -> None:
    channels = rgb(270, 30, dtype=dtype)  # more lines than are packed together
    read = decode(pack(channels, compression=getattr(OpenEXR, compression)))
    lossy = compression.startswith(LOSSY)
    if lossy:
        assert np.abs(read.astype(int) - shown(channels)).mean() < 4
    else:
        near(read, shown(channels))


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([0, 4]), st.data())
def test_the_data_window_is_placed_into_the_display_window(
    height: int, width: int, tile: int, draw: st.DataObject
) -> None:
    left, top = draw.draw(st.integers(-9, 9)), draw.draw(st.integers(-9, 9))
    x0, y0 = draw.draw(st.integers(-5, 5)), draw.draw(st.integers(-5, 5))
    channels = rgb(height, width)
    data = (left, top, left + width - 1, top + height - 1)
    read = decode(pack(channels, data=data, display=(x0, y0, x0 + 6, y0 + 4), tile=tile))
    wide = np.zeros((60, 60, 3), np.uint8)  # a plane around all of it, from -20 on
    wide[top + 20 : top + 20 + height, left + 20 : left + 20 + width] = shown(channels)
    near(read, wide[y0 + 20 : y0 + 25, x0 + 20 : x0 + 27])


def test_of_smaller_copies_the_whole_picture_is_read() -> None:
    channels = rgb(2, 2)
    header = make_header(tile=2, compression=OpenEXR.NO_COMPRESSION)
    header["tiles"].mode = OpenEXR.MIPMAP_LEVELS
    packed = bytearray(pack_parts(**{"": (channels, header)}))
    # The library leaves the copy of 1 x 1 pixels to us: its chunk, and its entry in the table.
    chunk = struct.pack("<5i3f", 0, 0, 1, 1, 12, 0.5, 0.5, 0.5)
    table = packed.index(b"tiledimage") + len(b"tiledimage") + 1
    struct.pack_into("<Q", packed, table + 8, len(packed))
    near(decode(bytes(packed + chunk)), shown(channels))


def test_integers_are_clipped_like_the_rest() -> None:
    plane = np.array([[0, 1, 2, 2**32 - 1]], np.uint32)
    assert decode(pack(dict.fromkeys("RGB", plane)))[0, :, 0].tolist() == [0, 255, 255, 255]


@pytest.mark.parametrize(
    ("channels", "chosen"),
    [
        ("A B G R Z", "R G B"),
        ("B G R beauty.B beauty.G beauty.R", "R G B"),
        ("albedo.B albedo.G albedo.R beauty.B beauty.G beauty.R", "beauty.R beauty.G beauty.B"),
        ("V.AO.B V.AO.G V.AO.R V.Combined.B V.Combined.G V.Combined.R",
         "V.Combined.R V.Combined.G V.Combined.B"),
        ("b.blue b.green b.red", "b.red b.green b.blue"),
        ("r g b", "r g b"),
        ("BY RY Y", "Y"),
        ("left.Y", "left.Y"),
        ("Y fill.B fill.G fill.R", "fill.R fill.G fill.B"),
        ("N.X N.Y N.Z", ""),
        ("motion.x motion.y", ""),
        ("R G", ""),
        ("A Z", ""),
    ],
)  # fmt: skip
def test_the_colours_are_found_by_name(channels: str, chosen: str) -> None:
    assert colors_of(tuple(channels.split())) == tuple(chosen.split())


def test_layers_alpha_and_luminance() -> None:
    channels = rgb(layer="beauty.")
    near(
        decode(pack({**channels, "beauty.A": channels["beauty.R"], "Z": channels["beauty.G"]})),
        shown(channels),
    )
    grey = rgb()["G"]
    near(decode(pack({"Y": grey})), shown({"R": grey, "G": grey, "B": grey}))


def test_luminance_with_thinned_colours_is_grey() -> None:
    planes = rgb()
    half = OpenEXR.Channel("RY", planes["R"], 2, 2)
    near(decode(pack({"Y": planes["G"], "RY": half})), shown(dict.fromkeys("RGB", planes["G"])))


def test_the_first_part_with_colours_is_taken() -> None:
    depth, first, second = rgb(), rgb(layer="rgba."), rgb(layer="second.")
    second = {name: 1 - plane for name, plane in second.items()}
    packed = pack_parts(depth=({"Z": depth["R"]}, {}), first=(first, {}), second=(second, {}))
    near(decode(packed), shown(first))


@pytest.mark.parametrize("tile", [0, 4])
def test_deep_pixels_are_laid_over_one_another(tile: int) -> None:
    counts = np.array([[2, 0, 1], [1, 3, 0]])
    depth = np.array([5, 2, 1, 1, 3, 1, 2.0])
    alpha = np.array([1, 0.5, 1, 0.5, 1, 0.25, 0.5])
    red = np.array([0.8, 0.1, 0.3, 0.2, 0.6, 0.1, 0.2])
    values = {"Z": depth, "A": alpha, "R": red, "G": red / 2, "B": red * 0}
    kind = OpenEXR.deeptile if tile else OpenEXR.deepscanline
    packed = pack(
        {name: deep(counts, one) for name, one in values.items()},
        type=kind, tile=tile, compression=OpenEXR.ZIPS_COMPRESSION,
    )  # fmt: skip
    wanted = np.array([[0.1 + 0.5 * 0.8, 0, 0.3], [0.2, 0.1 + 0.75 * 0.2 + 0.375 * 0.6, 0]])
    near(decode(packed), shown({"R": wanted, "G": wanted / 2, "B": wanted * 0}))


def test_what_is_in_a_file_counts_not_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a.png", rgb())
    near(read_image(tmp_path / "a.png"), shown(rgb()))


def test_beside_other_pictures_they_are_no_frames(tmp_path: Path) -> None:
    write(tmp_path / "b.EXR", rgb())
    assert [path.name for path in list_images(tmp_path)] == ["b.EXR"]
    write(tmp_path / "a.png", rgb())
    assert [path.name for path in list_images(tmp_path)] == ["a.png"]


def test_what_has_no_colours_is_refused() -> None:
    with pytest.raises(ImageError, match=r"a\.exr holds no colours, but Z; give"):
        decode(pack({"Z": rgb()["R"]}))
    thin = OpenEXR.Channel("Y", rgb()["R"], 2, 2)
    with pytest.raises(ImageError, match=r"holds no colours, but A, Y; give"):
        decode(pack({"A": rgb()["R"], "Y": thin}))


@pytest.mark.parametrize("tile", [0, 8])
def test_damaged_files_are_refused_in_one_sentence(
    tile: int, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = pack(rgb(64, 48), tile=tile)
    for keep in (4, 5, 40, 200, 400, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ImageError, match=r"a\.exr cannot be read \(it is cut off\); save"):
            decode(whole[:keep])
    assert capfd.readouterr() == ("", "")


def test_pixels_that_cannot_be_unpacked_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    whole = bytearray(pack(rgb(64, 48)))
    whole[-200:-100] = bytes(100)
    with pytest.raises(ImageError, match="its pixels cannot be unpacked"):
        decode(bytes(whole))
    assert capsys.readouterr().out == ""


def test_a_size_that_is_not_safe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(rgb(10, 20))
    assert decode_image(io.BytesIO(packed), max_pixels=200).shape == (10, 20, 3)
    with pytest.raises(ImageTooLargeError, match="20 x 10 pixels, more than the 199"):
        decode_image(io.BytesIO(packed), max_pixels=199)
    for window in ("data", "display"):
        claimed = pack(rgb(10, 20), **{window: (0, 0, 19, 9)}).replace(
            np.array([0, 0, 19, 9], "<i4").tobytes(),
            np.array([0, 0, 2**31 - 2, 9], "<i4").tobytes(),
        )
        with pytest.raises(ImageError):
            decode(claimed)
    many = {f"layer{number}.Z": rgb(10, 20)["R"] for number in range(30)}
    with pytest.raises(ImageTooLargeError, match="more channels than is safe"):
        decode_image(io.BytesIO(pack({**rgb(10, 20), **many})), max_pixels=400)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ImageTooLargeError, match="more pixels than is safe"):
        decode(packed)


@settings(max_examples=150)
@given(st.data())
def test_broken_bytes_give_an_image_or_an_image_error(data: st.DataObject) -> None:
    raw = bytearray(pack(rgb(6, 9), tile=data.draw(st.sampled_from([0, 4]))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    message = "a.exr"
    try:
        assert decode(bytes(raw)).shape[2] == 3
    except ImageError as err:
        message = str(err)
    assert "a.exr" in message


def test_without_openexr_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(rgb())
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    with pytest.raises(ImageError, match=r"reading \.exr needs OpenEXR: pip install 'gmaflow\[exr"):
        decode(packed)
