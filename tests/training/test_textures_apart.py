"""Textures read by another process are those that this one would have read."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from gmaflow.errors import ImageError
from gmaflow.io import write_image
from gmaflow.scenes import TextureBank
from gmaflow.training import textures_apart
from gmaflow.training.child import Child, start_child
from gmaflow.training.textures_apart import load_apart
from tests.scenes.test_texture_bank import assert_same

CPU = torch.device("cpu")
# Where the tests run in the background, the signal is ignored unless a process says otherwise.
INTERRUPTED = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder with a picture, and with a file that is none."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    dice = np.random.default_rng(0)
    write_image(folder / "noise.png", dice.integers(0, 255, (40, 50, 3), dtype=np.uint8))
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


def test_they_are_the_same(pictures: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        apart = load_apart(str(pictures), CPU, size=64)
    assert "broken.png" in caplog.text
    assert_same(apart, TextureBank.load(pictures, size=64))


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_what_is_refused_is_refused_in_the_same_words(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    folder = str(tmp_path / name)
    with pytest.raises(ImageError) as here:
        TextureBank.load(folder)
    with pytest.raises(ImageError) as apart:
        load_apart(folder, CPU)
    assert str(apart.value) == str(here.value)


def test_a_process_that_fails_costs_nothing_but_time(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textures_apart, "_COMMAND", "raise SystemExit(3)")
    assert_same(load_apart(str(pictures), CPU, size=64), TextureBank.load(pictures, size=64))


def test_ctrl_c_is_not_followed_by_reading(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start_and_interrupt(*_: str, **options: bool) -> Child:
        assert options["hears_interrupts"]
        return start_child(INTERRUPTED, hears_interrupts=True)

    monkeypatch.setattr(textures_apart, "start_child", start_and_interrupt)
    monkeypatch.setattr(TextureBank, "load", pytest.fail)
    with pytest.raises(KeyboardInterrupt):
        load_apart(str(pictures), CPU, size=64)


def test_a_folder_that_is_missing_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textures_apart, "start_child", pytest.fail)
    with pytest.raises(ImageError, match="not a folder"):
        load_apart(str(tmp_path / "nothing"), CPU)


def test_a_machine_without_room_reads_them_itself(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(**_: str) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(textures_apart, "TemporaryDirectory", no_room)
    assert_same(load_apart(str(pictures), CPU, size=64), TextureBank.load(pictures, size=64))
