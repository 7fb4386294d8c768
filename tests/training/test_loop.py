import json
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gmaflow.errors import DatasetError, FlowError, OutputError, TrainingError, WeightsError
from gmaflow.training import Batch, RunOptions, TrainStep, setup, train
from gmaflow.training.distributed import ALONE
from gmaflow.training.loop import RunSummary, explaining_out_of_memory
from gmaflow.training.reporting import introduce
from gmaflow.training.run_folder import Checkpoints
from gmaflow.training.setup import make_network
from gmaflow.training.sources import SceneSource
from gmaflow.training.validation import Validation
from gmaflow.weights import load_checkpoint, save_checkpoint
from tests.training.conftest import farthest, same, tiny_batch, tiny_config


def options(folder: Path) -> RunOptions:
    return RunOptions(output=folder, device="cpu", quiet=True)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs") / "deep" / "run"
    config = tiny_config(validate_every=3, validate_pairs=2, keep=2, iters_growth="0:1 0.5:2")
    done = train(config, options(folder))
    assert done.best is not None
    assert "done after 6 steps" in done.describe()
    return folder


def test_everything_about_a_run_is_in_its_folder(run_folder: Path) -> None:
    config = json.loads((run_folder / "config.json").read_text())
    assert (config["model"], config["crop"]) == ("raft-small", [32, 40])
    lines = [json.loads(line) for line in (run_folder / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "set" not in line] == [2, 4, 6]
    assert [line["step"] for line in lines if "set" in line] == [3, 6]
    logged = {"loss", "epe", "epe-noc", "1px", "pairs/s", "lr", "skipped", "loss-scale"}
    assert logged <= lines[0].keys()
    names = [path.name for path in Checkpoints(run_folder / "checkpoints").paths()]
    assert names == ["step-00000004.pt", "step-00000006.pt"]
    with Image.open(run_folder / "curve.png") as curve:
        assert np.asarray(curve).std() > 0


def test_a_folder_may_have_a_name_that_is_not_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    train(tiny_config(steps=1), options(folder))
    assert (folder / "weights.safetensors").exists()


def test_one_step_is_singular(tmp_path: Path) -> None:
    done = RunSummary(folder=tmp_path, steps=1, stopped="", skipped=1, last={}, best=None)
    assert "done after 1 step: nothing left to do, 1 step skipped" in done.describe()
    assert ", 1 step of 2 pairs at " in introduce(tiny_config(steps=1), CPU, compiling=False)


def test_its_weights_are_the_networks(run_folder: Path) -> None:
    state = Checkpoints(run_folder / "checkpoints").newest()
    weights = load_checkpoint(run_folder / "weights.safetensors")
    assert weights.config == tiny_config().network
    prefix = "network."
    full = {n.removeprefix(prefix): v for n, v in state.tensors.items() if n.startswith(prefix)}
    assert farthest(weights.tensors, full) < 1e-3
    assert weights.card.figures == {"scenes:mix": state.best}
    assert load_checkpoint(run_folder / "best.safetensors").num_parameters == 990_162


def test_it_leaves_tensorboard_events_where_that_is_installed(run_folder: Path) -> None:
    pytest.importorskip("tensorboard")
    assert list(run_folder.glob("tensorboard/events.*"))


class BrokenScenes:
    """Scenes of which some cannot be learned from."""

    def __init__(self, broken: range) -> None:
        self.broken = broken

    def batches(self, start: int) -> Iterator[Batch]:
        for step in range(start, 1000):
            batch = tiny_batch(seed=step)
            if step in self.broken:
                batch.image2.fill_(float("nan"))
            yield batch


def batches_of(scenes: BrokenScenes) -> Callable[[SceneSource, int], Iterator[Batch]]:
    return lambda _, start: scenes.batches(start)


def test_a_step_that_is_not_finite_is_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = BrokenScenes(range(2, 4))
    monkeypatch.setattr(SceneSource, "batches", batches_of(scenes))
    done = train(tiny_config(max_skipped=3), options(tmp_path / "run"))
    assert (done.steps, done.skipped) == (6, 2)
    assert "2 steps skipped" in done.describe()
    assert all(value.isfinite().all() for value in load_checkpoint(
        tmp_path / "run" / "weights.safetensors"
    ).tensors.values())  # fmt: skip


def test_a_run_that_comes_to_nothing_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = BrokenScenes(range(2, 1000))
    monkeypatch.setattr(SceneSource, "batches", batches_of(scenes))
    with pytest.raises(TrainingError, match=r"the last 4 steps up to 6 was not finite"):
        train(tiny_config(steps=20, max_skipped=4), options(tmp_path / "run"))
    assert Checkpoints(tmp_path / "run" / "checkpoints").newest().step == 4


def test_a_batch_that_does_not_fit_suggests_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(TrainStep, "run", too_large)
    with pytest.raises(TrainingError, match=r"32x40 .* raft-small does not fit .* accumulate=2"):
        train(tiny_config(), options(tmp_path / "run"))


CPU = torch.device("cpu")
LARGE = {"model": "gma", "data": "scenes:mix", "crop": (368, 496), "batch": 16, "iters": 12}


@pytest.mark.parametrize(
    ("gigabytes", "changes", "parts"),
    [
        (64, {}, 1),
        (20, {}, 2),
        (0.8 * 7, {}, 8),  # a machine with 8 GB
        (0.8 * 7, {"both_ways": True}, 8),
        (0.8 * 7, {"model": "raft-small"}, 4),
        (0.8 * 7, {"iters": 4}, 4),
        (0.8 * 7, {"batch": 12}, 6),
    ],
)
def test_a_step_is_split_until_it_fits(
    gigabytes: float, changes: dict[str, Any], parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "memory_budget", lambda _: gigabytes * 1e9)
    config, notes = setup.fit_into_memory(tiny_config(**LARGE | changes), ALONE, CPU)
    assert config.accumulate == parts
    (note,) = notes
    assert note.startswith("a step takes about ")
    assert (f"(accumulate={parts})" in note) == (parts > 1)


def test_what_cannot_fit_is_refused_unless_the_user_insists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "memory_budget", lambda _: 1e9)
    with pytest.raises(TrainingError, match=r"more than the 1 GB .* even pair by pair") as error:
        train(tiny_config(**LARGE), options(tmp_path / "run"))
    advised = re.search("crop=([0-9]+)x([0-9]+)", str(error.value))
    assert advised
    crop = (int(advised[1]), int(advised[2]))
    assert setup.fit_into_memory(tiny_config(**LARGE | {"crop": crop}), ALONE, CPU)
    insisting = tiny_config(**LARGE, accumulate=16)
    config, notes = setup.fit_into_memory(insisting, ALONE, CPU)
    assert config == insisting
    assert len(notes) == 1


