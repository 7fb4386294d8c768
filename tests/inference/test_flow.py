import re
from dataclasses import replace
from inspect import unwrap  # tests check types first
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gmaflow.errors import FlowError, FlowFileError
from gmaflow.inference import BidirectionalFlow, Flow, read_flow
from gmaflow.viz import add_legend, flow_to_image, largest_length


def make_flow() -> Flow:
    array = np.zeros((20, 30, 2), np.float32)
    array[:, :15] = (3, 4)
    return Flow(array)


def test_statistics_of_a_known_flow() -> None:
    statistics = make_flow().statistics()
    assert (statistics.height, statistics.width) == (20, 30)
    assert statistics.mean_length == 2.5
    assert statistics.max_length == statistics.p95_length == 5
    assert (statistics.mean_x, statistics.mean_y) == (1.5, 2)
    assert statistics.valid_share == 1


def test_notebooks_show_a_picture_and_shells_a_line() -> None:
    flow = make_flow()
    assert repr(flow) == "<Flow of 20x30: mean 2.50 px, longest 5.00 px>"
    shown = read_png(flow._repr_png_())
    np.testing.assert_array_equal(shown, flow.picture())


def test_occlusion_and_confidence_are_saved_with_the_flow(tmp_path: Path) -> None:
    hidden, gone = np.zeros((2, 20, 30), bool)
    hidden[3, 4] = gone[5, 6] = True
    confidence = (~hidden & ~gone).astype(np.float32)
    both = BidirectionalFlow(make_flow(), make_flow(), hidden, gone, confidence)
    both.save(tmp_path / "both.npz")
    np.testing.assert_array_equal(read_flow(tmp_path / "both.npz").array, both.forward.array)
    with np.load(tmp_path / "both.npz") as found:
        np.testing.assert_array_equal(found["occluded_in"], hidden)
        np.testing.assert_array_equal(found["occluded_out"], gone)
        np.testing.assert_array_equal(found["confidence"], both.confidence)
    with pytest.raises(FlowFileError, match="holds only flow; use"):
        both.save(tmp_path / "both.flo")
    assert not (tmp_path / "both.flo").exists()
    assert repr(both).startswith("<Flow both ways, 0.3% occluded; forward <Flow of 20x30")


def read_png(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(content)))


def test_statistics_ignore_invalid_pixels() -> None:
    array = make_flow().array
    valid = np.zeros((20, 30), bool)
    valid[:, :10] = True
    array[0, 0] = np.nan
    statistics = Flow(array, valid).statistics()
    assert statistics.mean_length == 5
    assert statistics.valid_share == pytest.approx(199 / 600)
    empty = Flow(array, np.zeros((20, 30), bool)).statistics()
    assert empty.max_length == empty.valid_share == 0


@pytest.mark.parametrize("suffix", [".flo", ".pfm", ".npy", ".npz", ".flo5", ".exr", ".kitti.png"])
def test_saved_flow_is_read_back(suffix: str, tmp_path: Path) -> None:
    flow = make_flow()
    flow.save(tmp_path / f"a{suffix}")
    again = read_flow(tmp_path / f"a{suffix}")
    assert np.array_equal(again.array, flow.array)
    assert again.valid is None


