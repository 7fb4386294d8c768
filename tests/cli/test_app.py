import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gmaflow.cli.app import VERBS, main, set_wait_policy
from gmaflow.model import MODELS
from gmaflow.version import __version__
from tests.cli.conftest import Run


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_every_verb(args: tuple[str, ...], run: Run) -> None:
    outcome = run(*args)
    assert outcome.code == 0
    assert all(f"  {verb}" in outcome.out for verb in VERBS)
    assert "gmaflow flow a.png b.png" in outcome.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, run: Run) -> None:
    outcome = run(verb, "--help")
    assert outcome.code == 0
    assert f"gmaflow {verb}" in outcome.out


ESTIMATING = set(VERBS) - {"convert", "data", "export", "scenes", "train", "weights"}


@pytest.mark.parametrize("verb", sorted(ESTIMATING))
def test_every_verb_that_estimates_takes_what_its_errors_name(verb: str, run: Run) -> None:
    shown = run(verb, "--help").out
    assert all(f"--{name} " in shown for name in ("device", "precision", "max-memory"))


@pytest.mark.parametrize("verb", ["batch", "bench", "flow", "train scenes-pretrain"])
def test_help_lists_every_model(verb: str, run: Run) -> None:
    shown = re.sub(r"[\s│]+", " ", run(*verb.split(), "--help").out)
    assert all(re.search(rf"[ :]{name}\b(?!-)", shown) for name in MODELS)


def test_version(run: Run) -> None:
    assert run("--version").out == f"gmaflow {__version__}\n"


def test_a_misspelt_verb_is_guessed(run: Run) -> None:
    outcome = run("flwo", "a", "b")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "gmaflow: there is no command 'flwo'; did you mean flow?\n"
    assert "there are flow, " in run("xyz").err


def test_an_unknown_option_is_refused(run: Run) -> None:
    outcome = run("flow", "a.png", "b.png", "-o", "x.flo", "--speed", "9")
    assert outcome.code == 2
    assert outcome.err.count("--speed") == 1


