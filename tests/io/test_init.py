import subprocess
import sys
from types import ModuleType

import gmaflow.io


def test_public_names_are_the_promised_ones() -> None:
    shown = {
        name
        for name, value in vars(gmaflow.io).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert shown == set(gmaflow.io.__all__)


def test_importing_brings_in_nothing_heavy() -> None:
    heavy = "{'torch', 'av', 'h5py', 'PIL', 'OpenEXR'}"
    code = f"import sys, gmaflow.io; print(*sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