def test_a_png_is_a_picture_and_kittis_format_is_known_by_its_content(tmp_path: Path) -> None:
    flow = make_flow()
    flow.save(tmp_path / "a.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "a.png")), flow.picture())
    with pytest.raises(FlowFileError, match="a picture, not KITTI flow"):
        read_flow(tmp_path / "a.png")
    flow.save(tmp_path / "b.kitti.png")
    (tmp_path / "b.kitti.png").rename(tmp_path / "000000_10.png")
    assert np.array_equal(read_flow(tmp_path / "000000_10.png").array, flow.array)


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(FlowFileError, match=r"'.xyz' is not .* use one of .flo, .kitti.png, .pfm,"):
        make_flow().save(tmp_path / "a.xyz")
    assert not list(tmp_path.iterdir())


def test_only_openexr_stores_the_direction(tmp_path: Path) -> None:
    backward = replace(make_flow(), backward=True)
    for name, stores_direction in (("a.exr", True), ("a.flo", False)):
        backward.save(tmp_path / name)
        again = read_flow(tmp_path / name)
        assert np.array_equal(again.array, backward.array)
        assert again.backward is stores_direction


def test_validity_is_kept(tmp_path: Path) -> None:
    valid = np.ones((20, 30), bool)
    valid[3, 4] = False
    Flow(make_flow().array, valid).save(tmp_path / "a.flo")
    again = read_flow(tmp_path / "a.flo")
    assert again.valid is not None
    assert np.array_equal(again.valid, valid)


def test_the_legend_shows_the_scale_of_the_colours() -> None:
    array = np.full((200, 300, 2), 2, np.float32)
    array[0, 0] = 1e10  # Middlebury's mark for unknown, which is drawn black
    expected = add_legend(flow_to_image(array), largest_length(array))
    assert np.array_equal(Flow(array).picture(legend=True), expected)


def test_pictures_have_the_size_of_the_flow(tmp_path: Path) -> None:
    flow = Flow(np.full((200, 300, 2), 2, np.float32))
    assert flow.picture().shape == (200, 300, 3)
    assert (flow.picture(legend=True) != flow.picture()).any()
    flow.save_picture(tmp_path / "a.png", max_length=10.0)
    assert (tmp_path / "a.png").stat().st_size > 0


def test_warping_undoes_a_shift() -> None:
    random = np.random.default_rng(0)
    image1 = random.integers(0, 256, (20, 30, 3), np.uint8)
    image2 = np.roll(image1, (2, 3), axis=(0, 1))
    flow = Flow(np.tile(np.array([3, 2], np.float32), (20, 30, 1)))
    assert np.array_equal(flow.warp(image2)[:18, :27], image1[:18, :27])


def test_an_error_is_that_of_flow_of_the_same_size() -> None:
    flow = Flow(np.ones((4, 5, 2), np.float32))
    assert flow.mean_error(Flow(np.zeros((4, 5, 2), np.float32))) == pytest.approx(2**0.5)
    with pytest.raises(FlowError, match="the truth differ in size: 4x5 and 1x1"):
        flow.mean_error(Flow(np.zeros((1, 1, 2), np.float32)))


def test_a_truth_without_valid_pixels_is_refused() -> None:
    flow = Flow(np.ones((4, 5, 2), np.float32))
    with pytest.raises(FlowError, match="the truth has no valid pixels"):
        flow.mean_error(Flow(flow.array, np.zeros((4, 5), bool)))


def test_a_truth_of_the_other_direction_is_refused() -> None:
    flow = Flow(np.ones((4, 5, 2), np.float32))
    with pytest.raises(FlowError, match="opposite direction"):
        flow.mean_error(replace(flow, backward=True))


def test_a_flow_is_an_array() -> None:
    flow = Flow(np.ones((4, 5, 2), np.float32))
    assert flow.shape == (4, 5, 2)
    assert np.asarray(flow) is flow.array
    assert np.array(flow) is not flow.array
    assert np.asarray(flow, dtype=np.float64).dtype == np.float64


def test_paths_in_place_of_arrays_are_refused() -> None:
    flow = Flow(np.ones((4, 5, 2), np.float32))
    with pytest.raises(FlowError, match="the second frame is of type str; use an array"):
        unwrap(Flow.warp)(flow, "b.png")
    with pytest.raises(FlowError, match="the truth is of type str; use a Flow"):
        unwrap(Flow.mean_error)(flow, "truth.flo")


def test_arrays_that_are_not_flow_are_refused() -> None:
    for array, complaint in (
        (np.zeros((3, 3)), "shape (3, 3)"),
        ([[1, 2]], "of type list"),
        (np.zeros((2, 3, 3)), "(2, 3, 3)"),
    ):
        flow = object.__new__(Flow)
        vars(flow).update(array=array, valid=None)
        with pytest.raises(FlowError, match=re.escape(complaint)):
            unwrap(Flow.__post_init__)(flow)


def test_notebooks_show_both_directions() -> None:
    forward, nothing = make_flow(), np.zeros((20, 30), bool)
    hidden = nothing.copy()
    hidden[2:9, 3:7] = True
    both = BidirectionalFlow(
        forward, Flow(-forward.array), hidden, nothing, (~hidden).astype(np.float32)
    )
    shown = read_png(both._repr_png_())
    assert shown.shape[1] > 3 * 30
    assert (forward.picture(max_length=5.0)[0, 0] == shown).all(axis=2).any()
