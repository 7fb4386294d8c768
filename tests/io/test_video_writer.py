import inspect
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from gmaflow.errors import FlowError, ImageError, OutputError
from gmaflow.io import (
    VIDEO_OUTPUTS,
    Sound,
    VideoReader,
    VideoWriter,
    has_sound,
    probe_video,
)
from tests.full_disk import largest_file
from tests.io.clips import frame_times, images, sound_of, write_clip
from tests.io.frames import moving

av = pytest.importorskip("av")

FRAME = np.zeros((16, 16, 3), np.uint8)


@pytest.mark.parametrize(("height", "width"), [(32, 48), (33, 47), (1, 1)])
def test_odd_sizes_repeat_the_last_row_and_column(tmp_path: Path, height: int, width: int) -> None:
    color = (200, 60, 30)
    with VideoWriter(tmp_path / "a.mp4", fps=12.5) as video:
        for _ in range(3):
            video.write(np.full((height, width, 3), color, np.uint8))
    info = probe_video(tmp_path / "a.mp4")
    assert (info.height, info.width) == (height + height % 2, width + width % 2)
    assert info.fps == Fraction(25, 2)
    for frame in images(tmp_path / "a.mp4"):
        assert np.abs(frame.astype(int) - color).max() <= 4


@pytest.mark.parametrize("suffix", sorted(VIDEO_OUTPUTS))
def test_a_folder_may_have_a_name_that_is_not_text(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9") / f"a{suffix}"
    with VideoWriter(path) as video:
        video.write(FRAME)
    assert list(path.parent.iterdir()) == [path]


def test_the_video_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.mp4"
    with VideoWriter(path) as video:
        video.write(FRAME)
        assert not path.exists()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("frames", [0, 3])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_nothing_behind(
    tmp_path: Path, error: type[BaseException], frames: int
) -> None:
    def fail() -> None:
        with VideoWriter(tmp_path / "a.mp4") as video:
            for _ in range(frames):
                video.write(FRAME)
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_makes_no_video_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match="no frames were written"),
        VideoWriter(tmp_path / "a.mp4"),
    ):
        pass
    with VideoWriter(tmp_path / "b.mp4") as video:
        video.write(FRAME)
        with pytest.raises(OutputError, match="8 x 16 after frames of 16 x 16"):
            video.write(FRAME[:8])
        unchecked = inspect.unwrap(video.write)  # the tests check types, users do not
        for image in (FRAME[:, :0], FRAME.astype(np.float32), FRAME[..., 0]):
            with pytest.raises(FlowError, match="got an "):
                unchecked(video, image)
    (tmp_path / "b.mp4").unlink()
    with pytest.raises(OutputError, match="is not a video format"):
        VideoWriter(tmp_path / "a.wmv")
    for fps in (0, -1, float("nan"), float("inf")):
        with pytest.raises(OutputError, match="frames per second"):
            VideoWriter(tmp_path / "a.mp4", fps=fps)
    assert list(tmp_path.iterdir()) == []


def test_writing_outside_the_block_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="with block"):
        VideoWriter(tmp_path / "a.mp4").write(FRAME)


