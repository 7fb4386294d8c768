import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "fuzz.py"


@pytest.mark.skipif(
    sys.platform != "linux" or not SCRIPT.exists(), reason="needs /proc and the benchmarks"
)
def test_damaged_files_are_read_or_refused() -> None:
    """A small part of the benchmark, with inputs that it does not reach."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--first", "3000000", "--count", "1000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 crashes, 0 over 1 GB, 0 over 10 s" in done.stdout
    read, refused = re.search(r"([\d,]+) read, ([\d,]+) refused", done.stdout).groups()  # type: ignore[union-attr]
    assert min(int(read), int(refused)) > 100
