from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gmaflow.inference import CUT_THRESHOLD, cut_score
from gmaflow.io import read_frames
from tests.io.clips import moving


def test_a_frame_is_like_itself_and_unlike_another() -> None:
    first, other = moving(1, seed=1)[0], moving(1, seed=2)[0]
    assert cut_score(first, first) == pytest.approx(0, abs=1e-5)
    assert cut_score(first, other) > CUT_THRESHOLD


@pytest.mark.parametrize("step", [1, 4])
def test_motion_is_no_cut(step: int) -> None:
    frames = moving(12)
    assert max(cut_score(*pair) for pair in pairwise(frames[::step])) < CUT_THRESHOLD


def test_a_change_of_light_is_no_cut() -> None:
    first, second = moving(2)
    for light in (second // 2, second // 2 + 127):
        assert cut_score(first, light) < CUT_THRESHOLD


def test_flat_frames_are_alike_and_unlike_pictures() -> None:
    black, grey = (np.full((48, 64, 3), level, np.uint8) for level in (0, 90))
    assert cut_score(black, black) < 0.01
    assert cut_score(black, grey) < 0.01
    assert cut_score(black, moving(1)[0]) > CUT_THRESHOLD


def test_real_shots_hold_together_and_their_joints_do_not(material: Path) -> None:
    clips = sorted((material / "realflow/nogt/videos").glob("*.mp4"))
    shots = [
        [
            np.asarray(Image.fromarray(frame).resize((160, 120)))
            for frame in read_frames(clip, every=8)
        ]
        for clip in clips
    ]
    for shot in shots:
        assert max(cut_score(*pair) for pair in pairwise(shot)) < CUT_THRESHOLD
    for before, after in pairwise([*shots, shots[0]]):
        assert cut_score(before[-1], after[0]) > CUT_THRESHOLD
