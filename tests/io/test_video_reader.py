import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import ImageError
from gmaflow.io import VideoReader, VideoWriter, write_image
from tests.io.clips import cut_short, moving, turn, write_clip

UNEVEN = [Fraction(n, 1000) for n in (0, 50, 200, 250, 700, 750, 800, 1500)]
TICK = Fraction(1, 15360)


def times(reader: VideoReader) -> list[float]:
    return [round(float(frame.time), 3) for frame in reader]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of 40 frames with sound."""
    folder = tmp_path_factory.mktemp("clips")
    return write_clip(folder / "clip.mp4", moving(40), sound="aac", quality="0")


def test_frames_know_their_times(clip: Path) -> None:
    reader = VideoReader(clip)
    assert times(reader) == [round(n / 20, 3) for n in range(40)]
    assert (reader.num_frames, reader.problem) == (40, None)


def test_uneven_times_are_kept(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", moving(8), times=UNEVEN)
    for found, wanted in zip(VideoReader(path), UNEVEN, strict=True):
        assert abs(found.time - wanted) <= TICK


@pytest.mark.parametrize(("start", "end", "every"), [("0.5", "1.5", 1), ("1.01", None, 3)])
def test_a_part_is_what_lies_in_it(clip: Path, start: str, end: str | None, every: int) -> None:
    part = VideoReader(
        clip, start=Fraction(start), end=None if end is None else Fraction(end), every=every
    )
    whole = [
        frame
        for frame in VideoReader(clip)
        if frame.time >= Fraction(start) and (end is None or frame.time < Fraction(end))
    ][::every]
    frames = list(part)
    assert part.num_frames == len(frames)
    for found, wanted in zip(frames, whole, strict=True):
        assert found.time == wanted.time
        np.testing.assert_array_equal(found.image, wanted.image)


def test_a_folder_is_shown_at_the_speed_given(tmp_path: Path) -> None:
    for number, image in enumerate(moving(12)):
        write_image(tmp_path / f"f{number}.png", image)
    reader = VideoReader(tmp_path, start=Fraction(1, 2), fps=Fraction(10))
    assert times(reader) == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]
    np.testing.assert_array_equal(next(iter(reader)).image, moving(12)[5])


def test_pictures_that_are_left_out_are_not_read(tmp_path: Path) -> None:
    for number, image in enumerate(moving(6)):
        write_image(tmp_path / f"f{number}.png", image)
    for number in (0, 1, 3, 5):
        (tmp_path / f"f{number}.png").write_bytes(b"broken")
    write_image(tmp_path / "f0.png", moving(6)[0])  # the first tells the size
    reader = VideoReader(tmp_path, every=2)
    found = list(reader.passing_over({0}))
    assert [None if frame is None else frame.number for frame in found] == [None, 1, 2]
    assert reader.problem is None
    assert list(reader.passing_over({0, 1, 2})) == [None] * 3


def test_gif_and_webm_are_read(tmp_path: Path) -> None:
    for name in ("a.gif", "a.webm"):
        with VideoWriter(tmp_path / name, fps=10) as video:
            for image in moving(5):
                video.write(image)
        reader = VideoReader(tmp_path / name)
        assert times(reader) == [0, 0.1, 0.2, 0.3, 0.4]
        last = list(reader)[-1].image.astype(int)
        assert np.abs(last - moving(5)[-1]).mean() < 16
        assert times(VideoReader(tmp_path / name, start=Fraction(1, 4))) == [0.3, 0.4]


def test_frames_are_scaled_and_turned(clip: Path, tmp_path: Path) -> None:
    turned = turn(clip, tmp_path / "turned.mp4", (0, 1, -1, 0))
    frame = next(iter(VideoReader(turned, scale=0.5)))
    assert frame.image.shape == (32, 24, 3)
    plain = next(iter(VideoReader(clip, scale=0.5)))
    difference = np.rot90(plain.image, -1).astype(int) - frame.image
    assert np.abs(difference).mean() < 2


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_a_video_cut_short_is_read_as_far_as_it_goes(tmp_path: Path, suffix: str) -> None:
    whole = write_clip(tmp_path / f"whole{suffix}", moving(60), quality="0")
    reader = VideoReader(cut_short(whole, tmp_path / f"part{suffix}"))
    assert 5 < len(list(reader)) < 60
    assert reader.problem is not None
    assert "is cut short" in reader.problem
    ended = VideoReader(whole, end=Fraction(1))
    assert len(list(ended)) == 20
    assert ended.problem is None


@pytest.mark.parametrize("suffix", [".mkv", ".mp4", ".ts"])
def test_a_video_that_begins_late_is_whole(tmp_path: Path, suffix: str) -> None:
    late = [5 + Fraction(n, 20) for n in range(30)]
    reader = VideoReader(write_clip(tmp_path / f"a{suffix}", moving(30), times=late))
    assert times(reader) == [round(n / 20, 3) for n in range(30)]
    assert reader.problem is None
    assert reader.info.seconds is not None
    assert float(reader.info.seconds) == pytest.approx(1.5, abs=0.05)


def test_damage_in_the_middle_is_told(clip: Path, tmp_path: Path) -> None:
    raw = bytearray(clip.read_bytes())
    middle = len(raw) // 2
    raw[middle : middle + 4000] = b"\xff" * 4000
    (tmp_path / "a.mp4").write_bytes(raw)
    reader = VideoReader(tmp_path / "a.mp4")
    assert 10 < len(list(reader)) <= 40
    assert reader.problem is not None
    assert "damaged" in reader.problem


def test_a_change_of_size_ends_it(tmp_path: Path) -> None:
    for number, side in enumerate((32, 32, 32, 40, 40)):
        write_image(tmp_path / f"{number}.png", np.zeros((32, side, 3), np.uint8))
    reader = VideoReader(tmp_path)
    assert len(list(reader)) == 3
    assert reader.problem is not None
    assert "32 x 40 follows frames of 32 x 32" in reader.problem


def test_what_has_nothing_is_refused(clip: Path, tmp_path: Path) -> None:
    for given, complaint in (
        ({"start": Fraction(2)}, "lasts 2.00 s and has nothing at 2 s"),
        ({"start": Fraction(-1)}, "has nothing at -1 s"),
        ({"start": Fraction(1), "end": Fraction(1)}, "ends at 1 s and starts at 1 s"),
        ({"every": 0}, "give at least 1"),
        ({"scale": 0.0}, "a scale of 0"),
        ({"scale": float("nan")}, "a scale of nan"),
    ):
        with pytest.raises(ImageError, match=complaint):
            VideoReader(clip, **given)
    between = VideoReader(clip, start=Fraction("1.96"))
    with pytest.raises(ImageError, match="no frames in the part"):
        list(between)
    write_image(tmp_path / "in" / "1.png", np.zeros((16, 16, 3), np.uint8))
    (tmp_path / "in" / "1.png").write_bytes(b"broken")
    with pytest.raises(ImageError):
        VideoReader(tmp_path / "in")


def test_glimpses_are_spread_over_the_part(clip: Path) -> None:
    reader = VideoReader(clip, start=Fraction(1, 2), end=Fraction(3, 2))
    glimpses = reader.glimpses(4)
    assert [next(iter(glimpse)).time for glimpse in glimpses] == [
        Fraction(n, 20) for n in (10, 15, 20, 25)
    ]


def test_memory_does_not_grow_with_the_video(tmp_path: Path) -> None:
    peaks = []
    for count in (10, 60):
        path = write_clip(tmp_path / f"{count}.mp4", moving(count))
        tracemalloc.start()
        assert sum(1 for _ in VideoReader(path)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 3 * 48 * 64 * 3
