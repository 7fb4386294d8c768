"""A plain `pip install .` into an empty environment works."""

import email
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "gmaflow").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.split("/")[0].endswith(".dist-info")} == source
    assert "gmaflow/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < 45e6


def test_ci_runs_on_the_promised_versions() -> None:
    yaml = pytest.importorskip("yaml")
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "classifiers"
    ]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    workflows = {
        path.stem: yaml.safe_load(path.read_text("utf-8"))
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
    }
    job = workflows["ci"]["jobs"]["test"]
    matrix = job["strategy"]["matrix"]
    assert matrix["python"] == promised
    oldest_and_newest = [(promised[0], "lowest"), (promised[-1], "newest")]
    assert [(one["python"], one["versions"]) for one in matrix["include"]] == oldest_and_newest
    assert {"run": "scripts/test"} in job["steps"]
    assert workflows["publish"]["jobs"]["publish"]["permissions"] == {"id-token": "write"}


def requirements_below(names: Iterable[str]) -> Iterator[Distribution]:
    """What installing these requirements brings, as it is installed here."""
    wanted, seen = [(Requirement(name), "") for name in names], set[str]()
    while wanted:
        one, extra = wanted.pop()
        if one.marker and not one.marker.evaluate({"extra": extra}):
            continue
        if str(one) not in seen:
            seen.add(str(one))
            found = distribution(one.name)
            yield found
            needs = [Requirement(text) for text in found.requires or ()]
            wanted += [(below, extra) for below in needs for extra in one.extras or {""}]


def empty_environment(folder: Path, wheel: Path) -> Path:
    """An environment that sees what the wheel requires and nothing else; return its programs.

    Linked rather than downloaded: that takes seconds, and pip checks the versions all the same.
    """
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        needs = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
    for needed in requirements_below(needs):
        for top in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(str(needed.locate_file(top)))
    return folder / "bin"


@pytest.mark.slow
def test_it_installs_into_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    def call(*command: str | Path) -> str:
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    scripts = empty_environment(tmp_path / "env", wheel)
    pip = (sys.executable, "-m", "pip", "--python", scripts / "python")
    # No index: whatever the wheel requires and the environment lacks is an error.
    call(*pip, "install", "--quiet", "--no-index", wheel)
    assert "commands:" in call(scripts / "gmaflow", "--help")

    # The demo uses most of what the wheel must hold: weights, the example, all base packages.
    assert "wrote" in call(scripts / "gmaflow", "demo", "-o", "demo", "--iters", "1")
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 0
