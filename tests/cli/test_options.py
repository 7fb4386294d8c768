"""How help and progress are shown."""

import re
from pathlib import Path

import pytest

from gmaflow.cli.app import VERBS
from gmaflow.cli.options import progress_bar, step_bar
from tests.cli.conftest import Run


def test_options_are_wrapped_to_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    lines = run("video", "--help").out.splitlines()
    (scale,) = (line for line in lines if "--scale FLOAT" in line)
    assert "Resize frames first" in scale
    assert "(default: 1.0)" in scale
    assert max(len(line) for line in lines[: lines.index("Examples:")]) <= 100


HELP = [
    *((verb,) for verb in VERBS if verb not in ("data", "scenes", "train", "weights")),
    ("data", "check"),
    ("scenes", "render"),
    ("scenes", "show"),
    ("scenes", "stats"),
    ("train", "chairs"),
    ("weights", "convert"),
]


@pytest.mark.parametrize("verb", HELP, ids=" ".join)
def test_help_shows_no_empty_default_and_whole_examples(
    verb: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    shown = run(*verb, "--help").out
    assert not re.search(r"\(default: (''|None)?\)|\{None\}", shown)
    examples = [line.strip() for line in shown.splitlines() if line.startswith("  gmaflow")]
    assert not [line for line in examples if "  " in line or len(line) > 100]


@pytest.mark.parametrize(
    "command",
    [
        "scenes render --count 1 --size",
        "scenes show --size",
        "scenes stats --size",
        "evaluate --data scenes --size",
        "compare a b --data scenes --size",
        "tables a --size",
        "export --size",
        "bench --sizes",
        "train chairs --crop",
    ],
)
def test_every_size_is_read_alike(command: str, run: Run, tmp_path: Path) -> None:
    done = run(*command.split(), "wide", "-o", tmp_path / "out")
    assert (done.code, done.out) == (2, "")
    assert done.err == "gmaflow: 'wide' is not a size; give height x width such as 440x1024\n"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still until it is changed."""
    now = [0.0]
    monkeypatch.setattr("gmaflow.cli.options.time.monotonic", lambda: now[0])
    return now


def test_without_a_terminal_a_line_is_printed_every_ten_seconds(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("pairs") as show:
        for number in range(31):
            clock[0] = float(number)
            show(number, 30)
    assert capsys.readouterr().err.splitlines() == [
        f"gmaflow: pairs: {number} of 30" for number in (10, 20, 30)
    ]


def test_steps_have_names(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with step_bar("evaluate", 5) as step:
        step("alley_1")
        clock[0] = 11.0
        step("alley_2")
    assert capsys.readouterr().err == "gmaflow: evaluate: alley_2: 2 of 5\n"


def test_on_a_terminal_a_bar_appears_after_two_seconds(
    clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("iterations") as show:
        show(1, 12)
        assert capsys.readouterr().err == ""
        clock[0] = 2.5
        show(6, 12)
        assert "iterations" in capsys.readouterr().err


def test_names_are_neither_markup_nor_control_characters(
    clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("evaluate") as show:
        clock[0] = 2.5
        show(1, 2, "[/b] \x1b[2J")
        shown = capsys.readouterr().err
    assert "[/b]" in shown
    assert "\x1b[2J" not in shown


def test_quiet_shows_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("pairs", quiet=True) as show:
        clock[0] = 1e6
        show(1, 2)
    assert capsys.readouterr().err == ""


def test_an_interrupt_reports_which_results_are_kept() -> None:
    with (
        pytest.raises(KeyboardInterrupt, match="continues"),
        progress_bar("x", on_interrupt="continues"),
    ):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("flow", "a.png", "b.png", "-o"), "-o/--output needs a value; see gmaflow flow --help"),
        (("video", "a.mp4", "b.mp4", "-o", "c.mp4"), "'b.mp4' is one argument too many; see "),
        (("serve", "extra"), "'extra' is one argument too many; see gmaflow serve --help"),
        (("train", "chairs", "--crop", "128", "160"), "'128' is not a size; give height x width"),
        (
            ("flow", "a.png", "b.png", "-o", "x.png", "--json=1"),
            "--json takes no value; leave out ",
        ),
        (("video", "a.mp4", "-o", "b.mp4", "-o", "c.mp4"), "video writes one output; give -o once"),
        (("flow", "a.png", "b.png", "-o", "x.png", "--iters"), "--iters needs a value; see "),
        (("flow", "a.png", "--format", "foo"), "--format foo is not known; did you mean flo?"),
        (("video", "--show", "xyz"), "--show xyz is not known; there are arrows, flow, moving, "),
        (("convert", "x.flo"), "-o PATH is missing; see gmaflow convert --help"),
        (("compare", "gma"), "-o FOLDER and --data NAME are missing; see gmaflow compare --help"),
        (("weights", "show"), "FILE is missing; see gmaflow weights show --help"),
    ],
)
@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_misused_option_is_a_sentence(
    args: tuple[str, ...], message: str, columns: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ended = run(*args)
    assert ended.code == 2
    assert ended.err.startswith(f"gmaflow: {message}")
    assert ended.err.count("\n") == 1
