"""`gmaflow score`: a row for each video."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmaflow.cli import score as verb
from gmaflow.inference import FlowEstimator, score_motion
from gmaflow.io import VideoReader, scale_image, write_image
from tests.cli.conftest import Run
from tests.io.clips import write_clip
from tests.io.frames import SIZE, moving


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shots of three frames."""
    path = tmp_path_factory.mktemp("clips") / "clip.mp4"
    return write_clip(path, [*moving(3, seed=1), *moving(3, seed=2)])


def test_a_row_is_the_score_of_the_flow(run: Run, fast: list[str], clip: Path) -> None:
    outcome = run("score", clip, clip, *fast)
    assert outcome.code == 0, outcome.err
    first, second = csv.DictReader(outcome.out.splitlines())
    assert first == second
    images = [frame.image for frame in VideoReader(clip)]
    estimator = FlowEstimator(fast[1], iters=1, device="cpu")
    flows = [*estimator.sequence(images[:3]), None, *estimator.sequence(images[3:])]
    wanted = score_motion(flows)
    assert first["input"] == str(clip)
    assert float(first["fps"]) == 20
    for name in ("pairs", "cuts", "mean", "median", "p95", "still", "camera", "residual", "moving"):
        assert float(first[name]) == pytest.approx(getattr(wanted, name), abs=1e-3)


def test_rows_go_into_a_file_and_frames_are_shrunk(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    out = tmp_path / "scores.jsonl"
    outcome = run("score", clip, "-o", out, "--side", "24", "--every", "2", "--no-cuts", *fast)
    assert outcome.code == 0, outcome.err
    (row,) = map(json.loads, out.read_text().splitlines())
    assert (row["height"], row["width"], row["pairs"], row["cuts"]) == (24, 32, 2, 0)
    assert row["fps"] == 10
    images = [scale_image(frame.image, 0.5) for frame in VideoReader(clip)][::2]
    flows = FlowEstimator(fast[1], iters=1, device="cpu").sequence(images)
    assert row["mean"] == pytest.approx(score_motion(flows).mean, abs=1e-3)
    assert "exists; add --overwrite" in run("score", clip, "-o", out, *fast).err
    assert run("score", clip, "-o", out.with_suffix(".csv"), "--side", "999", *fast).code == 0
    (row,) = csv.DictReader(out.with_suffix(".csv").read_text().splitlines())
    assert row["height"] == "48"  # it is not enlarged


def test_ignored_pixels_do_not_count(run: Run, fast: list[str], clip: Path, tmp_path: Path) -> None:
    mask = np.zeros(SIZE, np.uint8)
    write_image(tmp_path / "none.png", mask)
    mask[:, 20:] = 255
    write_image(tmp_path / "most.png", mask)
    whole, none, most = (
        json.loads(run("score", clip, "--json", *fast, *more).out)
        for more in ([], ["--ignore", tmp_path / "none.png"], ["--ignore", tmp_path / "most.png"])
    )
    assert whole == none
    assert whole["mean"] != most["mean"]


def test_a_video_that_cannot_be_scored_does_not_stop_the_others(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    one = write_clip(tmp_path / "one.mp4", moving(1))
    small = write_clip(tmp_path / "small.mp4", [np.zeros((8, 8, 3), np.uint8)] * 2)
    outcome = run("score", tmp_path / "no.mp4", one, small, clip, *fast)
    assert outcome.code == 1
    assert len(outcome.out.splitlines()) == 2
    lines = [line.removeprefix(f"gmaflow: {tmp_path}/") for line in outcome.err.splitlines()]
    assert [line.split(maxsplit=1)[0].strip(":") for line in lines] == [
        "no.mp4",
        "one.mp4",
        "small.mp4",
    ]
    assert "there is one frame; a score needs at least two frames of a shot" in lines[1]
    assert "flow needs at least 16 pixels in height and width" in lines[2]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["no.mp4"], "no.mp4"),
        (["no.mp4", "no.mov"], "none of the videos can be scored"),
        ([], "there is nothing to score; give videos"),
        (["a.mp4", "-o", "a.txt"], "a.txt: rows are written as .csv or .jsonl"),
        (["a.mp4", "--side", "3"], "--side 3 is too small; give at least 16"),
        (["a.mp4", "--cut-threshold", "0"], "--cut-threshold 0 is out of range"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Run, fast: list[str], args: list[str], message: str, tmp_path: Path
) -> None:
    outcome = run("score", *args, *fast)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert not list(tmp_path.iterdir())


def test_masks_of_another_size_or_number_are_refused(
    run: Run, fast: list[str], clip: Path, tmp_path: Path
) -> None:
    write_image(tmp_path / "masks" / "0.png", np.zeros(SIZE, np.uint8))
    assert (
        "has 1 mask for 6 frames" in run("score", clip, "--ignore", tmp_path / "masks", *fast).err
    )
    write_image(tmp_path / "small.png", np.zeros((20, 20), np.uint8))
    err = run("score", clip, "--ignore", tmp_path / "small.png", *fast).err
    assert "differ in size: 20x20 and 48x64" in err


@pytest.mark.parametrize("refused", [1, 2])
def test_an_interrupt_after_refused_videos_is_an_interrupt(
    run: Run,
    fast: list[str],
    clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: int,
) -> None:
    def interrupt(*_: object) -> verb.Row:
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "score", interrupt)
    outcome = run("score", *[tmp_path / "no.mp4"] * refused, clip, *fast)
    assert outcome.code == 130
    *complaints, last = outcome.err.splitlines()
    assert (len(complaints), last) == (refused, "gmaflow: interrupted")


@pytest.mark.parametrize("finished", [0, 1])
def test_an_interrupt_keeps_the_rows_if_there_are_any(
    run: Run,
    fast: list[str],
    clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    finished: int,
) -> None:
    videos = iter(range(3))

    def score_some(*args: Any) -> verb.Row:  # noqa: ANN401
        if next(videos) == finished:
            raise KeyboardInterrupt
        return real_score(*args)

    real_score = verb.score
    monkeypatch.setattr(verb, "score", score_some)
    output = tmp_path / "s.csv"
    outcome = run("score", clip, clip, "-o", output, *fast)
    assert outcome.code == 130
    assert "interrupted" in outcome.err
    assert ("1 row of 2 written" in outcome.err) == output.exists() == bool(finished)
