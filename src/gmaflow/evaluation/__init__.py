"""Evaluation of networks: `evaluate`, `compare`, `submit`, and the paper's tables.

`examples` lists the pairs, `metrics` defines errors and regions, `evaluating` evaluates pairs and
sums them up, `comparing` compares networks and `pages` makes the HTML reports. `submission` writes
files for the benchmarks' servers, `paper_tables` fills the paper's tables, and `unsupervised` works
without ground truth.
"""

from gmaflow.evaluation.comparing import Comparison, compare
from gmaflow.evaluation.evaluating import Evaluation, PairEvaluator, PairResult, evaluate
from gmaflow.evaluation.examples import (
    SCENES,
    Example,
    ExampleSet,
    ignoring,
    open_examples,
    published_padding,
    render_examples,
    spread,
    thin,
)
from gmaflow.evaluation.metrics import REGIONS, ErrorSums, Figures, find_regions, measure
from gmaflow.evaluation.pages import write_comparison, write_report
from gmaflow.evaluation.submission import BENCHMARKS, SubmissionReport, find_benchmark, submit

__all__ = [
    "BENCHMARKS",
    "REGIONS",
    "SCENES",
    "Comparison",
    "ErrorSums",
    "Evaluation",
    "Example",
    "ExampleSet",
    "Figures",
    "PairEvaluator",
    "PairResult",
    "SubmissionReport",
    "compare",
    "evaluate",
    "find_benchmark",
    "find_regions",
    "ignoring",
    "measure",
    "open_examples",
    "published_padding",
    "render_examples",
    "spread",
    "submit",
    "thin",
    "write_comparison",
    "write_report",
]
