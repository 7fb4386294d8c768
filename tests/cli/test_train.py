import json
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Run

TINY = (
    *("--model", "raft-small", "--crop", "32x40", "--batch", "1", "--iters", "1"),
    *("--steps", "2", "--validate-every", "0", "--device", "cpu", "--log-every", "1"),
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_a_run_from_start_to_end(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = run("train", "scenes-pretrain", *TINY, "-o", folder, "--stop-after", "1e-6")
    assert first.code == 0
    assert "stopped (time limit reached) after 1 step:" in first.out
    assert "training raft-small on scenes:mix, 2 steps of 1 pair at 32x40, on cpu" in first.err
    (progress_line,) = [line for line in first.err.splitlines() if line.startswith("step 1: loss")]
    assert progress_line.endswith(" left")  # one line, however narrow the place
    again = run("train", "scenes-pretrain", *TINY, "-o", folder)
    assert "--resume" in again.complaint
    other = run("train", "scenes-pretrain", *TINY, "-o", folder, "--resume", "--lr", "1e-3")
    assert "was started with lr 0.0004, not 0.001" in other.complaint
    done = run("train", "scenes-pretrain", *TINY, "-o", folder, "--resume", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert "done after 2 steps" in done.out
    shown = run("weights", "show", folder / "weights.safetensors")
    assert "raft-small" in shown.out


def test_presets_can_be_shown(run: Run) -> None:
    listed = run("train")
    assert "chairs" in listed.out
    assert "PRESET" in listed.out
    shown = run("train", "kitti", "--show", "--steps", "7")
    assert "288x960" in shown.out
    config = json.loads(run("train", "kitti", "--show", "--json", "--steps", "7").out)
    assert (config["steps"], config["crop"]) == (7, [288, 960])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("kiti",), "did you mean kitti?"),
        (("--data", "folder:x"), "the preset comes first: gmaflow train PRESET --data; use chairs"),
        (("chairs", "--stpes", "3"), "--steps"),
        (("chairs", "--model", "raft-smal"), "raft-small"),
        (("chairs", "--crop", "100x100"), "multiples of 8"),
        (("chairs", "--crop", "368"), "'368' is not a size; give height x width such as"),
        (("chairs", "--root", "nowhere"), "nowhere is not a folder"),
        (("finetune", "--data", "folder:nowhere"), "nowhere"),
        (("finetune",), "--data folder:my/frames"),
        (("scenes-pretrain", "--init", "nowhere.pth"), "does not exist"),
        (("scenes-pretrain", "--device", "abacus"), "abacus"),
        (("scenes-pretrain", "--resume"), "has no run to resume"),
    ],
)
def test_bad_input_is_reported_and_nothing_is_written(
    args: tuple[str, ...],
    words: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run("train", *args)
    assert outcome.code == 2
    assert words in " ".join(outcome.err.replace("│", " ").split())
    assert not list(tmp_path.iterdir())
