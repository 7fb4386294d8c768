"""What is made ready beside compiling."""

from threading import Event

import pytest

from gmaflow.errors import TrainingError
from gmaflow.training import preparing
from gmaflow.training.preparing import done_beside


def test_what_is_refused_at_once_is_raised_before_the_block_begins() -> None:
    def refuse() -> None:
        raise TrainingError("no such folder")

    begun = False
    with pytest.raises(TrainingError, match="no such folder"), done_beside(refuse):
        begun = True
    assert not begun


def test_work_goes_on_while_the_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "AT_ONCE", 0.0)
    begun = Event()

    def read() -> str:
        begun.wait()
        return "textures"

    with done_beside(read) as made:
        assert not made.done()
        begun.set()
    assert made.result() == "textures"
