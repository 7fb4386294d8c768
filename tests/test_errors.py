import os
import subprocess
import sys

import pytest

from gmaflow.errors import FlowError, counted, run_as_program, suggest


def test_near_names_are_suggested_or_all_of_them() -> None:
    assert suggest("sintle", ["sintel", "kitti"]) == "did you mean sintel?"
    assert suggest("xyz", ["sintel", "kitti"]) == "there are sintel, kitti"


def test_one_item_is_singular() -> None:
    assert [counted(n, "pair") for n in (0, 1, 2)] == ["0 pairs", "1 pair", "2 pairs"]


def test_a_callers_mistake_is_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(args: list[str]) -> None:
        raise FlowError(f"{args[0]} is nothing")

    monkeypatch.setattr(sys, "argv", ["program", "something"])
    with pytest.raises(SystemExit) as ended:
        run_as_program(main)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "gmaflow: something is nothing\n"


def test_names_that_stdout_cannot_show_are_escaped() -> None:
    program = (
        "from gmaflow.errors import run_as_program; run_as_program(lambda _: print('\\xfc.flo'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
    )
    assert done.stdout == "\\xfc.flo\n"


@pytest.mark.parametrize(
    ("args", "message"), [((), "interrupted"), (("it is kept",), "interrupted; it is kept")]
)
def test_an_interrupt_reports_which_results_are_kept(
    args: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(_args: list[str]) -> None:
        raise KeyboardInterrupt(*args)

    with pytest.raises(SystemExit) as ended:
        run_as_program(main, [])
    assert ended.value.code == 130
    assert capsys.readouterr().err == f"gmaflow: {message}\n"


def test_a_bug_keeps_its_traceback() -> None:
    def main(_args: list[str]) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        run_as_program(main)


def test_messages_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(args: list[str]) -> None:
        raise FlowError(f"{args[0]} does not exist")

    with pytest.raises(SystemExit):
        run_as_program(refuse, ["\x1b]0;owned\x07é\x9b2J.png"])
    printed = capsys.readouterr().err
    assert printed == "gmaflow: \\x1b]0;owned\\x07é\\x9b2J.png does not exist\n"
