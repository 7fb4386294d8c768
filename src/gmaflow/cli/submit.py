"""`gmaflow submit`: writes submissions for the servers of Sintel, KITTI and Spring."""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gmaflow.cli.options import (
    CONTINUES,
    OutputFolder,
    Place,
    PlaceOptions,
    WeightsOptions,
    parse,
    progress_bar,
)
from gmaflow.errors import NOT_WHOLE, counted, print_stderr

if TYPE_CHECKING:
    from gmaflow.evaluation import SubmissionReport

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(WeightsOptions):
    """Write a submission for a benchmark's server, and check it.

    Sintel is estimated with 32 refinements and a warm start, KITTI with 24 and its own padding, as
    in the paper. A weights card may specify another number of refinements, and say that a warm
    start does not help: the shipped weights use 12, without a warm start.
    An interrupted run resumes. Exits with 1 if the submission is incomplete.

    Examples:
      gmaflow submit sintel --root /data/MPI-Sintel --weights gma-sintel.pth -o sintel
      gmaflow submit kitti --root /data/KITTI-2015 --weights gma-kitti.pth -o kitti
    """

    benchmark: Annotated[str, tyro.conf.Positional]
    """sintel, kitti (2015), kitti-2012 or spring."""
    output: OutputFolder
    root: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """The data set's folder, with its test split."""
    iters: int | None = None
    """Refinement steps; by default what suits the weights, else as published."""
    place: Place = field(default_factory=PlaceOptions)


def main(args: list[str]) -> None:
    options = parse(SubmitOptions, args, verb="submit")
    from gmaflow.evaluation import find_benchmark, submit
    from gmaflow.evaluation.submission import list_files, uses_warm_start

    benchmark = find_benchmark(options.benchmark)
    # Before the network is loaded: a wrong folder is the more likely mistake.
    list_files(benchmark, options.root, options.output)
    estimator = options.place.load(
        options.weights,
        model=options.model,
        iters=options.iters,
        padding=benchmark.padding,
    )
    if options.iters is None and estimator.card.iters is None:
        estimator = estimator.with_iters(benchmark.iters)
    warm = "with" if uses_warm_start(benchmark, estimator) else "without"
    if not options.place.quiet:
        print_stderr(f"gmaflow: {counted(estimator.iters, 'refinement')}, {warm} a warm start")
    with progress_bar(
        f"submit {benchmark.name}", quiet=options.place.quiet, on_interrupt=CONTINUES
    ) as progress:
        report = submit(benchmark, estimator, options.output, root=options.root, progress=progress)
    show(report)
    if not report.complete:
        print_stderr(f"gmaflow: {options.output} is not ready for upload")
        sys.exit(NOT_WHOLE)
    print(benchmark.instructions.format(folder=shlex.quote(str(options.output))))


def show(report: "SubmissionReport") -> None:
    count = report.written + report.kept
    print(f"{count} of {report.published} files: {report.written} written, {report.kept} kept")
    for problem in report.problems[:_SHOWN]:
        print_stderr(f"gmaflow: {problem}")
    if len(report.problems) > _SHOWN:
        print_stderr(f"gmaflow: ... and {len(report.problems) - _SHOWN} more")
    if report.complete:
        print("all files were read back and have the right size")
