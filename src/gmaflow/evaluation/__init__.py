"""Evaluation of networks: `evaluate`, `compare`, `submit`, and the paper's tables.

`examples` lists the pairs, `metrics` defines errors and regions, `evaluating` evaluates pairs and
sums them up, `comparing` compares networks and `pages` makes the HTML reports. `submission` writes
files for the benchmarks' servers, `paper_tables` fills the paper's tables, and `unsupervised` works
without ground truth.
"""

from gmaflow.evaluation.comparing import COMPARISON_PAGE, Comparison, compare
from gmaflow.evaluation.evaluating import (
    CSV,
    JSON,
    REPORT,
    Evaluation,
    PairEvaluator,
    PairResult,
    evaluate,
)
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
from gmaflow.evaluation.metrics import (
    REGIONS,
    Averaging,
    ErrorSums,
    Figures,
    averaging_of,
    find_regions,
    measure,
)
from gmaflow.evaluation.pages import write_comparison, write_report
from gmaflow.evaluation.submission import (
    BENCHMARKS,
    Benchmark,
    SubmissionReport,
    find_benchmark,
    submit,
)

__all__ = [
    "BENCHMARKS",
    "COMPARISON_PAGE",
    "CSV",
    "JSON",
    "REGIONS",
    "REPORT",
    "SCENES",
    "Averaging",
    "Benchmark",
    "Comparison",
    "ErrorSums",
    "Evaluation",
    "Example",
    "ExampleSet",
    "Figures",
    "PairEvaluator",
    "PairResult",
    "SubmissionReport",
    "averaging_of",
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
