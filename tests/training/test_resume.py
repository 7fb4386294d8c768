"""A run that was stopped and taken up again is the run that never stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gmaflow.errors import OutputError, TrainingError
from gmaflow.training import RunOptions, StepPlan, TrainConfig, plan_at, train
from gmaflow.training import loop as loop_module
from gmaflow.training.config import check_extension, to_json
from gmaflow.training.loop import StopRequest
from gmaflow.training.run_folder import Checkpoints, RunFolder, TrainState, read_state
from tests.conftest import contents, without_tyro
from tests.full_disk import largest_file
from tests.training.conftest import same, tiny_config, write_pairs

CONFIG = tiny_config(ema=0.9, occluded_from=0.4)


def options(folder: Path, **changes: object) -> RunOptions:
    return replace(RunOptions(output=folder, device="cpu", quiet=True), **changes)  # type: ignore[arg-type]


def last_state(folder: Path) -> TrainState:
    return Checkpoints(folder / "checkpoints").newest()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs") / "whole"
    done = train(CONFIG, options(folder))
    assert (done.steps, done.stopped, done.skipped) == (6, "", 0)
    return folder


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run be interrupted after a step."""
    stopped = {step: "time limit reached"}
    monkeypatch.setattr(StopRequest, "agreed", lambda self, now, *_: stopped.get(now, ""))


