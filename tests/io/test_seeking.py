"""Parts of videos, of all kinds of order in which frames are stored, are parts of the whole."""

from fractions import Fraction
from itertools import accumulate, cycle, islice
from pathlib import Path

import numpy as np
import pytest

from gmaflow.io import TimedFrame, VideoReader
from gmaflow.io.seeking import find_landing, packets_from
from gmaflow.io.video import open_video
from tests.io.clips import write_coded

COUNT = 30
UNEVEN = list(islice(accumulate(cycle([Fraction(n, 1000) for n in (11, 180, 40, 95)])), COUNT))
H264 = "bframes=3:b-adapt=0:b-pyramid=2:scenecut=0"
OPEN = {"g": "10", "x264-params": f"{H264}:open-gop=1"}
CLOSED = {"g": "10", "x264-params": H264}
H265 = {"x265-params": "keyint=10:bframes=4:open-gop=1:log-level=none"}
MPEG = {"g": "9", "bf": "2"}
SOUGHT = {
    "closed.mp4": ("libx264", CLOSED),
    "open.mp4": ("libx264", OPEN),
    "open.mkv": ("libx264", OPEN),
    "uneven.mp4": ("libx264", CLOSED),
    "intra.mov": ("libx264", {"g": "1"}),
    "leading.mp4": ("libx265", H265),
    "hidden.webm": ("libvpx", {"g": "10", "auto-alt-ref": "1", "lag-in-frames": "16"}),
    "mpeg4.mp4": ("mpeg4", MPEG),
    "broadcast.ts": ("libx264", CLOSED),
}
FROM_THE_START = {
    "refreshed.mp4": ("libx264", {"g": "10", "x264-params": "intra-refresh=1:bframes=0"}),
    "guessed.mpg": ("mpeg2video", MPEG),
    "guessed.avi": ("mpeg4", MPEG),
}
CLIPS = SOUGHT | FROM_THE_START | {"one-key.mp4": ("libx264", {"g": "600"})}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


def clip(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.exists():
        write_coded(path, *CLIPS[name], times=UNEVEN if name == "uneven.mp4" else None, count=COUNT)
    return path


def assert_same(found: TimedFrame, wanted: TimedFrame) -> None:
    assert found.time == wanted.time
    np.testing.assert_array_equal(found.image, wanted.image)


@pytest.mark.parametrize("name", CLIPS)
def test_what_is_read_from_any_moment_on_is_what_the_whole_has(folder: Path, name: str) -> None:
    path = clip(folder, name)
    whole = list(VideoReader(path))
    assert len(whole) == COUNT
    length = VideoReader(path).info.seconds
    for number, frame in enumerate(whole[1:], start=1):
        if length is not None and frame.time >= length:
            break  # what the file says of its length is a frame short
        part = list(VideoReader(path, start=frame.time))
        for found, wanted in zip(part, whole[number:], strict=True):
            assert_same(found, wanted)


@pytest.mark.parametrize("name", CLIPS)
def test_frames_that_are_passed_over_leave_a_gap_and_the_others_their_numbers(
    folder: Path, name: str
) -> None:
    path = clip(folder, name)
    for reader in (VideoReader(path), VideoReader(path, start=Fraction(1, 5), every=2)):
        whole = list(reader)
        passed = {0, 1, 2, 3, 6, 7, 99}
        # One by one, so that whoever counts them can be interrupted.
        for found, wanted in zip(reader.passing_over(passed), whole, strict=True):
            assert (found is None) == (wanted.number in passed)
            if found is not None:
                assert found.number == wanted.number
                assert_same(found, wanted)


@pytest.mark.parametrize("name", SOUGHT)
def test_little_more_than_what_is_wanted_is_decoded(folder: Path, name: str) -> None:
    path = clip(folder, name)
    late = list(VideoReader(path))[-2].time
    place = find_landing(path, late)
    assert place is not None
    with open_video(path) as (container, stream):
        assert sum(packet.size > 0 for packet in packets_from(container, stream, place)) < COUNT


@pytest.mark.parametrize("name", FROM_THE_START)
def test_where_no_place_is_certain_there_is_none(folder: Path, name: str) -> None:
    assert find_landing(clip(folder, name), Fraction(9, 10)) is None
