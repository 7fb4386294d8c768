"""How fast, and with how much memory: this package, and the published way beside it.

from gmaflow.bench import BenchConfig, as_text, bench

print(as_text(bench(BenchConfig(sizes=("440x1024",), against="published"))))
"""

from gmaflow.bench.config import BenchConfig
from gmaflow.bench.report import as_json, as_text, output_files, write_files
from gmaflow.bench.running import BenchResult, Measured, Ratio, bench

__all__ = [
    "BenchConfig",
    "BenchResult",
    "Measured",
    "Ratio",
    "as_json",
    "as_text",
    "bench",
    "output_files",
    "write_files",
]
