"""Estimates -> numbers, and what people make of them."""

from gmaflow.evaluation.benchmarks import BENCHMARKS, Benchmark, find_benchmark
from gmaflow.evaluation.comparing import COMPARISON_PAGE, Comparison, compare
from gmaflow.evaluation.comparison_report import header_of, row_of, write_comparison
from gmaflow.evaluation.evaluating import CSV, JSON, REPORT, Evaluation, evaluate
from gmaflow.evaluation.examples import (
    SCENES,
    Example,
    ExampleSet,
    open_examples,
    published_padding,
    render_examples,
    spread,
    thin,
)
from gmaflow.evaluation.judging import Judge, Judged
from gmaflow.evaluation.metrics import Averaging, ErrorSums, Figures, averaging_of, measure
from gmaflow.evaluation.paper_rows import Run, measure_runs, open_trials
from gmaflow.evaluation.paper_tables import PaperTable, make_tables
from gmaflow.evaluation.regions import REGIONS, find_regions
from gmaflow.evaluation.report import write_report, written
from gmaflow.evaluation.submission import SubmissionReport, list_jobs, submit
from gmaflow.evaluation.table_text import as_latex, as_markdown, as_plain, is_final

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
    "Judge",
    "Judged",
    "PaperTable",
    "Run",
    "SubmissionReport",
    "as_latex",
    "as_markdown",
    "as_plain",
    "averaging_of",
    "compare",
    "evaluate",
    "find_benchmark",
    "find_regions",
    "header_of",
    "is_final",
    "list_jobs",
    "make_tables",
    "measure",
    "measure_runs",
    "open_examples",
    "open_trials",
    "published_padding",
    "render_examples",
    "row_of",
    "spread",
    "submit",
    "thin",
    "write_comparison",
    "write_report",
    "written",
]
