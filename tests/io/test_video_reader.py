"""Parts of videos, of all kinds of order in which frames are stored, are parts of the whole."""

import sys
import tracemalloc
from fractions import Fraction
from itertools import accumulate, cycle, islice
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import ImageError, ImageTooLargeError
from gmaflow.io import (
    TimedFrame,
    VideoInfo,
    VideoReader,
    VideoWriter,
    check_video_size,
    probe_video,
    video_reader,
    write_image,
)
from gmaflow.io.video_reader import count_before, find_landing, open_video, packets_from
from tests.io import bombs
from tests.io.clips import (
    cut_short,
    images,
    turn,
    write_clip,
    write_coded,
    write_mislabelled_clip,
)
from tests.io.frames import moving

av = pytest.importorskip("av")

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
def test_a_part_contains_only_its_frames(
    clip: Path, start: str, end: str | None, every: int
) -> None:
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


@pytest.mark.parametrize(("rate", "read"), [(999, 999), (1000, 25)])
def test_ticks_of_a_clock_are_no_frame_rate(tmp_path: Path, rate: int, read: int) -> None:
    with av.open(tmp_path / "a.avi", "w") as container:
        stream = container.add_stream("mjpeg", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 48, 64, "yuvj420p"
        for image in moving(3):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    assert probe_video(tmp_path / "a.avi").fps == read


def test_a_folder_is_shown_at_the_speed_given(tmp_path: Path) -> None:
    for number, image in enumerate(moving(12)):
        write_image(tmp_path / f"f{number}.png", image)
    for start in ("0.41", "0.5"):
        reader = VideoReader(tmp_path, start=Fraction(start), fps=Fraction(10))
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
    assert (frame.image.shape, frame.scale) == ((32, 24, 3), 0.5)
    plain = next(iter(VideoReader(clip, scale=0.5)))
    difference = np.rot90(plain.image, -1).astype(int) - frame.image
    assert np.abs(difference).mean() < 2


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_a_video_cut_short_is_read_as_far_as_it_goes(tmp_path: Path, suffix: str) -> None:
    whole = write_clip(tmp_path / f"whole{suffix}", moving(60), quality="0")
    reader = VideoReader(cut_short(whole, tmp_path / f"part{suffix}"))
    assert 5 < len(list(reader)) < 60
    assert reader.problem is not None
    assert "is truncated" in reader.problem
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


def test_damage_in_the_middle_is_reported(clip: Path, tmp_path: Path) -> None:
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
    assert "frame 3 is 32x40, those before it 32x32" in reader.problem


def test_what_has_nothing_is_refused(clip: Path, tmp_path: Path) -> None:
    for given, complaint in (
        ({"start": Fraction(2)}, "lasts 2.00 s and has nothing at 2 s"),
        ({"start": Fraction(-1)}, "has nothing at -1 s"),
        ({"start": Fraction(1), "end": Fraction(1)}, "is not after the start"),
        ({"every": 0}, "give at least 1"),
        ({"scale": 0.0}, "a scale of 0"),
        ({"scale": float("nan")}, "a scale of nan"),
    ):
        with pytest.raises(ImageError, match=complaint):
            VideoReader(clip, **given)
    between = VideoReader(clip, start=Fraction("1.96"))
    with pytest.raises(ImageError, match="no frames in the part to read"):
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


def level(number: int) -> int:
    return 20 + 20 * number


@pytest.fixture(scope="module")
def short_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten frames of 32 x 48, each of one grey; the left half of each is black."""
    path = tmp_path_factory.mktemp("video") / "short_clip.mp4"
    with VideoWriter(path, fps=Fraction(30000, 1001)) as video:
        for number in range(10):
            frame = np.full((32, 48, 3), level(number), np.uint8)
            frame[:, :24] = 0
            video.write(frame)
    return path


def levels(frames: list[np.ndarray]) -> list[int]:
    return [round((int(frame[16, 40, 1]) - 20) / 20) for frame in frames]


def test_a_clip_is_known_before_it_is_read(short_clip: Path) -> None:
    fps = Fraction(30000, 1001)
    assert probe_video(short_clip) == VideoInfo(32, 48, fps, 10, 10 / fps, Fraction(1, 30000))


def test_all_frames_are_read_in_order(short_clip: Path) -> None:
    assert levels(images(short_clip)) == list(range(10))


def test_a_folder_of_images_is_a_clip(tmp_path: Path) -> None:
    for number in range(11):
        write_image(tmp_path / f"f{number}.png", np.full((32, 48, 3), level(number), np.uint8))
    assert probe_video(tmp_path) == VideoInfo(
        32, 48, Fraction(25), 11, Fraction(11, 25), Fraction(1, 25)
    )


@pytest.mark.parametrize(("quarter_turns", "matrix"), [(-1, (0, 1, -1, 0)), (2, (-1, 0, 0, -1))])
def test_a_turned_clip_comes_upright(
    tmp_path: Path, quarter_turns: int, matrix: tuple[int, int, int, int]
) -> None:
    straight = tmp_path / "straight.mp4"
    with VideoWriter(straight, pixel_aspect=Fraction(2)) as video:
        for image in moving(2):
            video.write(image)
    turned = turn(straight, tmp_path / "turned.mp4", matrix)
    plain, frame = images(straight)[0], images(turned)[0]
    np.testing.assert_array_equal(frame, np.rot90(plain, quarter_turns))
    info = probe_video(turned)
    assert (info.height, info.width) == frame.shape[:2]
    assert info.pixel_aspect == (Fraction(1, 2) if quarter_turns % 2 else 2)


def test_a_note_in_an_old_encoding_does_not_hide_the_video(
    short_clip: Path, tmp_path: Path
) -> None:
    raw = short_clip.read_bytes()
    assert b"VideoHandler" in raw
    (tmp_path / "a.mp4").write_bytes(raw.replace(b"VideoHandler", b"Videoger\xe4t\0\0"))
    assert probe_video(tmp_path / "a.mp4") == probe_video(short_clip)
    assert len(images(tmp_path / "a.mp4")) == 10


def test_a_file_that_is_not_a_video_is_refused(tmp_path: Path, short_clip: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video at all")
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "cut.mp4").write_bytes(short_clip.read_bytes()[:400])
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{short_clip}\n#EXT-X-ENDLIST\n"
    (tmp_path / "list.mp4").write_text(playlist)
    for name in ("text", "empty", "cut", "list", "none"):
        path = tmp_path / f"{name}.mp4"
        with pytest.raises(ImageError) as caught:
            probe_video(path)
        assert str(path) in str(caught.value)
        with pytest.raises(ImageError):
            images(path)


@pytest.mark.parametrize("suffix", [".png", ".webp", ".jpg"])
def test_an_image_is_not_a_video(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    write_image(path, np.zeros((32, 48, 3), np.uint8))
    with pytest.raises(ImageError, match=f"a{suffix} is an image, not a video; give a video"):
        probe_video(path)


def test_without_pyav_it_is_asked_for(short_clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImageError, match="reading video needs PyAV: pip install av"):
        probe_video(short_clip)


def test_real_clips_are_read_in_constant_memory(material: Path) -> None:
    clips = sorted((material / "realflow/nogt/videos").glob("*.mp4"))
    assert clips
    for path in clips:
        info = probe_video(path)
        tracemalloc.start()
        count = sum(
            frame.image.shape == (info.height, info.width, 3) for frame in VideoReader(path)
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == info.num_frames
        assert peak < 12 * info.height * info.width * 3


def test_frames_with_more_pixels_than_allowed_are_refused(short_clip: Path, tmp_path: Path) -> None:
    check_video_size(short_clip, 32 * 48)
    with pytest.raises(ImageTooLargeError, match="48 x 32 pixels, more than the 1,535"):
        check_video_size(short_clip, 32 * 48 - 1)
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(ImageError, match="cannot be read as video"):
        check_video_size(tmp_path / "text.mp4", 1)


def test_frames_larger_than_the_header_are_not_decoded(tmp_path: Path) -> None:
    path = write_mislabelled_clip(tmp_path / "short_clip.mkv", declared=(40, 56), actual=(400, 560))
    check_video_size(path, 40 * 56)
    reader = VideoReader(path)
    assert [frame.image.shape for frame in reader] == [(40, 56, 3)]
    assert reader.problem is not None
    assert "frame 1 is 400x560" in reader.problem
    with pytest.raises(ImageError, match="cannot be read as video"):
        list(VideoReader(path, max_pixels=40 * 56))


def test_large_frames_need_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_mislabelled_clip(tmp_path / "bomb.mkv", declared=(40, 56), actual=(400, 560))
    monkeypatch.setattr(video_reader, "ALWAYS_DECODED", 40 * 56)
    pixels_per_byte = 400 * 560 / path.stat().st_size
    for factor, decoded in ((2, True), (0.5, False)):
        monkeypatch.setattr(video_reader, "SAFE_PIXELS_PER_BYTE", factor * pixels_per_byte)
        reader = VideoReader(path)
        assert [frame.image.shape for frame in reader] == [(40, 56, 3)]
        assert ("frame 1 is 400x560" in str(reader.problem)) == decoded


def test_reading_can_be_stopped_before_each_packet(short_clip: Path) -> None:
    calls = iter(range(20))

    def watch() -> None:
        if next(calls) == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        list(VideoReader(short_clip, watch=watch))
    assert next(calls) == 4


COUNT = 30
TIMES = list(islice(accumulate(cycle([Fraction(n, 1000) for n in (11, 180, 40, 95)])), COUNT))
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


def coded_clip(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.exists():
        write_coded(path, *CLIPS[name], times=TIMES if name == "uneven.mp4" else None, count=COUNT)
    return path


def assert_same(found: TimedFrame, wanted: TimedFrame) -> None:
    assert found.time == wanted.time
    np.testing.assert_array_equal(found.image, wanted.image)


@pytest.mark.parametrize("name", CLIPS)
def test_what_is_read_from_any_moment_on_is_what_the_whole_has(folder: Path, name: str) -> None:
    path = coded_clip(folder, name)
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
    path = coded_clip(folder, name)
    for reader in (VideoReader(path), VideoReader(path, start=Fraction(1, 5), every=2)):
        whole = list(reader)
        passed = {0, 1, 2, 3, 6, 7, 99}
        # One by one, so that a caller that counts them can be interrupted.
        for found, wanted in zip(reader.passing_over(passed), whole, strict=True):
            assert (found is None) == (wanted.number in passed)
            if found is not None:
                assert found.number == wanted.number
                assert_same(found, wanted)


@pytest.mark.parametrize("name", CLIPS)
def test_frames_are_counted_as_they_are_decoded_or_not_at_all(folder: Path, name: str) -> None:
    path = coded_clip(folder, name)
    certain = not name.endswith((".ts", ".mpg", ".avi")) and name not in (
        "hidden.webm",
        "mpeg4.mp4",
    )
    for number, frame in enumerate(VideoReader(path)):
        for late, count in ((Fraction(0), number), (Fraction(1, 1000), number + 1)):
            assert count_before(path, frame.time + late) == (count if certain else None)


@pytest.mark.parametrize("name", SOUGHT)
def test_little_more_than_what_is_wanted_is_decoded(folder: Path, name: str) -> None:
    path = coded_clip(folder, name)
    late = list(VideoReader(path))[-2].time
    place = find_landing(path, late)
    assert place is not None
    with open_video(path) as (container, stream):
        assert sum(packet.size > 0 for packet in packets_from(container, stream, place)) < COUNT


@pytest.mark.parametrize("name", FROM_THE_START)
def test_where_no_place_is_certain_there_is_none(folder: Path, name: str) -> None:
    assert find_landing(coded_clip(folder, name), Fraction(9, 10)) is None


@pytest.mark.parametrize("codec", [b"ZMBV", b"SNOW", b"TM20"])
def test_probing_does_not_trust_the_size_in_the_header(tmp_path: Path, codec: bytes) -> None:
    bombs.write_avi(tmp_path / "a.avi", 16_000, codec)
    statement = "from gmaflow.io import probe_video; probe_video(path)"
    answer = bombs.read_in_a_process(tmp_path / "a.avi", statement)
    assert answer.startswith("ImageError a.avi cannot be read as video")