@pytest.mark.parametrize("step", [1, 3, 4])
def test_an_interrupted_run_ends_with_the_same_weights(
    step: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_at(step, patch)
        assert train(CONFIG, options(tmp_path / "run")).steps == step
    done = train(CONFIG, options(tmp_path / "run", resume=True))
    assert (done.steps, done.stopped) == (6, "")
    assert same(last_state(tmp_path / "run").tensors, last_state(whole).tensors)
    weights = [
        (folder / "weights.safetensors").read_bytes() for folder in (tmp_path / "run", whole)
    ]
    assert weights[0] == weights[1]


def test_a_run_that_continues_motion_and_erases_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(model="gma-affine", iters=3, erase=0.5, steps=3, save_every=1)
    train(config, options(tmp_path / "whole"))
    with monkeypatch.context() as patch:
        stop_at(2, patch)
        assert train(config, options(tmp_path / "run")).steps == 2
    train(config, options(tmp_path / "run", resume=True))
    assert same(last_state(tmp_path / "run").tensors, last_state(tmp_path / "whole").tensors)


def test_a_time_limit_stops_between_steps(whole: Path, tmp_path: Path) -> None:
    first = train(CONFIG, options(tmp_path / "run", stop_after=1e-6))
    assert (first.steps, first.stopped) == (1, "time limit reached")
    assert "--resume" in first.describe()
    train(CONFIG, options(tmp_path / "run", resume=True))
    assert same(last_state(tmp_path / "run").tensors, last_state(whole).tensors)


def test_a_signal_is_noted_and_a_second_one_ends_at_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopRequest(after=None) as stop:
        assert stop.reason == ""
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.reason == "interrupted"
        with pytest.raises(KeyboardInterrupt, match="checkpoint is kept"):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert capfd.readouterr().err.count("press Ctrl-C again to stop now") == 1


@contextmanager
def in_an_endless_step(config: TrainConfig, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Train in another process, whose fourth step never returns; the third is not saved."""
    changes = {"data": config.data, "workers": config.workers}
    script = f"""
import hashlib
from dataclasses import replace
from pathlib import Path
import torch
from gmaflow.errors import run_as_program
from gmaflow.training import RunOptions, loop, plan_at, train
from tests.training.test_resume import CONFIG, options

def endless_at_three(step, config):
    if step == 3:
        torch.rand(5)  # as a part of a step may have done
        print("in a step", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # no signal reaches Python here
    return plan_at(step, config)

torch.set_num_threads(1)
loop.plan_at, loop.SLOW = endless_at_three, 0.0
config = replace(CONFIG, **{changes!r})
run_as_program(lambda args: train(config, options(Path({str(folder)!r}))), [])
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in a step\n"
        yield process


def interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("finishing this step; press Ctrl-C again")
    assert process.poll() is None


@pytest.fixture(scope="module")
def from_files(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    """A run on files, which other processes see too."""
    folder = write_pairs(tmp_path_factory.mktemp("data") / "pairs")
    return replace(CONFIG, data=f"folder:{folder}", workers=0)


def test_ctrl_c_in_a_long_step_keeps_the_steps_before_it(
    from_files: TrainConfig, tmp_path: Path
) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    train(from_files, options(whole))
    with in_an_endless_step(from_files, folder) as process:
        interrupt(process)
        begun = time.monotonic()
        assert process.wait(timeout=60) == 130
        assert time.monotonic() - begun < 10
        assert process.stderr is not None
        assert "after 3 steps, since the next takes long" in process.stderr.read()
    assert last_state(folder).step == 3
    train(from_files, options(folder, resume=True))
    assert same(last_state(folder).tensors, last_state(whole).tensors)


def test_a_second_ctrl_c_ends_a_step_at_once(from_files: TrainConfig, tmp_path: Path) -> None:
    with in_an_endless_step(from_files, tmp_path / "run") as process:
        interrupt(process)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        assert process.wait(timeout=60) == 130
        assert time.monotonic() - begun < 10
        assert process.stderr is not None
        assert "interrupted; the last checkpoint is kept" in process.stderr.read()
    assert last_state(tmp_path / "run").step == 2


def test_after_ctrl_c_nobody_waits_for_a_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StopRequest, "agreed", lambda *_: "interrupted")
    monkeypatch.setattr(loop_module, "validate", pytest.fail)
    config = replace(CONFIG, validate_every=5, validate_pairs=1)
    assert train(config, options(tmp_path / "run")).stopped == "interrupted"


def test_ctrl_c_ends_between_steps(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_at_two(step: int, config: TrainConfig) -> StepPlan:
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return plan_at(step, config)

    with monkeypatch.context() as patch:
        patch.setattr(loop_module, "plan_at", interrupted_at_two)
        done = train(CONFIG, options(tmp_path / "run"))
    assert (done.steps, done.stopped) == (3, "interrupted")
    train(CONFIG, options(tmp_path / "run", resume=True))
    assert same(last_state(tmp_path / "run").tensors, last_state(whole).tensors)


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    """From files this time, and in a process without the libraries of the command line."""
    folder, whole = tmp_path / "run", tmp_path / "whole"
    data = f"folder:{write_pairs(tmp_path / 'pairs')}"
    config = replace(CONFIG, data=data, workers=0, steps=12)
    train(config, options(whole))
    lists = {"crop": "32x40", "validate_on": "scenes:mix", "without": ""}
    texts = json.loads(to_json(config)) | lists
    settings = [f"{key}={value}" for key, value in texts.items()]
    command = [sys.executable, "-m", "gmaflow", "train", "scenes-pretrain", *settings]
    command += [f"output={folder}", "device=cpu", "quiet=true"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | without_tyro(tmp_path)
    process = subprocess.Popen(command, env=environment)
    begun = time.monotonic()
    while not list(folder.glob("checkpoints/step-*.pt")) and time.monotonic() - begun < 60:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "tensorboard").exists()
    step = last_state(folder).step
    assert 0 < step < config.steps
    train(config, options(folder, resume=True))
    assert same(last_state(folder).tensors, last_state(whole).tensors)


def test_a_broken_checkpoint_costs_one_interval(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at(4, patch)
        train(CONFIG, options(folder))
    newest = folder / "checkpoints" / "step-00000004.pt"
    newest.write_bytes(newest.read_bytes()[:-1000])
    train(CONFIG, options(folder, resume=True))
    assert "step-00000004.pt" in caplog.text
    assert "using the previous checkpoint" in caplog.text
    assert same(last_state(folder).tensors, last_state(whole).tensors)
    lines = (folder / "log.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(set(steps))


def test_a_broken_checkpoint_does_not_count_as_one_to_keep(tmp_path: Path) -> None:
    for step in (1, 2, 4):
        small_checkpoint(tmp_path, step, keep=3)
    (tmp_path / "step-00000004.pt").write_bytes(b"broken")
    small_checkpoint(tmp_path, 3, keep=2)
    assert [int(path.stem[-8:]) for path in Checkpoints(tmp_path).paths()] == [2, 3, 4]


def small_checkpoint(folder: Path, step: int = 7, keep: int = 1) -> Path:
    """Write a checkpoint of a few tensors."""
    tensors = {"weight": torch.arange(9.0), "bias": torch.ones(3)}
    state = TrainState(config=CONFIG, step=step, tensors=tensors, random={"cpu": torch.zeros(5)})
    return Checkpoints(folder).save(state, keep=keep)


def test_one_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    path = small_checkpoint(tmp_path)
    intact = path.read_bytes()
    assert read_state(path).step == 7
    for place in {*range(0, len(intact), 5), *range(len(intact) - 100, len(intact))}:
        raw = bytearray(intact)
        raw[place] ^= 1 << place % 8
        path.write_bytes(raw)
        with pytest.raises(TrainingError, match="no checkpoint of 1 can be read"):
            Checkpoints(tmp_path).newest()


def test_a_run_is_extended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = replace(CONFIG, steps=2, save_every=1, occluded_from=0.0)
    train(short, options(tmp_path / "run"))
    longer = replace(short, steps=4)
    done = train(longer, options(tmp_path / "run", resume=True, quiet=False))
    assert (done.steps, done.stopped) == (4, "")
    assert "extended from 2 to 4 steps" in capsys.readouterr().err
    lines = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text().splitlines())
    assert [line["lr"] for line in lines][-1] == pytest.approx(plan_at(3, longer).lr)
    with pytest.raises(TrainingError, match="was started with steps 4, not 3"):
        train(replace(short, steps=3), options(tmp_path / "run", resume=True))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"iters_growth": "0:1 0.5:2"}, "iters_growth would go back from 2 to 1 iterations"),
        ({"occluded_from": 0.5}, "occluded_from would ignore occluded pixels again"),
    ],
)
def test_a_schedule_that_would_go_back_cannot_be_extended(
    changes: dict[str, object], sentence: str
) -> None:
    old = tiny_config(**changes)
    assert "extended from 6 to 9 steps" in check_extension(1, old, replace(old, steps=9))
    with pytest.raises(TrainingError, match=sentence):
        check_extension(6, old, replace(old, steps=60))


def test_nothing_to_resume_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="has no run to resume"):
        train(CONFIG, options(tmp_path / "run", resume=True))


