"""The promised names are there, and importing them is cheap and changes nothing."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import gmaflow

PACKAGES = sorted(
    path.parent.name
    for path in Path(gmaflow.__file__).parent.glob("*/__init__.py")
    if "__all__" in path.read_text()
)


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_every_promised_name_is_there() -> None:
    for name in gmaflow.__all__:
        assert getattr(gmaflow, name) is not None
    assert set(dir(gmaflow)) == set(gmaflow.__all__)


def test_the_list_of_homes_is_the_list_of_names() -> None:
    assert set(gmaflow._HOMES) | {"__version__"} == set(gmaflow.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_shows_the_names_that_it_promises(package: str) -> None:
    module = import_module(f"gmaflow.{package}")
    shown = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert shown == set(module.__all__)


def test_other_names_are_refused() -> None:
    try:
        _ = gmaflow.teleport
    except AttributeError as err:
        assert "teleport" in str(err)  # noqa: PT017
    else:
        raise AssertionError("gmaflow.teleport exists")


def test_importing_adds_little_to_torch() -> None:
    """All public names together, in CPU time, beyond torch itself."""
    program = (
        "import torch, numpy, time\n"
        "started = time.process_time()\n"
        "import gmaflow\n"
        "for name in gmaflow.__all__: getattr(gmaflow, name)\n"
        "print(time.process_time() - started)"
    )
    # A busy machine makes single runs slower.
    assert any(float(run(program)) < 0.3 for _ in range(8))


def test_importing_changes_nothing() -> None:
    program = (
        "import torch, logging, warnings\n"
        "def state(): return (torch.initial_seed(), torch.get_default_dtype(),\n"
        "    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,\n"
        "    list(logging.getLogger().handlers), list(logging.getLogger('gmaflow').handlers),\n"
        "    len(warnings.filters), torch.is_grad_enabled(), torch.get_num_threads())\n"
        "before = state()\n"
        "import gmaflow\n"
        "for name in gmaflow.__all__: getattr(gmaflow, name)\n"
        "print(before == state())"
    )
    assert run(program) == "True\n"


def test_heavy_things_load_late() -> None:
    program = (
        "import gmaflow, sys\n"
        "for name in gmaflow.__all__: getattr(gmaflow, name)\n"
        "late = {'av', 'h5py', 'OpenEXR', 'tyro', 'rich', 'scipy', 'jinja2', 'matplotlib'}\n"
        "print(sorted(late & set(sys.modules)))"
    )
    assert run(program) == "[]\n"
