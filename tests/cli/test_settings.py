import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gmaflow.batch import BatchConfig
from gmaflow.bench import BenchConfig
from gmaflow.cli import bench, train
from gmaflow.cli.options import WeightsOptions
from gmaflow.cli.settings import describe, field_docs, override
from gmaflow.errors import FlowError
from gmaflow.model import MODELS
from gmaflow.training import RunOptions, TrainConfig, preset
from tests.cli.conftest import Run
from tests.conftest import without_tyro

TINY = ("model=raft-small", "crop=32,40", "batch=1", "iters=1", "steps=1", "validate-every=0")


@dataclass(frozen=True, kw_only=True)
class Nested:
    """Options with a config inside."""

    output: Path | None = None
    """A file."""
    config: TrainConfig = field(default_factory=TrainConfig)


def test_every_kind_of_option_can_be_given_as_text() -> None:
    texts = {"steps": "100", "lr": "1e-3", "crop": "64x96", "model": "raft", "num-heads": "1"}
    texts |= {"learned_alpha": "true", "validate_on": "scenes:mix,set:sintel", "iters-growth": ""}
    config = override(preset("chairs"), texts)
    assert (config.steps, config.lr, config.crop, config.model) == (100, 1e-3, (64, 96), "raft")
    assert config.validate_on == ("scenes:mix", "set:sintel")
    assert override(RunOptions(), {"output": "a/b", "resume": "1"}).output == Path("a/b")
    nested = override(Nested(), {"output": "a.json", "steps": "7"})
    assert (nested.output, nested.config.steps) == (Path("a.json"), 7)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (WeightsOptions, "model"),
        (BatchConfig, "model"),
        (TrainConfig, "model"),
        (BenchConfig, "models"),
    ],
)
def test_help_names_every_model(options: type, name: str) -> None:
    # Typed, not generated: help comes before torch, and the models with it.
    named = re.findall(r"(?:gma|raft)[a-z-]*", field_docs(options)[name])
    assert named == list(MODELS)


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("stpes", "1", "unknown option 'stpes'; did you mean steps"),
        ("steps", "many", "invalid steps=many; give a whole number"),
        ("lr", "high", "invalid lr=high; give a number"),
        ("crop", "64", "'64'"),
        ("residual", "maybe", "invalid residual=maybe; give true or false"),
        ("output", "", "invalid output=; give a path"),
        ("lr", "7", "lr=7.0 is out of range"),
    ],
)
def test_invalid_options_are_explained(key: str, text: str, sentence: str) -> None:
    with pytest.raises(FlowError, match=sentence):
        override(Nested(config=preset("chairs")), {key: text})


def test_every_setting_is_documented() -> None:
    assert field_docs(TrainConfig).keys() == TrainConfig.__annotations__.keys()
    text = describe(preset("kitti"))
    assert "* crop            288x960        Height and width" in text
    assert len(text.splitlines()) == len(TrainConfig.__annotations__)
    assert describe(Nested()).splitlines()[0].endswith(" A file.")


def test_flags_may_follow(run: Run) -> None:
    shown = run("train", "kitti", "steps=7", "crop=64x96", "--batch", "2", "--show", "--json")
    config = json.loads(shown.out)
    assert (config["steps"], config["crop"], config["batch"]) == (7, [64, 96], 2)


@pytest.fixture
def no_tyro(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide tyro; the modules of the verbs are already imported."""
    assert {bench.__name__, train.__name__} <= sys.modules.keys()
    monkeypatch.setitem(sys.modules, "tyro", None)


@pytest.mark.usefixtures("no_tyro")
def test_a_run_without_tyro(run: Run, tmp_path: Path) -> None:
    done = run("train", "scenes-pretrain", *TINY, f"output={tmp_path}/a", "device=cpu")
    assert (done.code, "done after 1 step:" in done.out) == (0, True)
    shown = run("train", "scenes-pretrain", "--help")
    assert "Continue the run" in shown.out
    assert "Peak of the one-cycle learning rate" in shown.out
    refused = run("train", "chairs", "steps=3", "--resume")
    assert "cannot read '--resume' because tyro is not installed" in refused.complaint


@pytest.mark.usefixtures("no_tyro")
def test_a_benchmark_without_tyro(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "a.json"
    done = run(
        "bench",
        *("models=raft-small", "sizes=64x64,64x72", "iters=1", "device=cpu", "rounds=1"),
        *("warm-up=0", "skip-memory=true", "overhead=true", "check=true", f"output={output}"),
    )
    assert "measured only on a CUDA device" in done.out
    assert "64x72: measuring time" in done.err
    assert "px from float32" in done.out
    measured = json.loads(output.read_text())["measured"]
    assert len(measured) == 2
    assert all(0 < one["from_float32_px"]["largest"] < 1e-3 for one in measured)
    assert "unknown option 'size'" in run("bench", "size=64x64").err


def test_other_verbs_ask_for_tyro(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gmaflow", "flow", "a.png", "b.png"]
    environment = os.environ | without_tyro(tmp_path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "`gmaflow flow` needs tyro; run `pip install tyro`" in done.stderr
