"""The scale of a video's colours."""

from itertools import count
from pathlib import Path

import numpy as np
import pytest

from gmaflow.cli.outputs import HEADROOM, MOST_PAIRS, SHORTEST
from gmaflow.cli.pipeline import (
    ImageFiles,
    choose_scale,
    first_usable,
    long_motion,
    spread_glimpses,
)
from gmaflow.inference import FlowEstimator
from gmaflow.io import VideoReader, write_image
from tests.io.clips import write_clip
from tests.io.frames import moving


@pytest.fixture(scope="module")
def estimator() -> FlowEstimator:
    return FlowEstimator(iters=4, device="cpu")


def test_the_fastest_part_sets_the_scale(estimator: FlowEstimator, tmp_path: Path) -> None:
    still, fast = moving(1)[0], moving(81)[::5]
    path = write_clip(tmp_path / "a.mp4", [*[still] * 24, *fast[:16]], quality="1")
    scale = choose_scale(estimator, VideoReader(path), cut_threshold=None)
    lengths = estimator(fast[0], fast[1]).length
    assert np.median(lengths) < scale < 3 * HEADROOM * np.quantile(lengths, 0.99)
    assert scale > 5


def test_looking_for_the_scale_shows_progress(
    estimator: FlowEstimator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = count(step=4)
    monkeypatch.setattr("gmaflow.cli.options.time.monotonic", lambda: float(next(seconds)))
    unreadable = ImageFiles([Path("missing.png")] * 40)
    choose_scale(estimator, unreadable)
    assert capsys.readouterr().err.startswith("gmaflow: colour scale: 2 of 5\n")
    choose_scale(estimator, unreadable, quiet=True)
    assert capsys.readouterr().err == ""


def test_where_nothing_moves_noise_stays_pale(estimator: FlowEstimator, tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", moving(1) * 9)
    assert choose_scale(estimator, VideoReader(path), cut_threshold=0.4) == SHORTEST


def test_pairs_are_spread_over_a_folder(tmp_path: Path) -> None:
    frames = [tmp_path / f"{n}.png" for n in range(33)]
    for number, frame in enumerate(frames):
        write_image(frame, np.full((16, 16, 3), number, np.uint8))
    looks = [first_usable(glimpse) for glimpse in spread_glimpses(ImageFiles(frames))]
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
    looks = [first_usable(glimpse) for glimpse in spread_glimpses(ImageFiles(frames))]
    assert MOST_PAIRS >= len(looks) == min(count - 1, max(3, count // 8), MOST_PAIRS)
    usable = sum(first % 3 == 2 for first in range(count - 1))
    assert sum(len(images) == 2 for images in looks) == min(usable, len(looks))


def test_large_frames_are_looked_at_in_small_and_count_the_same(
    estimator: FlowEstimator, tmp_path: Path
) -> None:
    large, small = ([*moving(17, size=size)[::16]] for size in ((264, 320), (132, 160)))
    tiny = [np.zeros((8, 8, 3), np.uint8)] * 2

    def scale_of(*images: np.ndarray) -> float:
        paths = [tmp_path / f"{number}.png" for number in range(len(images))]
        for path, image in zip(paths, images, strict=True):
            write_image(path, image)
        return choose_scale(estimator, ImageFiles(paths))

    scale = scale_of(*large)
    assert scale == pytest.approx(20, rel=0.35)
    assert scale == pytest.approx(HEADROOM * long_motion(estimator, *large))
    assert scale_of(*small, *large, *tiny) >= scale
    assert scale_of(*tiny) == SHORTEST