def test_a_run_killed_before_its_first_checkpoint_starts_again(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(to_json(CONFIG))
    done = train(CONFIG, replace(options(tmp_path, resume=True), quiet=False))
    assert done.steps == 6
    assert "no checkpoint yet and starts from the beginning" in capsys.readouterr().err
    assert same(last_state(whole).tensors, last_state(tmp_path).tensors)


def test_a_finished_run_has_nothing_left_to_do(whole: Path) -> None:
    before = last_state(whole)
    done = train(CONFIG, options(whole, resume=True))
    assert done.steps == 6
    assert same(before.tensors, last_state(whole).tensors)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (replace(CONFIG, model="gma"), "was started with model raft-small, not gma;"),
        (replace(CONFIG, steps=4), "was started with steps 6, not 4;"),
        (replace(CONFIG, lr=1e-3, batch=4), "with batch 2, not 4; with lr 0.0004, not 0.001"),
    ],
)
def test_another_config_reports_the_difference(
    changed: TrainConfig, sentence: str, whole: Path
) -> None:
    with pytest.raises(TrainingError, match=sentence):
        train(changed, options(whole, resume=True))


def test_what_does_not_touch_the_weights_may_change(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_at(2, patch)
        train(CONFIG, options(tmp_path / "run"))
    changed = replace(CONFIG, log_every=1, save_every=5, keep=1)
    train(changed, options(tmp_path / "run", resume=True))
    assert same(last_state(tmp_path / "run").tensors, last_state(whole).tensors)
    assert len(Checkpoints(tmp_path / "run" / "checkpoints").paths()) == 1


def test_a_folder_with_a_run_or_other_files_is_refused(whole: Path, tmp_path: Path) -> None:
    before = contents(whole)
    with pytest.raises(OutputError, match="already holds a run; add --resume"):
        train(CONFIG, options(whole))
    with pytest.raises(OutputError, match="give only one"):
        train(CONFIG, options(whole, resume=True, overwrite=True))
    assert contents(whole) == before

    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(OutputError, match="is not empty"):
        train(CONFIG, options(tmp_path, overwrite=True))
    for place in (tmp_path / "thesis.tex", tmp_path / "thesis.tex" / "run"):
        with pytest.raises(OutputError, match=r"thesis\.tex is a file"):
            RunFolder(place).check(CONFIG, resume=False, overwrite=False)


def test_a_run_can_be_started_anew(tmp_path: Path) -> None:
    short = replace(CONFIG, steps=2)
    train(short, options(tmp_path / "run"))
    train(replace(short, seed=5), options(tmp_path / "run", overwrite=True))
    assert last_state(tmp_path / "run").config.seed == 5
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 1


def test_a_full_disk_loses_one_checkpoint_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save = torch.save

    def full_at_four(content: dict[str, int], path: Path) -> None:
        if content["step"] == 4:
            raise OSError(28, "No space left on device")
        save(content, path)

    monkeypatch.setattr(torch, "save", full_at_four)
    assert train(CONFIG, options(tmp_path / "run")).steps == 6
    assert "the run continues" in caplog.text
    names = [path.name for path in Checkpoints(tmp_path / "run" / "checkpoints").paths()]
    assert names == ["step-00000002.pt", "step-00000006.pt"]


@pytest.mark.parametrize("room", [0, 100, 20_000])
def test_a_checkpoint_on_a_full_disk_is_one_sentence(tmp_path: Path, room: int) -> None:
    train(CONFIG, options(tmp_path / "run"))
    state = last_state(tmp_path / "run")
    with largest_file(room), pytest.raises(OutputError, match="cannot be written: file too large"):
        Checkpoints(tmp_path / "new").save(state, keep=1)
    assert not list((tmp_path / "new").iterdir())


def test_the_loop_is_a_page() -> None:
    lines = Path(loop_module.__file__).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("def run_steps("))
    length = next(i for i, line in enumerate(lines[start + 1 :]) if line.startswith("def "))
    assert length < 50
