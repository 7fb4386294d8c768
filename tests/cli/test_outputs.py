"""The scale of a video's colours."""

from itertools import count
from pathlib import Path

import numpy as np
import pytest

from gmaflow.cli.outputs import (
    HEADROOM,
    MOST_PAIRS,
    SHORTEST,
    choose_scale,
    long_motion,
    looks_at_frames,
    looks_at_video,
)
from gmaflow.inference import FlowEstimator
from gmaflow.io import VideoReader, write_image
from tests.io.clips import moving, write_clip


@pytest.fixture(scope="module")
def estimator() -> FlowEstimator:
    return FlowEstimator(iters=4, device="cpu")


def test_the_fastest_part_sets_the_scale(estimator: FlowEstimator, tmp_path: Path) -> None:
    still, fast = moving(1)[0], moving(81)[::5]
    path = write_clip(tmp_path / "a.mp4", [*[still] * 24, *fast[:16]], quality="1")
    scale = choose_scale(estimator, looks_at_video(VideoReader(path)), cut_threshold=None)
    lengths = estimator(fast[0], fast[1]).length
    assert np.median(lengths) < scale < 3 * HEADROOM * np.quantile(lengths, 0.99)
    assert scale > 5


def test_looking_for_the_scale_shows_progress(
    estimator: FlowEstimator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = count(step=4)
    monkeypatch.setattr("gmaflow.cli.options.time.monotonic", lambda: float(next(seconds)))
    choose_scale(estimator, 5 * [lambda: ()])
    assert capsys.readouterr().err.startswith("gmaflow: colour scale: 2 of 5\n")
    choose_scale(estimator, 5 * [lambda: ()], quiet=True)
    assert capsys.readouterr().err == ""


def test_where_nothing_moves_noise_stays_pale(estimator: FlowEstimator, tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", moving(1) * 9)
    assert choose_scale(estimator, looks_at_video(VideoReader(path)), cut_threshold=0.4) == SHORTEST


def test_pairs_are_spread_over_a_folder(tmp_path: Path) -> None:
    frames = [tmp_path / f"{n}.png" for n in range(33)]
    for number, frame in enumerate(frames):
        write_image(frame, np.full((16, 16, 3), number, np.uint8))
    looks = [look() for look in looks_at_frames(frames)]
    assert [(first[0, 0, 0], second[0, 0, 0]) for first, second in looks] == [
        (0, 1),
        (8, 9),
        (16, 17),
        (24, 25),
    ]


@pytest.mark.parametrize("count", [2, 3, 4, 100])
def test_where_a_frame_is_unusable_the_next_pair_is_looked_at(tmp_path: Path, count: int) -> None:
    frames = [tmp_path / f"{n}.png" for n in range(count)]
    for number, frame in enumerate(frames):
        size = (32, 16) if number % 3 == 1 else (16, 16)
        write_image(frame, np.zeros((*size, 3), np.uint8))
    frames[0].write_text("no image")
    looks = [look() for look in looks_at_frames(frames)]
    assert MOST_PAIRS >= len(looks) == min(count - 1, max(3, count // 8), MOST_PAIRS)
    usable = sum(first % 3 == 2 for first in range(count - 1))
    assert sum(len(images) == 2 for images in looks) == min(usable, len(looks))


def test_large_frames_are_looked_at_in_small_and_count_the_same(estimator: FlowEstimator) -> None:
    large, small = ([*moving(17, size=size)[::16]] for size in ((264, 320), (132, 160)))
    scale = choose_scale(estimator, [lambda: large])
    assert scale == pytest.approx(20, rel=0.35)
    assert scale == pytest.approx(HEADROOM * long_motion(estimator, *large))
    assert choose_scale(estimator, [lambda: small, lambda: large, lambda: []]) >= scale
    tiny = [np.zeros((8, 8, 3), np.uint8)] * 2
    assert choose_scale(estimator, [lambda: tiny]) == SHORTEST
