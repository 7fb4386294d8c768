"""The verb `batch`: options, reports, exit codes and the display."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gmaflow.batch import BatchConfig, BatchProgress, Clip, ClipProgress, ClipResult
from gmaflow.cli import batch_progress
from gmaflow.cli.batch_progress import draw, line_of, show_batch
from tests.cli.conftest import Run, write_frames
from tests.conftest import without_tyro

ROOT = Path(__file__).parents[2]


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """Two clips; one of them has a single frame."""
    write_frames(tmp_path / "in" / "good", 3)
    write_frames(tmp_path / "in" / "short", 1)
    return tmp_path / "in"


def test_it_reports_results_and_failures(
    run: Run, weights: dict[str, Path], frames: Path, tmp_path: Path
) -> None:
    pytest.importorskip("fsspec")
    args = ("batch", frames, "-o", f"memory://cli-{tmp_path.name}")
    options = ("--weights", weights["raft-small"], "--iters", "1", "--no-cuts")
    first = run(*args, *options)
    assert first.code == 1
    assert "1 clip, 2 pairs" in first.out
    assert "1 clip failed; see memory://" in first.err
    assert "gmaflow: short failed: " in first.err
    again = run(*args, *options, "--json")
    assert again.code == 1
    (end,) = map(json.loads, again.out.splitlines())
    assert (end["event"], end["done"], end["finished_before"], end["failed"]) == ("end", 0, 1, 1)
    assert "--retry-failed tries again" in again.err
    events = [
        json.loads(line)
        for line in run(*args, *options, "--retry-failed", "--json").out.splitlines()
    ]
    assert events[0]["id"] == "short"
    assert "has 1 frame" in events[0]["error"]


@pytest.mark.parametrize("option", ["--no-cuts", "no_cuts=true"])
def test_cuts_are_left_to_the_flow_on_request(
    run: Run, option: str, frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def note(config: BatchConfig, *args: object, **options: object) -> BatchProgress:
        seen.append(config.no_cuts)
        return some_progress()

    monkeypatch.setattr("gmaflow.batch.run_batch", note)
    run("batch", option, frames, "-o", tmp_path / "out")
    run("batch", frames, "-o", tmp_path / "out")
    assert seen == [True, False]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "there is no destination; give one with -o"),
        (("-o", "out"), "there is no input"),
        (("none.mp4", "-o", "out"), "none.mp4 does not exist"),
        (("x", "-o", "out", "--shard", "3"), "'3' is not a shard"),
        (("x", "-o", "out", "--write", "flow,x"), "unknown output 'x'"),
        (("x", "-o", "out", "--table", "parquet"), "no parquet table without statistics or score"),
        (("x", "-o", "out", "--formt", "flo"), "did you mean --format"),
        (("x", "-o", "out", "--workers", "two"), "two is not a whole number"),
        (("x", "-o", "out", "--iters", "0"), "iters is 0; use a whole number, 1 or more"),
    ],
)
def test_bad_options_get_one_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run("batch", *args)
    assert (found.code, found.out) == (2, "")
    assert message in found.err
    assert len(found.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_it_runs_without_tyro_by_settings(
    weights: dict[str, Path], frames: Path, tmp_path: Path
) -> None:
    settings = f"inputs={frames}/good output={tmp_path}/out iters=1 workers=1 write=flow,statistics"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gmaflow", "batch", *settings.split()),
            *(
                f"weights={weights['raft-small']}",
                "max_length=3.5",
                "no_cuts=true",
                "json=true",
            ),
        ],
        env=os.environ | without_tyro(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["pairs"] == 2
    assert (tmp_path / "out" / "good" / "frame1.flo").exists()


def test_the_slurm_example_does_a_shard(
    weights: dict[str, Path], frames: Path, tmp_path: Path
) -> None:
    """As the second of two tasks, whose only clip has a single frame."""
    command = tmp_path / "gmaflow"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gmaflow "$@"\n')
    command.chmod(0o755)
    variables = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "2"}
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [
            *(ROOT / "examples" / "slurm_batch.sh", frames, tmp_path / "out"),
            *("--weights", weights["raft-small"], "--iters", "1"),
        ],
        env=os.environ | variables | path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "failures-2-of-2.jsonl" in done.stderr


def some_progress() -> BatchProgress:
    progress = BatchProgress("/out", total=20000, finished_before=5000, failed_before=1)
    progress.started -= 100
    for number in range(30):
        clip = Clip(f"a/{number}", f"/data/{number}.mp4")
        error = "\x1b[31mcannot be read" if number == 29 else None
        node = f"node-{number % 14}"
        progress.add(ClipResult(clip, pairs=100, node=node, worker=str(number % 2), error=error))
    return progress


def test_the_display_shows_the_figures() -> None:
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(draw(some_progress()))
    text = console.export_text()
    assert "5,029 of 20,000 clips" in text
    assert "29 pairs/s" in text
    assert "0:01:40 elapsed" in text
    assert "5,000 already there" in text
    assert "2 failed" in text
    assert "node-3" in text
    assert "and 2 more" in text
    assert "\\x1b[31mcannot be read" in text
    console.print(draw(BatchProgress("/out", total=3)))
    assert "? left" in console.export_text()
    assert line_of(some_progress()).startswith("5,029 of 20,000 clips, 29 pairs/s, 2 failed")


def test_a_long_clip_is_shown_while_it_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    progress = BatchProgress("/out", total=9)
    progress.started -= 100
    for number in range(8):
        film = Clip(f"film-{number}", f"/film{number}.mp4")
        expected = None if number == 7 else 1000 * number
        progress.update(ClipProgress(film, 100 * number, expected, f"gpu{number % 2}", "0"))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(draw(progress))
    lines = console.export_text().splitlines()
    assert any("28 pairs/s" in line and "2,800 pairs" in line for line in lines)
    assert any("gpu1" in line and "1,600" in line for line in lines)
    assert any("film-6" in line and line.rstrip().endswith("600 of 6,000") for line in lines)
    assert any("film-7" in line and line.rstrip().endswith(" 700") for line in lines)
    assert "and 2 more" in lines[-1]
    # Without a terminal, a line now and then.
    monkeypatch.setattr(batch_progress, "LINE_EVERY", 0.0)
    with show_batch() as show:
        show(progress)
    line = "0 of 9 clips, 8 clips under way with 2,800 pairs done, 28 pairs/s, 0 failed, "
    assert line in capsys.readouterr().err
    for key, clip in list(progress.under_way.items()):
        if not clip.expected:
            del progress.under_way[key]
    assert "6 clips under way with 2,100 of 21,000 pairs done" in line_of(progress)


def test_an_interrupt_reports_which_results_are_kept() -> None:
    with pytest.raises(KeyboardInterrupt, match="the same command continues"), show_batch():
        raise KeyboardInterrupt
