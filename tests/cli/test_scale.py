"""The scale of a video's colours."""

from pathlib import Path

import numpy as np
import pytest

from gmaflow.cli.scale import HEADROOM, SHORTEST, choose_scale, looks_at_video
from gmaflow.inference import FlowEstimator
from gmaflow.io import VideoReader
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


def test_where_nothing_moves_noise_stays_pale(estimator: FlowEstimator, tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.mp4", moving(1) * 9)
    assert choose_scale(estimator, looks_at_video(VideoReader(path)), cut_threshold=0.4) == SHORTEST
