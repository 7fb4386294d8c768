"""Sizes that are worked on, and damaged clips."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gmaflow.errors import ImageError
from gmaflow.serving.jobs import Size
from gmaflow.serving.limits import Limits
from gmaflow.serving.results import ResultFolder
from gmaflow.serving.uploads import Deadline, read_video, working_size
from tests.io.clips import cut_short, write_clip
from tests.io.frames import moving

sides = st.integers(16, 8000)


@given(sides, sides)
def test_the_working_size_is_within_the_limit_and_of_the_same_shape(
    width: int, height: int
) -> None:
    limits = Limits(work_pixels=450_000)
    scale = (limits.work_pixels / (width * height)) ** 0.5
    assume(scale >= 1 or scale * min(width, height) >= 16)
    size = working_size(Size(width, height), limits)
    if width * height <= limits.work_pixels:
        assert size == Size(width, height)
        return
    assert min(size.width, size.height) >= 16
    assert size.width * size.height <= limits.work_pixels
    assert abs(size.width / size.height - width / height) <= width / height / 8


def test_a_strip_is_not_worked_on_beyond_the_limit() -> None:
    with pytest.raises(ImageError, match="scaled down to 230089 x 1 too narrow"):
        working_size(Size(2_000_000, 17), Limits(work_pixels=450_000))


def test_of_a_damaged_clip_the_readable_frames_are_used(tmp_path: Path) -> None:
    whole = write_clip(tmp_path / "whole.mkv", moving(40))
    part = cut_short(whole, tmp_path / "clip")
    footage = read_video(part, ResultFolder(tmp_path / "frames"), Limits(), Deadline(60.0))
    assert 10 < footage.frames < 40
    (note,) = footage.notes
    assert note.startswith("the clip is truncated: it has ")
