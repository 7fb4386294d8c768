from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from gmaflow.io import Sound, VideoReader, VideoWriter, has_sound
from tests.io.clips import moving, sound_of, write_clip


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
    found = sound_of(tmp_path / name)
    assert found is not None
    assert found[0] == codec
    assert abs(found[1] - 2) < 0.1


def test_a_part_has_its_own_sound_and_ends_with_the_pictures(clip: Path, tmp_path: Path) -> None:
    carry_over(clip, tmp_path / "a.mp4", start=Fraction(1, 2), count=10)
    found = sound_of(tmp_path / "a.mp4")
    assert found is not None
    assert abs(found[1] - 0.5) < 0.1
    assert len(list(VideoReader(tmp_path / "a.mp4"))) == 10


def test_sound_that_ends_early_leaves_the_pictures_alone(clip: Path, tmp_path: Path) -> None:
    carry_over(clip, tmp_path / "a.mp4", count=60)
    found = sound_of(tmp_path / "a.mp4")
    assert found is not None
    assert abs(found[1] - 2) < 0.1
    assert len(list(VideoReader(tmp_path / "a.mp4"))) == 60


def test_who_has_sound(clip: Path, tmp_path: Path) -> None:
    assert has_sound(clip)
    assert not has_sound(write_clip(tmp_path / "a.mp4", moving(2)))
    assert not has_sound(tmp_path)


@pytest.mark.parametrize("name", ["a.mp4", "a.webm"])
def test_damaged_sound_does_not_stop_the_pictures(tmp_path: Path, name: str) -> None:
    clip = write_clip(tmp_path / "clip.mkv", moving(40), sound="aac")
    raw = bytearray(clip.read_bytes())
    for place in range(len(raw) // 3, len(raw) * 2 // 3, 50):
        raw[place] ^= 0xFF
    clip.write_bytes(raw)
    carry_over(clip, tmp_path / name, count=40)
    assert len(list(VideoReader(tmp_path / name))) == 40


def test_what_players_do_not_play_is_encoded_anew(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.mkv", moving(20), sound="pcm_s16le")
    carry_over(clip, tmp_path / "a.mp4", count=20)
    found = sound_of(tmp_path / "a.mp4")
    assert found is not None
    assert found[0] == "aac"
    assert abs(found[1] - 1) < 0.1


def test_a_transport_stream_is_copied_into_mp4(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.ts", moving(40), sound="aac")
    carry_over(clip, tmp_path / "a.mp4", count=40)
    found = sound_of(tmp_path / "a.mp4")
    assert found is not None
    assert found[0] == "aac"
    assert abs(found[1] - 2) < 0.1
