import subprocess
import sys


def test_importing_brings_in_nothing_heavy() -> None:
    heavy = "{'torch', 'av', 'h5py', 'PIL', 'OpenEXR'}"
    code = f"import sys, gmaflow.io; print(*sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
