"""Estimates -> numbers, and what people make of them."""

from gmaflow.evaluation.benchmarks import BENCHMARKS, Benchmark, find_benchmark
from gmaflow.evaluation.comparing import COMPARISON_PAGE, Comparison, compare
from gmaflow.evaluation.comparison_report import header_of, row_of, write_comparison
from gmaflow.evaluation.evaluating import CSV, JSON, REPORT, Evaluation, evaluate
from gmaflow.evaluation.examples import SCENES, Example, ExampleSet, open_examples, render_examples
from gmaflow.evaluation.judging import Judge, Judged
from gmaflow.evaluation.metrics import Averaging, ErrorSums, Figures, averaging_of, measure
from gmaflow.evaluation.regions import REGIONS, find_regions
from gmaflow.evaluation.report import write_report
from gmaflow.evaluation.submission import SubmissionReport, list_jobs, submit

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
    "SubmissionReport",
    "averaging_of",
    "compare",
    "evaluate",
    "find_benchmark",
    "find_regions",
    "header_of",
    "list_jobs",
    "measure",
    "open_examples",
    "render_examples",
    "row_of",
    "submit",
    "write_comparison",
    "write_report",
]
