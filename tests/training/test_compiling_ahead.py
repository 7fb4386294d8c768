"""Processes that compile ahead; what they compile needs a GPU to be of use."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from gmaflow.errors import TrainingError
from gmaflow.scenes.render_steps import Steps
from gmaflow.training import compiling_ahead as ahead
from gmaflow.training.recorded import PARTS
from tests.training.conftest import tiny_config

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler's cache of the test's own."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_everything_is_compiled_by_one_process() -> None:
    for data, parts in (("scenes:mix", [*PARTS, *Steps._fields]), ("set:sintel", PARTS)):
        for processes in (0, 1, 3, 8, 100):
            shares = ahead.divide(ahead.groups_for(tiny_config(data=data)), processes)
            assert 1 <= len(shares) <= max(processes, 1)
            shared = [name for share in shares for name in share]
            assert sorted([ahead.OWN_PART, *shared]) == sorted(parts)


@pytest.mark.parametrize("processes", [1, 2, 6])
def test_those_that_do_a_step_share_half_the_memory(processes: int) -> None:
    shares = ahead.divide(ahead.groups_for(tiny_config()), processes)
    doing_steps = sum(not set(PARTS).isdisjoint(names) for names in shares)
    assert doing_steps == min(processes, 2)
    assert doing_steps * ahead.memory_of_each(shares) == ahead.DEVICE_SHARE
    assert ahead.memory_of_each([["look"]]) == ahead.DEVICE_SHARE


def test_the_cache_is_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    assert str(ahead.compiler_cache()) == cache_dir()
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    ours = str(ahead.compiler_cache())
    assert ours == cache_dir()


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where processes that would compile leave their number, and then sleep."""
    folder = tmp_path / "marks"
    folder.mkdir()
    touch = f"pathlib.Path({str(folder)!r}, str(os.getpid())).touch()"
    command = f"import os, pathlib, time; {touch}; time.sleep(600)"
    monkeypatch.setattr(ahead, "_COMMAND", command)
    return folder


def wait_for_processes(marks: Path) -> list[int]:
    while not (found := [int(path.name) for path in marks.iterdir()]):
        time.sleep(0.01)
    return found


def assert_ended(process: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_run_that_fails_leaves_no_process(marks: Path) -> None:
    found: list[int] = []

    def fail() -> None:
        with ahead.compiling_ahead(tiny_config(), CPU):
            found.extend(wait_for_processes(marks))
            raise TrainingError("no such textures")

    with pytest.raises(TrainingError, match="no such textures"):
        fail()
    assert_ended(found[0])


def test_a_process_that_hangs_is_given_up(marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "PATIENCE", 0.1)
    with ahead.compiling_ahead(tiny_config(), CPU):
        found = wait_for_processes(marks)
    assert_ended(found[0])


def test_a_run_waits_for_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = tmp_path / "done"
    late = f"import pathlib, time; time.sleep(0.3); pathlib.Path({str(done)!r}).touch(); 1 / 0"
    monkeypatch.setattr(ahead, "_COMMAND", late)
    with ahead.compiling_ahead(tiny_config(), CPU):
        pass  # that the processes end in an error is no error of the run
    assert done.exists()
    assert not ahead.mark_of(tiny_config(), CPU).exists()


def test_what_renders_is_compiled_before_the_step_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"""
import pathlib, sys, time
folder, name = pathlib.Path({str(tmp_path)!r}), sys.argv[4]
while name in {PARTS} and not (folder / "rendered").exists():
    time.sleep(0.01)
(folder / name).touch()
"""
    monkeypatch.setattr(ahead, "_COMMAND", command)
    monkeypatch.setattr(ahead, "usable_cores", lambda: 100)
    with ahead.compiling_ahead(tiny_config(), CPU) as helpers:
        assert helpers.finish(Steps._fields)
        done = {path.name for path in tmp_path.iterdir()}
        assert {names[0] for names in ahead.SCENE_GROUPS} == done
        (tmp_path / "rendered").touch()
    assert {names[0] for names in ahead.STEP_GROUPS} < {path.name for path in tmp_path.iterdir()}


def test_what_was_compiled_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    monkeypatch.setattr(
        ahead, "_COMMAND", f"import pathlib; pathlib.Path({str(started)!r}).touch()"
    )
    for config, expected in (
        (tiny_config(), True),
        (tiny_config(), False),
        (tiny_config(batch=4), True),
    ):
        started.unlink(missing_ok=True)
        with ahead.compiling_ahead(config, CPU):
            pass
        assert started.exists() == expected


def test_a_process_ends_well_by_itself() -> None:
    helper = ahead.start(tiny_config(), CPU, [], shares=[[]])
    assert helper.wait() == 0
    helper.communicate()


def test_a_process_ends_with_the_one_that_started_it() -> None:
    helper = ahead.start(tiny_config(model="gma"), CPU, [*PARTS], shares=[[*PARTS]])
    assert helper.stdin is not None
    helper.stdin.close()  # as the system does for a process that is killed
    assert helper.wait() == 1


COMPILE = """
import torch
from gmaflow.training.compiling_ahead import compile_parts
from tests.training.conftest import tiny_config

compile_parts(tiny_config(model="gma"), torch.device("cpu"), ["upsampling", "loss"], "aot_eager")
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
"""


COMPILE_STEP = """
from functools import partial
import torch
from gmaflow.model import FlowNetwork
from gmaflow.training import compiling_ahead as ahead
from gmaflow.training import recorded
from gmaflow.training.batch import Batch
from gmaflow.training.step import TrainStep
from tests.training.conftest import tiny_config

recorded.CompiledParts = partial(recorded.CompiledParts, backend="aot_eager")
ahead._COMMAND = "pass"
torch._dynamo.reset()
stats = torch._dynamo.utils.counters["stats"]
stats.clear()
config = tiny_config(model="gma")
network = FlowNetwork(config.network)
before = {name: value.clone() for name, value in TrainStep(network, config).state().items()}
own = []
device = torch.device("cpu")
meanwhile = lambda: own.append(stats["unique_graphs"])
learn = ahead.compiled_step(network, config, device, meanwhile=meanwhile)
step = learn.step
assert all(torch.equal(value, before[name]) for name, value in step.state().items())
compiled = stats["unique_graphs"]
assert own[0] == 1
assert compiled == len(recorded.PARTS)  # each is one graph
learn.compile(Batch.blank(config.batch, config.crop, step.device))
assert stats["unique_graphs"] == compiled
"""


def test_what_is_asked_for_is_compiled_once() -> None:
    # In a process of its own: the compiler cannot see through the tests' type checker.
    command = [sys.executable, "-W", "ignore", "-c", COMPILE + COMPILE_STEP]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
