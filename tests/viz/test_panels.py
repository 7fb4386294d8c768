import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import UInt8

from gmaflow.errors import FlowError
from gmaflow.viz import attention_panel, error_map, pair_panel, panel

IMAGE = np.full((64, 96, 3), 90, np.uint8)
GUTTER = 4  # for cells as small as these


def picture(height: int, width: int, level: int = 0) -> UInt8[np.ndarray, "h w 3"]:
    return np.full((height, width, 3), level, np.uint8)


@settings(max_examples=30)
@given(st.integers(1, 7), st.integers(1, 9), st.integers(1, 40), st.integers(1, 40))
def test_the_size_is_that_of_cells_and_gutters(n: int, columns: int, h: int, w: int) -> None:
    columns_used = min(n, columns)
    rows = -(-n // columns_used)
    whole = panel([picture(h, w)] * n, columns=columns)
    assert whole.shape == (
        rows * (h + GUTTER) + GUTTER,
        columns_used * (w + GUTTER) + GUTTER,
        3,
    )
    assert (whole == 0).all(axis=2).sum() == n * h * w


@pytest.mark.parametrize(("n", "columns"), [(1, 1), (4, 4), (5, 3), (9, 3), (10, 4)])
def test_up_to_four_stand_in_a_row_and_more_in_a_square(n: int, columns: int) -> None:
    assert panel([picture(6, 6)] * n).shape[1] == columns * 10 + 4


def test_pictures_go_row_by_row() -> None:
    whole = panel([picture(6, 6, level) for level in (10, 20, 30)], columns=2)
    assert [whole[6, 6, 0], whole[6, 16, 0], whole[16, 6, 0]] == [10, 20, 30]


def test_a_picture_of_the_cells_size_is_not_resampled() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    assert np.array_equal(panel([noise])[4:24, 4:34], noise)


def test_a_smaller_picture_fills_its_cell_and_keeps_its_shape() -> None:
    whole = panel([picture(40, 60), picture(10, 30)])
    second = whole[4:44, 68:128]
    assert (second[:10] == 255).all()
    assert (second[10:30] == 0).all()
    assert (second[30:] == 255).all()


def test_captions_add_a_line_to_each_row_and_stay_over_their_picture() -> None:
    words = "a caption far too long for the narrow cell that it was given"
    plain = panel([picture(50, 80, 255)] * 4, columns=2)
    whole = panel([picture(50, 80, 255)] * 4, [words] * 4, columns=2)
    line = (whole.shape[0] - plain.shape[0]) // 2
    assert whole.shape == (plain.shape[0] + 2 * line, plain.shape[1], 3)
    assert line > 11

    ink = whole.min(axis=2) < 200
    columns = np.flatnonzero(ink.any(axis=0))
    assert set(columns) <= {*range(4, 84), *range(88, 168)}
    rows = np.flatnonzero(ink.any(axis=1))
    assert set(rows) <= {*range(4, 4 + line), *range(58 + line, 58 + 2 * line)}


def test_captions_can_be_read() -> None:
    assert (panel([picture(50, 80, 255)], ["Flow"]) < 60).any()


@pytest.mark.parametrize("side", [100, 128, 160, 200, 300, 400])
@pytest.mark.parametrize("text", ["frame 2 warped back", "hidden, out of frame"])
def test_captions_keep_their_spaces(side: int, text: str) -> None:
    def gaps(text: str) -> list[int]:
        """Widths of the empty columns between letters, the widest first."""
        ink = (panel([picture(side, 4 * side, 255)], [text]) < 160).any(axis=(0, 2))
        return sorted(np.diff(np.flatnonzero(ink)) - 1, reverse=True)

    spaces = text.count(" ")
    assert gaps(text)[spaces - 1] >= 1.5 * max(gaps(text.replace(" ", ""))[0], 2)


def test_captions_without_room_are_left_out() -> None:
    assert panel([picture(1, 1)], ["Flow"]).shape[1] == 9


def test_an_empty_picture_leaves_its_cell_empty() -> None:
    whole = panel([picture(0, 0), picture(5, 5)])
    assert (whole[4:9, 4:9] == 255).all()
    assert panel([picture(0, 0)]).shape == (8, 8, 3)


def test_what_cannot_be_laid_out_is_refused() -> None:
    with pytest.raises(FlowError, match="no pictures"):
        panel([])
    with pytest.raises(FlowError, match="got 1 caption for 2 pictures"):
        panel([picture(2, 2)] * 2, ["one"])
    with pytest.raises(FlowError, match="0 columns"):
        panel([picture(2, 2)], columns=0)


def test_the_panel_shows_everything_that_is_given() -> None:
    generator = np.random.default_rng(0)
    one, two = generator.integers(0, 256, (2, 40, 60, 3), np.uint8)
    flow = generator.normal(size=(40, 60, 2)).astype(np.float32)
    hidden = generator.random((40, 60)) < 0.2
    confidence = generator.random((40, 60)).astype(np.float32)
    plain = pair_panel(one, two, flow)
    everything = pair_panel(
        one,
        two,
        flow,
        occlusion=(hidden, ~hidden),
        confidence=confidence,
        error=error_map(flow, flow * 2),
        max_length=5.0,
    )
    rows = [panel([one] * count, [""] * count, columns=2).shape for count in (4, 7)]
    assert [plain.shape, everything.shape] == rows


def test_a_pair_without_motion_has_a_panel_too() -> None:
    still = np.zeros((40, 60, 3), np.uint8)
    assert pair_panel(still, still, np.zeros((40, 60, 2), np.float32)).size


def test_the_panel_shows_frame_maps_and_flow_in_a_row() -> None:
    maps = [np.eye(8, 12, dtype=np.float32)] * 3
    queries = [(10.0, 10.0), (40.0, 30.0), (80.0, 50.0)]
    without = attention_panel(IMAGE, maps, queries)
    flow = np.zeros((64, 96, 2), np.float32)
    assert without.shape[1] == 4 * (96 + 4) + 4
    assert attention_panel(IMAGE, maps, queries, flow=flow).shape[1] == 5 * (96 + 4) + 4


def test_the_panel_draws_flow_to_the_scale_it_is_given() -> None:
    maps, queries = [np.ones((8, 12), np.float32)], [(10.0, 10.0)]
    flow = np.full((64, 96, 2), 3, np.float32)
    pale, full = (
        attention_panel(IMAGE, maps, queries, flow=flow, max_length=length)
        for length in (100.0, 4.5)
    )
    np.testing.assert_array_equal(pale[:, :200], full[:, :200])
    assert pale[40, -50].min() > full[40, -50].min() + 50


def test_maps_and_queries_go_in_pairs() -> None:
    panel = inspect.unwrap(attention_panel)
    with pytest.raises(FlowError, match="0 attention maps for 0 query points"):
        panel(IMAGE, [], [])
    with pytest.raises(FlowError, match="1 attention maps for 2 query points"):
        panel(IMAGE, [np.ones((8, 12), np.float32)], [(0.0, 0.0), (1.0, 1.0)])
