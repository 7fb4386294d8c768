"""Estimates -> numbers, and what people make of them."""

from gmaflow.evaluation.evaluating import CSV, JSON, REPORT, Evaluation, evaluate
from gmaflow.evaluation.examples import SCENES, Example, ExampleSet, open_examples, render_examples
from gmaflow.evaluation.judging import Judge, Judged
from gmaflow.evaluation.metrics import Averaging, ErrorSums, Figures, averaging_of, measure
from gmaflow.evaluation.regions import REGIONS, find_regions
from gmaflow.evaluation.report import write_report

__all__ = [
    "CSV",
    "JSON",
    "REGIONS",
    "REPORT",
    "SCENES",
    "Averaging",
    "ErrorSums",
    "Evaluation",
    "Example",
    "ExampleSet",
    "Figures",
    "Judge",
    "Judged",
    "averaging_of",
    "evaluate",
    "find_regions",
    "measure",
    "open_examples",
    "render_examples",
    "write_report",
]
