"""What the frames of a flow video look like."""

from fractions import Fraction

import numpy as np
import pytest

from gmaflow.cli.video_outputs import Show, draw_step
from gmaflow.inference import BidirectionalFlow, Flow, VideoStep

IMAGE = np.full((96, 128, 3), 120, np.uint8)


def step(x: float | None) -> VideoStep:
    """A grey frame whose pixels all go to the right; None: before a cut."""
    if x is None:
        return VideoStep(0, IMAGE, Fraction(0), Fraction(1), None)
    there, back = (np.zeros((96, 128, 2), np.float32) for _ in range(2))
    there[..., 0], back[..., 0] = x, -x
    inside, outside = np.zeros((96, 128), bool), np.zeros((96, 128), bool)
    inside[:10], outside[-10:] = True, True
    sure = np.ones((96, 128), np.float32)
    both = BidirectionalFlow(Flow(there), Flow(back), inside, outside, sure)
    return VideoStep(0, IMAGE, Fraction(0), Fraction(1), both.forward, both)


def test_colours_depend_on_the_scale_alone() -> None:
    full = draw_step(step(8), "flow", max_length=8.0)
    half = draw_step(step(4), "flow", max_length=8.0)
    assert full[0, 0].tolist() == [255, 0, 0]
    assert half[0, 0, 0] == 255
    assert 100 < half[0, 0, 1] < 160


def test_the_source_is_on_the_left() -> None:
    picture = draw_step(step(8), "side-by-side", max_length=8.0)
    assert picture.shape == (96, 256, 3)
    np.testing.assert_array_equal(picture[:, :128], IMAGE)
    np.testing.assert_array_equal(picture[:, 128:], draw_step(step(8), "flow", max_length=8.0))


def test_occlusion_has_two_colours() -> None:
    picture = draw_step(step(8), "occlusion", max_length=1.0).astype(int)
    assert picture[0, 0, 0] > picture[0, 0, 2] + 50
    assert picture[-1, 0, 2] > picture[-1, 0, 0] + 50
    np.testing.assert_array_equal(picture[50], IMAGE[50])


def test_before_a_cut_there_is_nothing_to_see_of_the_motion() -> None:
    assert not draw_step(step(None), "flow", max_length=8.0).any()
    assert not draw_step(step(None), "side-by-side", max_length=8.0)[:, 128:].any()
    np.testing.assert_array_equal(draw_step(step(None), "occlusion", max_length=8.0), IMAGE)
    arrows = draw_step(step(None), "arrows", max_length=8.0)
    assert len(np.unique(arrows)) == 1  # the frame, dimmed as those with arrows are
    assert len(np.unique(draw_step(step(8), "arrows", max_length=8.0))) > 1


@pytest.mark.parametrize("show", ["flow", "side-by-side", "arrows"])
@pytest.mark.parametrize("x", [8.0, None])
def test_the_legend_lies_in_the_lower_right_corner(show: Show, x: float | None) -> None:
    plain = draw_step(step(x), show, max_length=8.0)
    told = draw_step(step(x), show, max_length=8.0, legend=True)
    changed = np.argwhere((plain != told).any(axis=2))
    assert len(changed) > 100
    assert changed[:, 0].min() > 96 / 3
    assert changed[:, 1].min() > plain.shape[1] / 2
