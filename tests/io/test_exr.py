import io
import struct
import sys
import threading
from pathlib import Path
from tempfile import SpooledTemporaryFile

import numpy as np
import OpenEXR
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gmaflow.errors import FlowFileError, ImageError, ImageTooLargeError
from gmaflow.io import decode_image, list_images, read_flow_arrays, read_image, write_flow
from gmaflow.io.exr import (
    colors_of,
    count_values,
    flatten,
    import_openexr,
    in_display_window,
    read_planes,
    to_display,
)
from gmaflow.io.exr_header import DamagedError, read_parts
from tests.io import bombs
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
from tests.io.flows import assert_same, ramp


def test_the_part_that_was_asked_for_is_read() -> None:
    file = io.BytesIO(pack_parts(a=({"Z": rgb()["R"]}, {}), b=(rgb(), {})))
    first, second = read_parts(file)
    assert read_planes(OpenEXR, file, first).keys() == {"Z"}
    found = read_planes(OpenEXR, file, second)
    assert found.keys() == set("RGB")
    for name, plane in rgb().items():
        np.testing.assert_array_equal(found[name], plane)


def test_the_complaints_of_the_library_are_kept_from_stdout_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Slow(io.BytesIO):
        """Lets another thread print while it is read."""

        def read(self, length: int | None = -1) -> bytes:
            other = threading.Thread(target=print, args=("from elsewhere",))
            other.start()
            other.join()
            return super().read(length)

    raw = bytearray(pack(rgb(64, 48)))
    raw[-200:-100] = bytes(100)
    [part] = read_parts(io.BytesIO(raw))
    out = sys.stdout
    with pytest.raises(DamagedError, match="cannot be unpacked"):
        read_planes(OpenEXR, Slow(raw), part)
    assert sys.stdout is out
    assert set(capsys.readouterr().out.splitlines()) == {"from elsewhere"}


def test_deep_values_weigh_more() -> None:
    [flat] = read_parts(io.BytesIO(pack(rgb())))
    [thick] = read_parts(
        io.BytesIO(
            pack(
                {"Z": deep(np.ones((20, 30), int), np.zeros(600))},
                type=OpenEXR.deepscanline,
                compression=OpenEXR.ZIPS_COMPRESSION,
            )
        )
    )
    assert count_values([flat, flat]) == 2 * 3 * 600
    assert count_values([thick]) > count_values([flat])


def test_a_plane_within_the_display_window_is_given_as_it_is() -> None:
    [part] = read_parts(io.BytesIO(pack(rgb())))
    plane = rgb()["R"]
    assert in_display_window(part, plane) is plane


def test_windows_that_do_not_meet_leave_nothing() -> None:
    [part] = read_parts(io.BytesIO(pack(rgb(2, 3), data=(10, 10, 12, 11), display=(0, 0, 3, 4))))
    assert in_display_window(part, np.ones((2, 3), bool)).tolist() == [[False] * 4] * 5


@pytest.mark.parametrize("error", [ImageError, FlowFileError])
def test_the_package_is_asked_for_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, error: type[ImageError] | type[FlowFileError]
) -> None:
    assert import_openexr("reading", error) is OpenEXR
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    with pytest.raises(error, match=r"^reading \.exr needs OpenEXR: pip install 'gmaflow\[exr\]'$"):
        import_openexr("reading", error)


RIGHT, UP = np.array(ramp().array[..., 0], order="C"), np.array(-ramp().array[..., 1], order="C")


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_the_channels_are_nukes_and_v_points_up(tmp_path: Path, way: str) -> None:
    down_and_right = np.full((2, 4, 2), (3, 5), np.float32)
    known = np.array([[True] * 4, [False] * 4])
    write_flow(tmp_path / "a.exr", down_and_right, known, backward=way == "backward")
    file = OpenEXR.File(str(tmp_path / "a.exr"), separate_channels=True)
    planes = {name: channel.pixels for name, channel in file.channels().items()}
    assert {name: plane.dtype for name, plane in planes.items()} == dict.fromkeys(
        (f"{way}.u", f"{way}.v", "valid.a"), np.float32
    )
    assert planes[f"{way}.u"].tolist() == [[3] * 4, [0] * 4]
    assert planes[f"{way}.v"].tolist() == [[-5] * 4, [0] * 4]
    assert planes["valid.a"].tolist() == [[1] * 4, [0] * 4]
    again = read_flow_arrays(tmp_path / "a.exr")
    assert again.backward == (way == "backward")
    assert again.array[0, 0].tolist() == [3, 5]


@given(st.integers(0, 2**32 - 1))
def test_every_bit_comes_back(folder: Path, seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2**32, (4, 5, 2), np.uint32)
    array = np.where((bits >> 23) & 0xFF == 0xFF, 0, bits).astype(np.uint32).view(np.float32)
    write_flow(folder / "bits.exr", array)
    got = read_flow_arrays(folder / "bits.exr")
    assert got.valid.all()
    np.testing.assert_array_equal(got.array.view(np.uint32), array.view(np.uint32))


