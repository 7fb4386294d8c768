import os
import subprocess
import sys
from pathlib import Path

import pytest

from gmaflow.errors import FlowError, TrainingError
from gmaflow.training import PRESETS, RunOptions, TrainConfig, preset
from gmaflow.training.__main__ import main
from gmaflow.training.overrides import (
    describe,
    differences,
    field_docs,
    from_json,
    override,
    to_json,
)


def test_every_kind_of_setting_can_be_given_as_text() -> None:
    texts = {"steps": "100", "lr": "1e-3", "crop": "64x96", "model": "raft", "--num-heads": "1"}
    texts |= {"learned_alpha": "true", "validate_on": "scenes:mix,set:sintel", "iters-growth": ""}
    config = override(preset("chairs"), texts)
    assert (config.steps, config.lr, config.crop, config.model) == (100, 1e-3, (64, 96), "raft")
    assert config.validate_on == ("scenes:mix", "set:sintel")
    assert override(RunOptions(), {"output": "a/b", "resume": "1"}).output == Path("a/b")


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("stpes", "1", "there is no setting 'stpes'; did you mean steps"),
        ("steps", "many", "steps=many cannot be read; give a int"),
        ("crop", "64", "crop=64 cannot be read; give two numbers as 368x496"),
        ("residual", "maybe", "residual=maybe cannot be read"),
        ("lr", "7", "lr=7.0 is out of range"),
    ],
)
def test_what_cannot_be_read_is_said(key: str, text: str, sentence: str) -> None:
    with pytest.raises(TrainingError, match=sentence):
        override(preset("chairs"), {key: text})


@pytest.mark.parametrize("name", PRESETS)
def test_configs_survive_json(name: str) -> None:
    assert from_json(to_json(preset(name))) == preset(name)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"stepz": 1}', '{"steps": 0}', "null"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(FlowError):
        from_json(text)


def test_differences_are_named() -> None:
    changed = override(preset("chairs"), {"crop": "64x96", "ema": "0.5", "keep": "9"})
    assert differences(preset("chairs"), changed) == [
        "crop is 368x496, not 64x96",
        "ema is 0, not 0.5",
    ]


def test_every_setting_is_documented() -> None:
    assert field_docs(TrainConfig).keys() == TrainConfig.__annotations__.keys()
    text = describe(preset("kitti"))
    assert "* crop            288x960        Height and width" in text
    assert len(text.splitlines()) == len(TrainConfig.__annotations__)


@pytest.mark.slow
def test_it_runs_without_the_libraries_of_the_command_line(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('tyro', 'av', 'h5py', 'tensorboard'): sys.modules[name] = None\n"
        "from gmaflow.training.__main__ import main\n"
        "main(sys.argv[1:])"
    )
    tiny = ["model=raft-small", "crop=32x40", "batch=1", "steps=1", "iters=1", "validate_every=0"]
    done = subprocess.run(
        [sys.executable, "-c", program, "scenes-pretrain", *tiny, f"output={tmp_path / 'run'}"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "done after 1 steps" in done.stdout
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_the_module_runs_without_a_parser_of_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([])
    assert "scenes-pretrain" in capsys.readouterr().out
    tiny = ["model=raft-small", "crop=32x40", "batch=1", "steps=2", "iters=1", "validate_every=0"]
    main(["scenes-pretrain", *tiny, f"output={tmp_path / 'run'}", "device=cpu", "quiet=true"])
    assert "done after 2 steps" in capsys.readouterr().out
    for bad, sentence in (
        (["scenes"], "there is no preset 'scenes'"),
        (["chairs", "--resume"], "write key=value"),
        (["chairs", "outptu=x"], "did you mean output"),
    ):
        with pytest.raises(TrainingError, match=sentence):
            main(bad)


def test_textures_may_move_but_not_come_or_go() -> None:
    plain, here = preset("scenes-pretrain"), override(preset("scenes-pretrain"), {"textures": "a"})
    moved = override(here, {"textures": "b"})
    assert differences(here, moved) == []
    assert differences(here, plain) == ['textures is a, not ""']
    assert differences(plain, here) == ['textures is "", not a']
