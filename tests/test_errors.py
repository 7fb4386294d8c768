import sys

import pytest

from gmaflow.errors import FlowError, run_as_program, suggest


def test_near_names_are_suggested_or_all_of_them() -> None:
    assert suggest("sintle", ["sintel", "kitti"]) == "did you mean sintel?"
    assert suggest("xyz", ["sintel", "kitti"]) == "there are sintel, kitti"


def test_what_a_caller_did_wrong_is_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(args: list[str]) -> None:
        raise FlowError(f"{args[0]} is nothing")

    monkeypatch.setattr(sys, "argv", ["program", "something"])
    with pytest.raises(SystemExit) as ended:
        run_as_program(main)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "gmaflow: something is nothing\n"


def test_a_bug_keeps_its_traceback() -> None:
    def main(_args: list[str]) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        run_as_program(main)