@pytest.mark.parametrize("suffix", sorted(VIDEO_OUTPUTS))
def test_every_format_shows_each_frame_at_its_time(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    times = [Fraction(n, 100) for n in (0, 5, 20, 25, 70)]
    frames = moving(5)
    with VideoWriter(path, fps=20, time_base=Fraction(1, 600)) as video:
        for image, time in zip(frames, times, strict=True):
            video.write(image, time=time)
    assert [round(100 * time) for time in frame_times(path)] == [0, 5, 20, 25, 70]
    for found, wanted in zip(images(path), frames, strict=True):
        assert np.abs(found.astype(int) - wanted).mean() < 16


@pytest.mark.parametrize("suffix", sorted(VIDEO_OUTPUTS))
def test_a_video_of_uneven_times_lasts_until_its_last_frame_was_seen(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"a{suffix}"
    begins = [Fraction(n, 100) for n in (0, 4, 8, 20, 24, 50, 52, 56, 100, 300)]
    ends = [*begins[1:], Fraction(310, 100)]
    with VideoWriter(path, fps=4, time_base=Fraction(1, 600)) as video:
        for image, begin, end in zip(moving(10), begins, ends, strict=True):
            video.write(image, time=begin, seconds=end - begin)
    seconds = probe_video(path).seconds
    assert seconds is not None
    assert float(seconds) == pytest.approx(3.1, abs=0.01)


def test_times_that_a_format_cannot_distinguish_are_moved(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "a.gif", fps=200) as video:
        for image in moving(4):
            video.write(image)
    assert len(frame_times(tmp_path / "a.gif")) == 4


def test_a_frame_may_be_shown_for_hours(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "a.mp4", fps=1e-5) as video:
        video.write(FRAME)
    assert len(images(tmp_path / "a.mp4")) == 1


def test_pixels_keep_their_shape(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "a.mp4", pixel_aspect=Fraction(16, 15)) as video:
        video.write(FRAME)
    assert probe_video(tmp_path / "a.mp4").pixel_aspect == Fraction(16, 15)


@pytest.mark.parametrize("suffix", [".mp4", ".mov"])
def test_players_start_at_once_and_need_not_guess_colours(tmp_path: Path, suffix: str) -> None:
    with VideoWriter(tmp_path / f"a{suffix}") as video:
        video.write(FRAME)
    raw = (tmp_path / f"a{suffix}").read_bytes()
    assert raw.index(b"moov") < raw.index(b"mdat")
    with av.open(str(tmp_path / f"a{suffix}")) as container:
        coded = container.streams.video[0].codec_context
        marks = (coded.colorspace, coded.color_primaries, coded.color_trc, coded.color_range)
    assert marks == (1, 1, 1, 1)  # BT.709, limited range


# Where the last bytes go decides where PyAV fails.
@pytest.mark.parametrize("room", [7000, 11_000, 15_000, 21_000, 27_000])
def test_a_full_disk_is_a_sentence(
    tmp_path: Path, room: int, capfd: pytest.CaptureFixture[str]
) -> None:
    frames = np.random.default_rng(0).integers(0, 255, (12, 96, 96, 3)).astype(np.uint8)

    def write() -> None:
        with VideoWriter(tmp_path / "a.mp4") as video:
            for frame in frames:
                video.write(frame)

    with (
        largest_file(room),
        pytest.raises(OutputError, match=r"a.mp4 cannot be written: file too large"),
    ):
        write()
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err == ""  # PyAV prints a traceback for what it drops


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds with sound."""
    path = tmp_path_factory.mktemp("clips") / "clip.mp4"
    return write_clip(path, moving(40), sound="aac")


def carry_over(source: Path, target: Path, *, start: Fraction = Fraction(0), count: int) -> None:
    with Sound(source, start=start) as sound, VideoWriter(target, fps=20, sound=sound) as video:
        for _ in range(count):
            video.write(np.zeros((16, 16, 3), np.uint8))


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mp4", "aac"), ("a.mov", "aac"), ("a.mkv", "aac"), ("a.webm", "opus")]
)
def test_sound_goes_into_every_kind_of_video(
    clip: Path, tmp_path: Path, name: str, codec: str
) -> None:
    carry_over(clip, tmp_path / name, count=40)
    assert sound_of(tmp_path / name) == pytest.approx((codec, 2), abs=0.1)


def test_a_part_has_its_own_sound_and_ends_with_the_pictures(clip: Path, tmp_path: Path) -> None:
    carry_over(clip, tmp_path / "a.mp4", start=Fraction(1, 2), count=10)
    assert sound_of(tmp_path / "a.mp4") == pytest.approx(("aac", 0.5), abs=0.1)
    assert len(list(VideoReader(tmp_path / "a.mp4"))) == 10


def test_sound_that_ends_early_does_not_change_the_pictures(clip: Path, tmp_path: Path) -> None:
    carry_over(clip, tmp_path / "a.mp4", count=60)
    assert sound_of(tmp_path / "a.mp4") == pytest.approx(("aac", 2), abs=0.1)
    assert len(list(VideoReader(tmp_path / "a.mp4"))) == 60


def test_who_has_sound(clip: Path, tmp_path: Path) -> None:
    assert has_sound(clip)
    assert not has_sound(write_clip(tmp_path / "a.mp4", moving(2)))
    assert not has_sound(tmp_path)


def test_sound_without_a_decoder_is_passed_over(clip: Path, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown.mp4"
    unknown.write_bytes(clip.read_bytes().replace(b"mp4a", b"apac").replace(b"esds", b"free"))
    assert not has_sound(unknown)
    with pytest.raises(ImageError, match=r"unknown.mp4 has no sound that can be read"):
        carry_over(unknown, tmp_path / "a.mp4", count=2)


def test_mp3_in_avi_is_copied(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.avi", moving(20), sound="libmp3lame")
    carry_over(clip, tmp_path / "a.mp4", count=20)
    assert sound_of(tmp_path / "a.mp4") == pytest.approx(("mp3float", 1), abs=0.1)


def test_coarse_times_of_sound_do_not_go_back(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.avi", moving(20), sound="adpcm_ms")
    carry_over(clip, tmp_path / "a.webm", count=20)
    with av.open(str(tmp_path / "a.webm")) as container:
        packets = container.demux(container.streams.audio[0])
        times = [packet.pts for packet in packets if packet.pts is not None]
    assert times == sorted(set(times))


@pytest.mark.parametrize(("name", "codec"), [("a.mp4", "aac"), ("a.webm", "opus")])
def test_sound_may_change_from_mono_to_stereo(tmp_path: Path, name: str, codec: str) -> None:
    parts = [
        write_clip(tmp_path / f"{layout}.ts", moving(20), sound="mp2", layout=layout).read_bytes()
        for layout in ("mono", "stereo")
    ]
    (tmp_path / "both.ts").write_bytes(b"".join(parts))
    carry_over(tmp_path / "both.ts", tmp_path / name, count=40)
    assert sound_of(tmp_path / name) == pytest.approx((codec, 2), abs=0.1)


@pytest.mark.parametrize("name", ["a.mp4", "a.webm"])
def test_damaged_sound_does_not_stop_the_pictures(tmp_path: Path, name: str) -> None:
    clip = write_clip(tmp_path / "clip.mkv", moving(40), sound="aac")
    whole = clip.read_bytes()
    for spacing in range(37, 61):  # some give packets whose times go back
        raw = bytearray(whole)
        for place in range(len(raw) // 3, len(raw) * 2 // 3, spacing):
            raw[place] ^= 0xFF
        clip.write_bytes(raw)
        carry_over(clip, tmp_path / name, count=40)
        assert len(list(VideoReader(tmp_path / name))) == 40


def test_what_players_do_not_play_is_encoded_anew(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.mkv", moving(20), sound="pcm_s16le")
    carry_over(clip, tmp_path / "a.mp4", count=20)
    assert sound_of(tmp_path / "a.mp4") == pytest.approx(("aac", 1), abs=0.1)


@pytest.mark.parametrize(("codec", "name"), [("libopus", "a.mp4"), ("flac", "a.webm")])
def test_sound_that_needs_no_conversion_keeps_its_times(
    tmp_path: Path, codec: str, name: str
) -> None:
    # Its samples are those of the encoder already, and its times are in milliseconds.
    clip = write_clip(tmp_path / "clip.mkv", moving(40), sound=codec)
    carry_over(clip, tmp_path / name, start=Fraction(1, 2), count=20)
    with av.open(str(tmp_path / name)) as container:
        times = [frame.time for frame in container.decode(container.streams.audio[0])]
    assert abs(times[0]) < 0.1
    assert abs(times[-1] - 1) < 0.1


def test_a_transport_stream_is_copied_into_mp4(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.ts", moving(40), sound="aac")
    carry_over(clip, tmp_path / "a.mp4", count=40)
    assert sound_of(tmp_path / "a.mp4") == pytest.approx(("aac", 2), abs=0.1)