def test_arrays_may_lie_in_memory_as_they_like(tmp_path: Path) -> None:
    array, valid, _ = ramp()
    for name, turned in {"a.exr": np.asfortranarray(array), "b.exr": array[::-1][::-1]}.items():
        write_flow(tmp_path / name, turned, np.asfortranarray(valid))
        assert_same(tmp_path, read_flow_arrays(tmp_path / name), ramp())


@pytest.mark.parametrize(
    "names",
    [
        "forward.u forward.v",
        "motion.x motion.y",
        "motion.X motion.Y",
        "motion.u motion.v",
        "flow.x flow.y",
        "u v",
        "x y",
        "R G",
        "backward.u backward.v",
        "Backward.U Backward.V",
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_names_in_common_use_are_read_with_v_up(tmp_path: Path, names: str, dtype: type) -> None:
    right, up = names.split()
    write(tmp_path / "a.exr", {right: RIGHT.astype(dtype), up: UP.astype(dtype)})
    got = read_flow_arrays(tmp_path / "a.exr")
    assert got.valid.all()
    assert got.backward == names.lower().startswith("backward")
    np.testing.assert_array_equal(got.array, ramp().array)


def test_forward_comes_before_backward_and_colours(tmp_path: Path) -> None:
    other = rgb(5, 7)
    both = {"backward.u": other["R"], "backward.v": other["R"], **other}
    write(tmp_path / "a.exr", {"forward.u": RIGHT, "forward.v": UP, **both})
    np.testing.assert_array_equal(read_flow_arrays(tmp_path / "a.exr").array, ramp().array)
    assert not read_flow_arrays(tmp_path / "a.exr").backward


def test_red_and_green_are_flow_where_blue_is_empty(tmp_path: Path) -> None:
    blue = np.zeros_like(RIGHT)
    write(tmp_path / "a.exr", {"R": RIGHT, "G": UP, "B": blue})
    np.testing.assert_array_equal(read_flow_arrays(tmp_path / "a.exr").array, ramp().array)
    write(tmp_path / "a.exr", {"R": RIGHT, "G": UP, "B": blue + 0.5})
    with pytest.raises(FlowFileError, match=r"a\.exr: this is a picture"):
        read_flow_arrays(tmp_path / "a.exr")


def test_a_later_part_may_hold_the_flow(tmp_path: Path) -> None:
    flow = {"forward.u": RIGHT, "forward.v": UP}
    (tmp_path / "a.exr").write_bytes(pack_parts(depth=({"Z": RIGHT}, {}), motion=(flow, {})))
    np.testing.assert_array_equal(read_flow_arrays(tmp_path / "a.exr").array, ramp().array)


def test_nan_and_missing_pixels_are_unknown(tmp_path: Path) -> None:
    right, known = RIGHT.copy(), np.ones_like(RIGHT)
    right[0, 0] = np.nan
    known[2, 1:4] = 0, 0.5, 0.51
    write(
        tmp_path / "a.exr",
        {"forward.u": right, "forward.v": UP, "valid.a": known},
        data=(2, 1, 8, 5),
        display=(0, 0, 7, 9),
    )
    wanted, valid = np.zeros((10, 8, 2), np.float32), np.zeros((10, 8), bool)
    wanted[1:6, 2:8], valid[1:6, 2:8] = ramp().array[:, :6], True
    for row, column in ((1, 2), (3, 3), (3, 4)):
        wanted[row, column], valid[row, column] = 0, False
    assert_same(tmp_path, read_flow_arrays(tmp_path / "a.exr"), type(ramp())(wanted, valid))


def test_a_file_that_is_not_flow_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.exr"
    write(path, {"Z": RIGHT, "A": UP})
    with pytest.raises(
        FlowFileError, match=r"holds no flow, only A, Z; its channels must be called"
    ):
        read_flow_arrays(path)
    thin = OpenEXR.Channel("forward.u", np.zeros((4, 6), np.float32), 2, 2)
    write(path, {"forward.u": thin, "forward.v": np.zeros((4, 6), np.float32)})
    with pytest.raises(FlowFileError, match="holds no flow"):
        read_flow_arrays(path)
    pixels = deep(np.ones((2, 2), int), np.zeros(4))
    write(
        path,
        {"forward.u": pixels, "forward.v": pixels},
        type=OpenEXR.deepscanline,
        compression=OpenEXR.ZIPS_COMPRESSION,
    )
    with pytest.raises(FlowFileError, match="holds no flow"):
        read_flow_arrays(path)


def test_more_channels_than_are_safe_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.exr", {"forward.u": RIGHT, "forward.v": UP, "Z": UP})
    monkeypatch.setattr("gmaflow.io.exr.MOST_VALUES", 3 * RIGHT.size)
    assert read_flow_arrays(tmp_path / "a.exr").valid.all()
    monkeypatch.setattr("gmaflow.io.exr.MOST_VALUES", 3 * RIGHT.size - 1)
    with pytest.raises(FlowFileError, match="more channels than is safe"):
        read_flow_arrays(tmp_path / "a.exr")


def test_claims_of_more_than_is_there_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.exr"
    write(path, {"forward.u": RIGHT, "forward.v": UP}, display=(0, 0, 999, 999))
    with pytest.raises(FlowFileError, match="only 35 of its 1000 x 1000 pixels are stored"):
        read_flow_arrays(path)
    write(path, {"forward.u": RIGHT, "forward.v": UP}, display=(0, 0, 2**20, 2**20))
    with pytest.raises(FlowFileError, match="its header gives a size of 1048577 x 1048577"):
        read_flow_arrays(path)
    write(path, {"forward.u": RIGHT, "forward.v": UP})
    raw = path.read_bytes().replace(
        np.array([0, 0, 6, 4], "<i4").tobytes(), np.array([0, 0, 2**20, 4], "<i4").tobytes()
    )
    path.write_bytes(raw)
    with pytest.raises(FlowFileError, match="compressed bytes can hold"):
        read_flow_arrays(path)


def test_without_openexr_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flow(tmp_path / "a.exr", *ramp())
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    with pytest.raises(FlowFileError, match=r"reading \.exr needs OpenEXR: pip install 'gmaflow\["):
        read_flow_arrays(tmp_path / "a.exr")
    with pytest.raises(FlowFileError, match=r"writing \.exr needs OpenEXR"):
        write_flow(tmp_path / "b.exr", *ramp())
    assert [path.name for path in tmp_path.iterdir()] == ["a.exr"]


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


def test_the_content_of_a_file_counts_not_its_name(tmp_path: Path) -> None:
    write(tmp_path / "a.png", rgb())
    near(read_image(tmp_path / "a.png"), shown(rgb()))


def test_next_to_other_pictures_they_are_not_frames(tmp_path: Path) -> None:
    write(tmp_path / "b.EXR", rgb())
    assert [path.name for path in list_images(tmp_path)] == ["b.EXR"]
    write(tmp_path / "a.png", rgb())
    assert [path.name for path in list_images(tmp_path)] == ["a.png"]


def test_what_has_no_colours_is_refused() -> None:
    with pytest.raises(ImageError, match=r"a\.exr holds no colours, only Z; give"):
        decode(pack({"Z": rgb()["R"]}))
    thin = OpenEXR.Channel("Y", rgb()["R"], 2, 2)
    with pytest.raises(ImageError, match=r"holds no colours, only A, Y; give"):
        decode(pack({"A": rgb()["R"], "Y": thin}))


@pytest.mark.parametrize("tile", [0, 8])
def test_damaged_files_are_refused_in_one_sentence(
    tile: int, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = pack(rgb(64, 48), tile=tile)
    for keep in (4, 5, 40, 200, 400, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ImageError, match=r"a\.exr cannot be read \(it is truncated\); save"):
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


def test_without_openexr_it_is_asked_for_exr_images(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(rgb())
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    with pytest.raises(ImageError, match=r"reading \.exr needs OpenEXR: pip install 'gmaflow\[exr"):
        decode(packed)


def over(samples: list[tuple[float, float, float]]) -> float:
    """Depth, colour and alpha of one pixel, laid over one another from the back."""
    seen = 0.0
    for _, color, alpha in sorted(samples, key=lambda sample: -sample[0]):
        seen = color + (1 - alpha) * seen
    return seen


@given(st.integers(0, 2**32 - 1), st.sampled_from(["", "beauty."]))
def test_near_samples_cover_far_samples(seed: int, layer: str) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, (3, 4))
    depth, color, alpha = rng.permutation(60)[: counts.sum()], *rng.random((2, counts.sum()))
    values = {"Z": depth, f"{layer}Y": color, f"{layer}A": alpha}
    got = flatten({name: deep(counts, one) for name, one in values.items()}, (f"{layer}Y",))
    ends = np.cumsum(counts)
    wanted = [
        over(list(zip(*(one[end - count : end] for one in (depth, color, alpha)), strict=True)))
        for count, end in zip(counts.flat, ends, strict=True)
    ]
    np.testing.assert_allclose(got[f"{layer}Y"].ravel(), wanted, atol=1e-5)


def test_without_alpha_the_nearest_hides_the_others() -> None:
    counts = np.array([[3, 0]])
    planes = {"Z": deep(counts, np.array([3, 1, 2])), "Y": deep(counts, np.array([0.3, 0.1, 0.2]))}
    np.testing.assert_allclose(flatten(planes, ("Y",))["Y"], [[0.1, 0]], rtol=1e-6)
    del planes["Z"]
    np.testing.assert_allclose(flatten(planes, ("Y",))["Y"], [[0.3, 0]], rtol=1e-6)


def test_a_part_without_any_value_is_black() -> None:
    empty = deep(np.zeros((2, 3), int), np.zeros(0))
    assert not flatten({"Y": empty, "Z": empty, "A": empty}, ("Y",))["Y"].any()


def test_many_channels_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.exr"
    bombs.write_exr_of_many_channels(path, 4000, 15)
    statement = "from gmaflow.io import decode_image; decode_image(path.open('rb'){})"
    for limit in ("", ", max_pixels=34_000_000"):
        answer = bombs.read_in_a_process(path, statement.format(limit))
        assert "has more channels than is safe to decode" in answer
