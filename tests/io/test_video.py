import struct
import sys
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import ImageError, ImageTooLargeError
from gmaflow.io import (
    VideoInfo,
    VideoWriter,
    check_video_size,
    probe_video,
    read_frames,
    write_image,
)
from tests.io.clips import write_lying_clip

pytest.importorskip("av")


def level(number: int) -> int:
    return 20 + 20 * number


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten frames of 32 x 48, each of one grey; the left half of each is black."""
    path = tmp_path_factory.mktemp("video") / "clip.mp4"
    with VideoWriter(path, fps=Fraction(30000, 1001)) as video:
        for number in range(10):
            frame = np.full((32, 48, 3), level(number), np.uint8)
            frame[:, :24] = 0
            video.write(frame)
    return path


def levels(frames: list[np.ndarray]) -> list[int]:
    return [round((int(frame[16, 40, 1]) - 20) / 20) for frame in frames]


def test_a_clip_is_known_before_it_is_read(clip: Path) -> None:
    fps = Fraction(30000, 1001)
    assert probe_video(clip) == VideoInfo(32, 48, fps, 10, 10 / fps, Fraction(1, 30000))


@pytest.mark.parametrize(
    ("start", "end", "every"), [(0, None, 1), (3, None, 1), (2, 9, 3), (0, 99, 4), (50, None, 1)]
)
def test_frames_are_counted_as_a_range_counts(
    clip: Path, start: int, end: int | None, every: int
) -> None:
    frames = list(read_frames(clip, start=start, end=end, every=every))
    assert levels(frames) == list(range(10))[start:end:every]


def test_a_folder_of_images_is_a_clip(tmp_path: Path) -> None:
    for number in range(11):
        write_image(tmp_path / f"f{number}.png", np.full((32, 48, 3), level(number), np.uint8))
    assert probe_video(tmp_path) == VideoInfo(
        32, 48, Fraction(25), 11, Fraction(11, 25), Fraction(1, 25)
    )
    assert levels(list(read_frames(tmp_path, start=1, end=11, every=3))) == [1, 4, 7, 10]


def test_frames_of_different_size_are_refused(tmp_path: Path) -> None:
    write_image(tmp_path / "1.png", np.zeros((4, 4, 3), np.uint8))
    write_image(tmp_path / "2.png", np.zeros((4, 5, 3), np.uint8))
    frames = read_frames(tmp_path)
    next(frames)
    with pytest.raises(ImageError, match="4 x 5 follows frames of 4 x 4"):
        next(frames)


@pytest.mark.parametrize(("quarter_turns", "matrix"), [(-1, (0, 1, -1, 0)), (2, (-1, 0, 0, -1))])
def test_a_turned_clip_comes_upright(
    clip: Path, tmp_path: Path, quarter_turns: int, matrix: tuple[int, ...]
) -> None:
    # Phones write the way up into the track's header: a, b, u, c, d, v in 16.16 fixed point.
    raw = bytearray(clip.read_bytes())
    place = raw.index(b"tkhd") + 44
    a, b, c, d = (value * 2**16 for value in matrix)
    raw[place : place + 24] = struct.pack(">6i", a, b, 0, c, d, 0)
    turned = tmp_path / "turned.mp4"
    turned.write_bytes(raw)
    plain, frame = next(read_frames(clip)), next(read_frames(turned))
    np.testing.assert_array_equal(frame, np.rot90(plain, quarter_turns))
    info = probe_video(turned)
    assert (info.height, info.width) == frame.shape[:2]


def test_a_note_in_an_old_encoding_does_not_hide_the_video(clip: Path, tmp_path: Path) -> None:
    raw = clip.read_bytes()
    assert b"VideoHandler" in raw
    (tmp_path / "a.mp4").write_bytes(raw.replace(b"VideoHandler", b"Videoger\xe4t\0\0"))
    assert probe_video(tmp_path / "a.mp4") == probe_video(clip)
    assert len(list(read_frames(tmp_path / "a.mp4"))) == 10


def test_a_range_without_frames_is_refused_at_once(clip: Path) -> None:
    for start, end, every in ((-1, None, 1), (5, 5, 1), (0, None, 0)):
        with pytest.raises(ImageError, match="are none"):
            read_frames(clip, start=start, end=end, every=every)


def test_what_is_no_video_is_refused(tmp_path: Path, clip: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video at all")
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "cut.mp4").write_bytes(clip.read_bytes()[:400])
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{clip}\n#EXT-X-ENDLIST\n"
    (tmp_path / "list.mp4").write_text(playlist)
    for name in ("text", "empty", "cut", "list", "none"):
        path = tmp_path / f"{name}.mp4"
        with pytest.raises(ImageError) as caught:
            probe_video(path)
        assert str(path) in str(caught.value)
        with pytest.raises(ImageError):
            list(read_frames(path))


def test_without_pyav_it_is_asked_for(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImageError, match="reading video needs PyAV: pip install av"):
        probe_video(clip)


def test_real_clips_are_read_in_constant_memory(material: Path) -> None:
    clips = sorted((material / "realflow/nogt/videos").glob("*.mp4"))
    assert clips
    for path in clips:
        info = probe_video(path)
        tracemalloc.start()
        count = sum(frame.shape == (info.height, info.width, 3) for frame in read_frames(path))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == info.num_frames
        assert peak < 12 * info.height * info.width * 3


def test_frames_with_more_pixels_than_allowed_are_refused(clip: Path, tmp_path: Path) -> None:
    check_video_size(clip, 32 * 48)
    with pytest.raises(ImageTooLargeError, match="48 x 32 pixels, more than the 1,535"):
        check_video_size(clip, 32 * 48 - 1)
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(ImageError, match="cannot be read as video"):
        check_video_size(tmp_path / "text.mp4", 1)


def test_frames_larger_than_the_file_says_are_not_decoded(tmp_path: Path) -> None:
    path = write_lying_clip(tmp_path / "clip.mkv", told=(40, 56), true=(400, 560))
    check_video_size(path, 40 * 56)
    with pytest.raises(ImageError, match="a frame of 400 x 560 follows"):
        list(read_frames(path))
    with pytest.raises(ImageError, match="cannot be read as video"):
        list(read_frames(path, max_pixels=40 * 56))
