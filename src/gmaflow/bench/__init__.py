"""Measures speed and memory, optionally compared with the algorithm of the published code.

`cases` defines what is measured, `measuring` measures it, `bench_report` writes tables, JSON and
plots, and `published_network` is the published algorithm.

from gmaflow.bench import BenchConfig, as_text, bench

print(as_text(bench(BenchConfig(sizes=("440x1024",), against="published"))))
"""

from gmaflow.bench.bench_report import as_json, as_text, output_files, write_files
from gmaflow.bench.cases import BenchConfig
from gmaflow.bench.measuring import BenchResult, Measured, Ratio, bench

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
