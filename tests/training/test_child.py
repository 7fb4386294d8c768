import os
import signal
import time
from pathlib import Path

import pytest

from gmaflow.training.child import start_child, usable_cores

WAITING = """
import pathlib, sys, time
from gmaflow.training.child import end_with_parent
end_with_parent(lambda: pathlib.Path(sys.argv[1]).unlink())
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


def begun(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    with start_child(WAITING, str(tmp_path / "begun")) as child:
        begun(tmp_path / "begun")
        assert child.poll() is None
        assert child.stdin is not None
        child.stdin.close()  # as the system does for a process that is killed
        assert child.wait(10) == 1
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize("hears_interrupts", [True, False])
def test_ctrl_c_is_for_children_that_hear_it(hears_interrupts: bool) -> None:
    # What a terminal sends goes to all processes of its group.
    with start_child("import time; time.sleep(600)", hears_interrupts=hears_interrupts) as child:
        assert (os.getpgid(child.pid) == os.getpgid(0)) == hears_interrupts
        child.send_signal(signal.SIGKILL)


def test_a_child_has_variables_of_its_own_and_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "1")
    write = "import os, sys; open(sys.argv[1], 'w').write(os.environ['OURS'] + os.environ['OWN'])"
    told = tmp_path / "told"
    with start_child(write, str(told), environment={"OWN": "2"}) as child:
        assert child.wait(10) == 0
    assert told.read_text() == "12"


def test_a_child_does_not_import_what_lies_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "safetensors.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    with start_child("import safetensors, gmaflow") as child:
        assert child.wait(10) == 0


def test_cores_are_those_that_may_be_used() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