def test_an_interrupt_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(args: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gmaflow.cli.app.run", interrupt)
    with pytest.raises(SystemExit) as exit_:
        main(["flow"])
    assert exit_.value.code == 130
    assert capsys.readouterr().err == "gmaflow: interrupted\n"


def test_help_comes_before_torch() -> None:
    program = (
        "import sys; from gmaflow.cli import main; main(['--help']); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("False\n")


def test_it_runs_without_docstrings() -> None:
    for args, message in {
        ("flow", "--help"): "Two images, more images, or one folder",
        ("scenes", "--help"): "show",
        ("train", "chairs", "--show"): "368",
    }.items():
        done = subprocess.run(
            [sys.executable, "-OO", "-m", "gmaflow", *args],
            capture_output=True,
            text=True,
            check=True,
        )
        assert message in done.stdout
        assert "Options(" not in done.stdout


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gmaflow", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"gmaflow {__version__}\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("-q", "a.png", "b.png"), "unknown option -q; see gmaflow flow --help"),
        (("a.png", "b.png", "--itres=3"), "unknown option --itres; did you mean --iters?"),
    ],
)
def test_only_the_unknown_option_is_named(run: Run, args: tuple[str, ...], message: str) -> None:
    outcome = run("flow", *args, "-o", "x.flo")
    assert (outcome.code, outcome.err) == (2, f"gmaflow: {message}\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--iters", "abc"), "--iters abc is not a whole number or auto"),
        (("--iters=1.5",), "--iters 1.5 is not a whole number or auto"),
        (("--max-length", "wide"), "--max-length wide is not a number"),
    ],
)
def test_a_wrong_value_is_reported_with_its_option(
    run: Run, args: tuple[str, ...], message: str
) -> None:
    outcome = run("flow", "a.png", "b.png", "-o", "x.flo", *args)
    assert (outcome.code, outcome.err) == (2, f"gmaflow: {message}\n")


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("gmaflow ev", ["evaluate"]),
        ("gmaflow flow --it", ["--iters"]),
        ("gmaflow video --show si", ["side-by-side"]),
        ("gmaflow scenes sh", ["show"]),
        ("gmaflow scenes show --qu", ["--quiet"]),
        ("gmaflow train scenes-p", ["scenes-pretrain"]),
        ("gmaflow train chairs --resu", ["--resume"]),
        ("gmaflow flow fra", ["frames"]),
        ("gmaflow flow -o fra", ["frames"]),
    ],
)
def test_bash_completes(script: Path, tmp_path: Path, typed: str, completed: list[str]) -> None:
    (tmp_path / "frames").mkdir()
    # As bash itself does it: words and their number, and names of files if nothing is found.
    ask = f"""
source {script}
COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _gmaflow
[[ ${{#COMPREPLY[@]}} == 0 ]] && COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
printf '%s\\n' "${{COMPREPLY[@]}}"; complete -p gmaflow >&2
"""
    found = subprocess.run(
        ["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == completed
    assert found.stderr == "complete -o default -F _gmaflow gmaflow\n"


def test_every_verb_can_be_completed_also_in_zsh(script: Path, run: Run) -> None:
    for verb in VERBS:
        assert f" {verb} " in script.read_text().replace('"', " ")
    outcome = run("--print-completion", "fish")
    assert "there are bash, zsh" in outcome.complaint
    assert "None" not in script.read_text()


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shell") / "gmaflow.bash"
    command = [sys.executable, "-m", "gmaflow", "--print-completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path.write_text(done.stdout)
    return path


@pytest.mark.parametrize("option", ["--quiet", "--overwrite"])
def test_verbs_agree_on_their_options(script: Path, option: str) -> None:
    """What shows progress can be quiet; what replaces files says so with one word."""
    quiet = {"data check", "tables", "evaluate", "compare", "submit", "bench", "export", "demo"}
    quiet |= {"flow", "video", "convert", "scenes render", "scenes show", "scenes stats"}
    quiet |= {"batch", "score", "track"}
    replaces = {"flow", "video", "convert", "demo", "export", "bench"}
    replaces |= {"weights convert", "weights average"}
    replaces |= {"scenes render", "scenes show", "scenes stats", "score", "track"}
    lists = dict(re.findall(r'"([\w -]+)"\) words="(--[^"]+)"', script.read_text()))
    presets = {name for name in lists if name.startswith("train ")}
    have = {name for name, words in lists.items() if option in words.split()}
    assert have == presets | (quiet if option == "--quiet" else replaces)


@pytest.mark.parametrize(
    ("set_by_user", "policy"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")]
)
def test_idle_threads_sleep_unless_the_user_says_otherwise(
    set_by_user: dict[str, str], policy: str
) -> None:
    """Set before torch is loaded, which reads it once."""
    program = (
        "import os, sys\n"
        "from gmaflow.cli import main\n"
        "main(['--version'])\n"
        "print(os.environ.get('OMP_WAIT_POLICY'), 'torch' in sys.modules)"
    )
    names = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean | set_by_user,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"{policy} False"


@pytest.mark.parametrize(("load", "spins"), [(0.1, "3000"), (1.5, "0")])
def test_threads_spin_for_a_moment_on_an_idle_machine(
    load: float, spins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("gmaflow.cli.app.sys", SimpleNamespace(modules={}))
    environment: dict[str, str] = {}
    monkeypatch.setattr("gmaflow.cli.app.os.environ", environment)
    set_wait_policy()
    assert environment["GOMP_SPINCOUNT"] == spins
    assert environment["OMP_WAIT_POLICY"] == "PASSIVE"


def test_a_host_program_keeps_its_wait_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    import torch  # noqa: F401  (a program that has loaded it)

    set_wait_policy()
    assert "OMP_WAIT_POLICY" not in os.environ