def test_a_run_keeps_the_parts_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(batch=4, steps=2)
    needed = setup.step_memory(config, 4, 2, CPU, config.crop)
    monkeypatch.setattr(setup, "RENDERING_BYTES", 0.0)
    monkeypatch.setattr(setup, "memory_budget", lambda _: needed)
    train(config, replace(options(tmp_path / "run"), stop_after=1e-6, quiet=False))
    assert "computing it in 2 parts of 2 pairs (accumulate=2)" in capsys.readouterr().err
    monkeypatch.undo()
    train(config, replace(options(tmp_path / "run"), resume=True))
    assert Checkpoints(tmp_path / "run" / "checkpoints").newest().config.accumulate == 2


@pytest.mark.parametrize("changes", [{"batch": 1}, {"batch": 6}, {"batch": 12, "accumulate": 2}])
@pytest.mark.parametrize("both_ways", [False, True])
def test_what_would_fit_is_a_config(changes: dict[str, int], both_ways: bool) -> None:
    changes["batch"] *= 1 + both_ways
    config = tiny_config(**changes, both_ways=both_ways)
    with pytest.raises(TrainingError) as error, explaining_out_of_memory(config):
        raise torch.OutOfMemoryError("CUDA out of memory")
    for name, number in re.findall("(accumulate|batch)=([0-9]+)", str(error.value)):
        assert getattr(tiny_config(**asdict(config) | {name: int(number)}), name) == int(number)
    assert ("batch=" in str(error.value)) == (changes["batch"] > 1 + both_ways)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (DatasetError("frame7.png is broken"), "frame7.png is broken"),
        (torch.OutOfMemoryError("CUDA out of memory"), "scenes:mix does not fit .* 3 is saved"),
    ],
)
def test_validation_that_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Validation, "measure", fail)
    with pytest.raises(FlowError, match=sentence):
        train(tiny_config(validate_every=3), options(tmp_path / "run"))
    assert Checkpoints(tmp_path / "run" / "checkpoints").newest().step == 3


def test_a_validation_that_is_not_finite_is_not_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([math.nan, 5.0])
    monkeypatch.setattr(Validation, "errors", lambda *_: {"scenes:mix": {"epe": next(errors)}})
    assert train(tiny_config(validate_every=3), options(tmp_path / "run")).best == 5
    assert (tmp_path / "run" / "best.safetensors").exists()


def test_a_disk_too_full_for_the_best_weights_does_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(path: Path, *_: object, **options: object) -> None:
        if path.name == "best.safetensors":
            raise OutputError("no space left on device")
        save_checkpoint(path, *_, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("gmaflow.training.run_folder.save_checkpoint", fill)
    config = tiny_config(validate_every=3, validate_pairs=1)
    assert not train(config, options(tmp_path / "run")).stopped
    assert (tmp_path / "run" / "weights.safetensors").exists()
    assert not (tmp_path / "run" / "best.safetensors").exists()


def test_other_errors_keep_their_face() -> None:
    with pytest.raises(RuntimeError, match="shapes"), explaining_out_of_memory(tiny_config()):
        raise RuntimeError("shapes differ")
    with pytest.raises(TrainingError, match="batch=1"), explaining_out_of_memory(tiny_config()):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")


def test_nothing_is_written_when_something_is_missing(tmp_path: Path) -> None:
    for config in (
        tiny_config(init=str(tmp_path / "nowhere.safetensors")),
        tiny_config(data="set:sintel", root=str(tmp_path / "nowhere")),
        tiny_config(validate_every=1, validate_on=("set:sintel",), root=str(tmp_path / "nowhere")),
        tiny_config(textures=str(tmp_path / "nowhere")),
    ):
        with pytest.raises(FlowError):
            train(config, options(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_run_starts_from_weights(run_folder: Path, tmp_path: Path) -> None:
    file = run_folder / "weights.safetensors"
    weights = load_checkpoint(file).tensors
    assert same(make_network(tiny_config(init=str(file))).state_dict(), weights)
    with pytest.raises(WeightsError, match="contains raft-small, but the run trains gma"):
        make_network(tiny_config(model="gma", init=str(file)))

    config = tiny_config(steps=8, init=str(file), start_step=6, warm_up=10)
    done = train(config, options(tmp_path / "run"))
    assert done.steps == 8
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["lr"] < 0.25 * config.lr


def test_the_seed_decides_the_first_weights() -> None:
    first, again = (make_network(tiny_config()).state_dict() for _ in range(2))
    other = make_network(replace(tiny_config(), seed=7)).state_dict()
    assert same(first, again)
    assert not same(first, other)
